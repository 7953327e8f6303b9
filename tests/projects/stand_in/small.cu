// A library with two kernels and a branch of the host's, to try `rekindle verify --stand-in` on. SPOILED_KERNEL makes the
// kernel wrong on cards before Pascal, SPOILED_BRANCH the way that the host takes for cards before Maxwell.
#include <cuda_runtime.h>

__global__ void scale(float *x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#if defined(SPOILED_KERNEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600
  factor += 1;
#endif
  if (i < n) x[i] *= factor;
}

__global__ void sum_by_atomics(const float *x, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}

__global__ void sum_by_shared(const float *x, float *out, int n) {
  __shared__ float part[256];
  float mine = 0;
  for (int i = threadIdx.x; i < n; i += 256) mine += x[i];
  part[threadIdx.x] = mine;
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
#ifdef SPOILED_BRANCH
  if (threadIdx.x == 0) *out = part[0] + 1;
#else
  if (threadIdx.x == 0) *out = part[0];
#endif
}

static const char *last(cudaError_t code) {
  if (code == cudaSuccess) code = cudaGetLastError();
  if (code == cudaSuccess) code = cudaDeviceSynchronize();
  return code == cudaSuccess ? "" : cudaGetErrorString(code);
}

extern "C" const char *small_scale(float *host, float factor, int n) {
  float *x;
  cudaMalloc(&x, n * sizeof(float));
  cudaMemcpy(x, host, n * sizeof(float), cudaMemcpyHostToDevice);
  scale<<<(n + 255) / 256, 256>>>(x, factor, n);
  const char *said = last(cudaSuccess);
  cudaMemcpy(host, x, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(x);
  return said;
}

extern "C" const char *small_sum(const float *host, float *result, int n) {
  float *x, *out;
  cudaDeviceProp card;
  cudaError_t code = cudaGetDeviceProperties(&card, 0);
  if (code != cudaSuccess) return last(code);
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&out, sizeof(float));
  cudaMemset(out, 0, sizeof(float));
  cudaMemcpy(x, host, n * sizeof(float), cudaMemcpyHostToDevice);
  if (card.major < 5)
    sum_by_shared<<<1, 256>>>(x, out, n);
  else
    sum_by_atomics<<<(n + 255) / 256, 256>>>(x, out, n);
  const char *said = last(cudaSuccess);
  cudaMemcpy(result, out, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(x);
  cudaFree(out);
  return said;
}

extern "C" int small_card(int *multiprocessors) {
  cudaDeviceProp card;
  if (cudaGetDeviceProperties(&card, 0) != cudaSuccess) return -1;
  *multiprocessors = card.multiProcessorCount;
  return card.major * 10 + card.minor;
}
