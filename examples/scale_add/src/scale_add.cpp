#include <torch/extension.h>

void scale_add_cuda(float a, const float* x, float* y, int64_t count);

// y = a * x + y, in place on the GPU; on the CPU when the tensors are there.
torch::Tensor scale_add(double a, const torch::Tensor& x, torch::Tensor y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "x and y differ in shape");
  TORCH_CHECK(x.scalar_type() == torch::kFloat && y.scalar_type() == torch::kFloat, "float tensors only");
  auto source = x.contiguous();
  if (!y.is_cuda()) {
    return y.add_(source, a);
  }
  TORCH_CHECK(y.is_contiguous() && source.is_cuda(), "y must be contiguous, and both on the GPU");
  scale_add_cuda(static_cast<float>(a), source.data_ptr<float>(), y.data_ptr<float>(), y.numel());
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("scale_add", &scale_add, "y = a * x + y"); }
