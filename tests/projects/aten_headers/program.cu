// Ten of ATen's kernel headers on one card: each is used by a kernel whose answer the CPU knows.
// Needs PyTorch's headers (c10, aten, torch/headeronly) and no library but the CUDA runtime. Exit code 0: all right;
// 1: a wrong answer; 2: no card, or one without code in this program.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <ATen/cuda/AsmUtils.cuh>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/DeviceUtils.cuh>
#include <ATen/cuda/NumericLimits.cuh>
#include <ATen/cuda/ScanUtils.cuh>
#include <ATen/cuda/detail/IntegerDivider.cuh>
#include <ATen/native/cuda/DeviceSqrt.cuh>
#include <ATen/native/cuda/KernelUtils.cuh>
#include <ATen/native/cuda/SortingRadixSelect.cuh>
#include <ATen/native/cuda/block_reduce.cuh>

constexpr int N = 256;

struct Plus {
  __device__ int operator()(int a, int b) const { return a + b; }
};

// AsmUtils: bit fields by inline assembly, and the lane's number.
__global__ void bits(const unsigned* in, unsigned* out) {
  const int i = threadIdx.x;
  out[i] = at::cuda::Bitfield<unsigned>::getBitfield(in[i], 3, 5) * 64 + at::cuda::getLaneId();
}

// Atomic: half and double have no instruction on the oldest cards and loop over compare-and-swap there.
__global__ void sums(const float* in, float* single, double* twice, c10::Half* half) {
  const int i = threadIdx.x;
  gpuAtomicAdd(single, in[i]);
  gpuAtomicAdd(twice, static_cast<double>(in[i]));
  gpuAtomicAdd(half, c10::Half(0.25f));
}

// DeviceUtils: shuffles and votes within a warp.
__global__ void neighbours(const float* in, float* out) {
  const int i = threadIdx.x;
  const float next = WARP_SHFL_DOWN(in[i], 1);
  out[i] = next + static_cast<float>(__popc(WARP_BALLOT(in[i] > 0.5f)));
}

// NumericLimits: the bounds that kernels start their reductions from.
__global__ void limits(float* out) {
  out[0] = at::numeric_limits<float>::max();
  out[1] = at::numeric_limits<float>::lowest();
}

// ScanUtils: a prefix sum over a block.
__global__ void prefix(const float* in, int* out) {
  __shared__ int shared[N / 32];
  int found = 0;
  at::cuda::inclusiveBinaryPrefixScan<int, true, Plus>(shared, in[threadIdx.x] > 0.5f, &found, Plus());
  out[threadIdx.x] = found;
}

// DeviceSqrt.
__global__ void roots(const float* in, float* out) {
  out[threadIdx.x] = static_cast<float>(at::native::device_sqrt(in[threadIdx.x]));
}

// IntegerDivider: a division by multiplication, right for 31 bits.
__global__ void divided(const unsigned* in, at::cuda::detail::IntDivider<unsigned> by, unsigned* out) {
  const auto found = by.divmod(in[threadIdx.x] >> 1);
  out[threadIdx.x] = found.div * 1000 + found.mod;
}

// KernelUtils: packed atomics of half on cards that have them, two at a time.
__global__ void packed(c10::Half* out) {
  at::native::fastAtomicAdd(out, static_cast<int64_t>(threadIdx.x % 3), static_cast<int64_t>(3), c10::Half(0.5f), true);
}

// SortingRadixSelect: integers that sort as the numbers do.
__global__ void order(const float* in, unsigned* out) {
  const float moved = in[threadIdx.x] - 0.5f;
  const auto key = at::native::TopKTypeConfig<float>::convert(moved);
  out[threadIdx.x] = at::native::TopKTypeConfig<float>::deconvert(key) == moved ? key : 0u;
}

// block_reduce: a sum over a block.
__global__ void total(const float* in, float* out) {
  __shared__ float shared[N / 32];
  const float found = at::native::cuda_utils::BlockReduceSum(in[threadIdx.x], shared);
  if (threadIdx.x == 0) {
    *out = found;
  }
}

static int wrong = 0;

static void need(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::printf("%s: %s\n", what, cudaGetErrorString(error));
    std::exit(2);
  }
}

static void hold(const char* header, bool right) {
  std::printf("%s %s\n", right ? "PASS" : "FAIL", header);
  wrong += right ? 0 : 1;
}

static bool near(double one, double other, double within) {
  return std::fabs(one - other) <= within;
}

template <typename T>
static T* room(size_t count) {
  void* found = nullptr;
  need(cudaMallocManaged(&found, count * sizeof(T)), "memory");
  std::memset(found, 0, count * sizeof(T));
  return static_cast<T*>(found);
}

static void wait(const char* header) {
  need(cudaGetLastError(), header);
  need(cudaDeviceSynchronize(), header);
}

int main() {
  int count = 0;
  need(cudaGetDeviceCount(&count), "no card");
  float* in = room<float>(N);
  unsigned* words = room<unsigned>(N);
  float* reals = room<float>(N);
  unsigned* numbers = room<unsigned>(N);
  double sum = 0;
  for (int i = 0; i < N; ++i) {
    in[i] = static_cast<float>((i * 37) % N) / N;  // exact in binary: sums do not depend on their order
    words[i] = 2654435761u * static_cast<unsigned>(i);
    sum += in[i];
  }

  bits<<<1, N>>>(words, numbers);
  wait("AsmUtils.cuh");
  bool right = true;
  for (int i = 0; i < N; ++i) {
    right &= numbers[i] == ((words[i] >> 3) & 31u) * 64 + static_cast<unsigned>(i % 32);
  }
  hold("AsmUtils.cuh", right);

  double* twice = room<double>(1);
  c10::Half* half = room<c10::Half>(4);
  sums<<<1, N>>>(in, reals, twice, half);
  wait("Atomic.cuh");
  hold("Atomic.cuh", near(reals[0], sum, 0) && near(*twice, sum, 0) && near(static_cast<float>(half[0]), N * 0.25, 0));

  neighbours<<<1, N>>>(in, reals);
  wait("DeviceUtils.cuh");
  right = true;
  for (int i = 0; i < N; ++i) {
    int votes = 0;
    for (int lane = i - i % 32; lane < i - i % 32 + 32; ++lane) {
      votes += in[lane] > 0.5f;
    }
    right &= near(reals[i], in[i % 32 == 31 ? i : i + 1] + votes, 0);
  }
  hold("DeviceUtils.cuh", right);

  limits<<<1, 1>>>(reals);
  wait("NumericLimits.cuh");
  hold("NumericLimits.cuh", reals[0] == 3.402823466e38f && reals[1] == -3.402823466e38f);

  int* counts = room<int>(N);
  prefix<<<1, N>>>(in, counts);
  wait("ScanUtils.cuh");
  right = true;
  for (int i = 0, before = 0; i < N; ++i) {
    before += in[i] > 0.5f;
    right &= counts[i] == before;
  }
  hold("ScanUtils.cuh", right);

  roots<<<1, N>>>(in, reals);
  wait("DeviceSqrt.cuh");
  right = true;
  for (int i = 0; i < N; ++i) {
    right &= near(reals[i], std::sqrt(in[i]), 1e-6);
  }
  hold("DeviceSqrt.cuh", right);

  divided<<<1, N>>>(words, at::cuda::detail::IntDivider<unsigned>(77), numbers);
  wait("IntegerDivider.cuh");
  right = true;
  for (int i = 0; i < N; ++i) {
    right &= numbers[i] == (words[i] >> 1) / 77 * 1000 + (words[i] >> 1) % 77;
  }
  hold("IntegerDivider.cuh", right);

  std::memset(half, 0, 4 * sizeof(c10::Half));
  packed<<<1, N>>>(half);
  wait("KernelUtils.cuh");
  hold("KernelUtils.cuh", near(static_cast<float>(half[0]), 43, 0) && near(static_cast<float>(half[1]), 42.5, 0) &&
                              near(static_cast<float>(half[2]), 42.5, 0) && near(static_cast<float>(half[3]), 0, 0));

  order<<<1, N>>>(in, numbers);
  wait("SortingRadixSelect.cuh");
  right = true;
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; ++j) {
      right &= numbers[i] != 0 && (in[i] < in[j]) == (numbers[i] < numbers[j]);
    }
  }
  hold("SortingRadixSelect.cuh", right);

  total<<<1, N>>>(in, reals);
  wait("block_reduce.cuh");
  hold("block_reduce.cuh", near(reals[0], sum, 0));
  return wrong == 0 ? 0 : 1;
}
