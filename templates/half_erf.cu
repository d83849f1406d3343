// erf(x) to 7e-7, which is more than a result that is stored as f16 holds: 1 - 2^(-a q(a)) of
// a = |x|, q fitted so that the error is alike wherever it is large. A third of erff's
// instructions.
static __device__ __forceinline__ float half_erf(float x) {
    const float a = fabsf(x);
    float q = fmaf(-0.00294409437f, a, 0.0295898313f), power;
    q = fmaf(fmaf(fmaf(q, a, -0.14866540f), a, -0.918509457f), a, -1.62788900f) * a;
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(q));
#else
    power = exp2f(q);
#endif
    return copysignf(1.f - power, x);
}
