// Unlike fmaxf, it keeps NaN.
static __device__ __forceinline__ float relu(float v) { return v < 0.f ? 0.f : v; }
