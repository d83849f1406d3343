// Unlike fmax, it leaves a NaN as it is.
static __device__ __forceinline__ float relu(float v) { return v < 0.f ? 0.f : v; }
