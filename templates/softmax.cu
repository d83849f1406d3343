//@key whole  some kernel keeps scores as they are
//@key soft   some kernel has a softmax; others just put parts together
// A softmax over keys that come in parts (Milakov and Gimelshein 2018, section 3): the largest
// score so far stands for the largest one, and what was summed up is scaled when it grows. The
// special function unit has powers of two, so what is kept is the largest score times log2(e), and
// a weight is 2^(s * unit - top), one multiply-add away from what a score is made of: unit is
// log2(e) times the score's factor.
#define NO_KEY (-3.402823466e+38f)  // top of none

//@if whole
// log2(e) for scores up to `most`; but 1 where their product were none: such scores differ by so
// much, if at all, that the weights are the same.
static __device__ __forceinline__ float score_unit(float most) {
    return most < -2.35e38f ? 1.f : 1.44269504f;
}

//@end
//@if soft
// The sum of a row's weights: none where all scores are -inf, as -inf - -inf is no number. With NaN
// itself compilers would make reciprocals of both cases.
static __device__ __forceinline__ float total(float sum) {
    return sum > 0.f ? sum : sum * INFINITY;
}

//@end
// 2^(power - top): its error is some 2^-22, whatever the scores are.
static __device__ __forceinline__ float weight_of(float power, float top) {
    float w;
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(power - top));
#else
    w = exp2f(power - top);
#endif
    return w;
}
