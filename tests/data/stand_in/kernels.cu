// nvcc 11.8 -gencode arch=compute_35,code=[sm_35,compute_35] -fatbin -o ptx.fatbin kernels.cu
// nvcc 11.8 -gencode arch=compute_35,code=sm_35 -fatbin -o bare.fatbin kernels.cu
// nvcc 11.8 -gencode arch=compute_35,code=[sm_35,compute_35] -gencode arch=compute_90,code=sm_90 -fatbin -o native.fatbin
// nvcc 13.0 -gencode arch=compute_75,code=[sm_75,compute_75] -Xfatbin -compress-all -fatbin -o zstd.fatbin kernels.cu
template <typename T> __global__ void scale(T *x, T factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor;
}
template __global__ void scale<float>(float *, float, int);

__global__ void __launch_bounds__(1024) turn(float *x) {
  __shared__ float s[1024];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[1023 - threadIdx.x];
}

// So many registers that a block of 1024 threads does not fit.
__global__ void heavy(double *x) {
  double a[48];
#pragma unroll
  for (int i = 0; i < 48; i++) a[i] = x[i + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 48; i++) a[i] = a[i] * a[(i * 7 + 3) % 48] + x[0];
  double s = 0;
#pragma unroll
  for (int i = 0; i < 48; i++) s += a[i] * a[47 - i];
  x[threadIdx.x] = s;
}
