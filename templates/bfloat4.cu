//@key load   it is read
//@key value  it is used after it was read
//@key store  it is written
// Four bf16 numbers, moved at once.
struct __align__(8) bfloat4 {
    __nv_bfloat16 x, y, z, w;
};
//@if load

static __device__ __forceinline__ float4 load_bfloat4(const __nv_bfloat16 *p) {
    const bfloat4 v = *reinterpret_cast<const bfloat4 *>(p);
    return make_float4(__bfloat162float(v.x), __bfloat162float(v.y), __bfloat162float(v.z),
                       __bfloat162float(v.w));
}
//@end
//@if value

static __device__ __forceinline__ float4 bfloat4_value(uint2 words) {
    bfloat4 v;
    memcpy(&v, &words, sizeof v);
    return make_float4(__bfloat162float(v.x), __bfloat162float(v.y), __bfloat162float(v.z),
                       __bfloat162float(v.w));
}
//@end
//@if store

static __device__ __forceinline__ void store_bfloat4(__nv_bfloat16 *p, float x, float y, float z,
                                                     float w) {
    bfloat4 v;
    v.x = __float2bfloat16_rn(x);
    v.y = __float2bfloat16_rn(y);
    v.z = __float2bfloat16_rn(z);
    v.w = __float2bfloat16_rn(w);
    *reinterpret_cast<bfloat4 *>(p) = v;
}
//@end
