// A softmax over keys that come in parts (Milakov and Gimelshein 2018, section 3): the largest
// score so far stands for the largest one, and what was summed up is scaled when it grows.

// 0 stands for the largest score until one is above -inf.
static __device__ __forceinline__ float largest(float top) { return top > -INFINITY ? top : 0.f; }

// The sum of a row's weights: none where all scores are -inf, as -inf - -inf is no number.
static __device__ __forceinline__ float total(float sum, float top) {
    return top > -INFINITY ? sum : NAN;
}

// e^(x - top), at most 1: its error is some 2^-22, whatever the scores are. The special function
// unit has powers of two.
static __device__ __forceinline__ float weight_of(float x, float top) {
    const float power = (x - top) * 1.44269504f;
    float w;
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(power));
#else
    w = exp2f(power);
#endif
    return w;
}
