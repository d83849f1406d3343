//@key half   f16 numbers are read
//@key float  f32 numbers are read
//@key fill   eight equal ones are needed
//@key store  f16 numbers are written
// Eight numbers in registers; of f16 ones, 16 bytes moved at once.
struct float8 {
    float x, y, z, w;
    float4 b;
};
//@if fill

static __device__ __forceinline__ float8 make_float8(float v) {
    return float8{v, v, v, v, {v, v, v, v}};
}
//@end
//@if float

static __device__ __forceinline__ float8 load_float8(const float *p) {
    const float4 a = *reinterpret_cast<const float4 *>(p);
    return float8{a.x, a.y, a.z, a.w, *reinterpret_cast<const float4 *>(p + 4)};
}
//@end

struct __align__(16) half8 {
    __half x[8];
};
//@if half

static __device__ __forceinline__ float8 load_half8(const __half *p) {
    const half8 v = *reinterpret_cast<const half8 *>(p);
    return float8{
        __half2float(v.x[0]),
        __half2float(v.x[1]),
        __half2float(v.x[2]),
        __half2float(v.x[3]),
        {__half2float(v.x[4]), __half2float(v.x[5]), __half2float(v.x[6]), __half2float(v.x[7])}};
}
//@end
//@if store

static __device__ __forceinline__ void store_half8(__half *p, float x0, float x1, float x2,
                                                   float x3, float x4, float x5, float x6,
                                                   float x7) {
    half8 v;
    v.x[0] = __float2half_rn(x0);
    v.x[1] = __float2half_rn(x1);
    v.x[2] = __float2half_rn(x2);
    v.x[3] = __float2half_rn(x3);
    v.x[4] = __float2half_rn(x4);
    v.x[5] = __float2half_rn(x5);
    v.x[6] = __float2half_rn(x6);
    v.x[7] = __float2half_rn(x7);
    *reinterpret_cast<half8 *>(p) = v;
}
//@end
