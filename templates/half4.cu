// Four f16 numbers, 8-byte aligned, as f32 ones.
struct __align__(8) half4 {
    __half2 a, b;
};

static __device__ __forceinline__ float4 load_half4(const __half *p) {
    const half4 v = *reinterpret_cast<const half4 *>(p);
    const float2 a = __half22float2(v.a), b = __half22float2(v.b);
    return make_float4(a.x, a.y, b.x, b.y);
}

static __device__ __forceinline__ void store_half4(__half *p, float x, float y, float z, float w) {
    half4 v;
    v.a = __floats2half2_rn(x, y);
    v.b = __floats2half2_rn(z, w);
    *reinterpret_cast<half4 *>(p) = v;
}
