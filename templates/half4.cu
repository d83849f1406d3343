//@key load   it is read
//@key value  it is used after it was read
//@key store  it is written
// Four f16 numbers, moved at once.
struct __align__(8) half4 {
    __half x, y, z, w;
};
//@if load

static __device__ __forceinline__ float4 load_half4(const __half *p) {
    const half4 v = *reinterpret_cast<const half4 *>(p);
    return make_float4(__half2float(v.x), __half2float(v.y), __half2float(v.z), __half2float(v.w));
}
//@end
//@if value

static __device__ __forceinline__ float4 half4_value(uint2 words) {
    half4 v;
    memcpy(&v, &words, sizeof v);
    return make_float4(__half2float(v.x), __half2float(v.y), __half2float(v.z), __half2float(v.w));
}
//@end
//@if store

static __device__ __forceinline__ void store_half4(__half *p, float x, float y, float z, float w) {
    half4 v;
    v.x = __float2half_rn(x);
    v.y = __float2half_rn(y);
    v.z = __float2half_rn(z);
    v.w = __float2half_rn(w);
    *reinterpret_cast<half4 *>(p) = v;
}
//@end
