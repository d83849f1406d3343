// What tensor cores multiply, as templates/mma.cu describes fragments: instead of its stand-in,
// whose lanes exchange them register by register, they meet once. tests/kernels/fragments.cu
// compares both with the PTX manual.
#include <cuda_fp16.h>

#include "judge.h"
#include "number.h"

namespace {

// Of a lane's registers, first of A, then of B: one term each, or the two halves.
float term(unsigned word, bool half, int i) {
    __half_raw raw;
    raw.x = (unsigned short)(word >> 16 * i);
    return half ? __half2float(raw) : judge_bits<float>(word & ~0x1fffu);
}

}  // namespace

void judge_multiply_add(int line, float *c, const unsigned *a, unsigned b0, unsigned b1,
                        bool half) {
    const unsigned own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float(*of)[12] = judge_meeting_floats();
    const int lane = (int)judge_self->lane, g = lane / 4, t = lane % 4, terms = half ? 2 : 1;
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < terms; k++) {
            of[lane][2 * i + k] = term(own[i], half, k);
        }
    }
    judge_warp_meet(~0u, 0, line, false);
    for (int q = 0; q < 4; q++) {
        for (int k = 0; k < 2; k++) {
            const float *x = &of[4 * g + q][4 * k];
            for (int j = 0; j < 2; j++) {
                const float *y = &of[4 * (2 * t + j) + q][8 + 2 * k];
                c[j] += half ? x[0] * y[0] + x[1] * y[1] : x[0] * y[0];
                c[2 + j] += half ? x[2] * y[0] + x[3] * y[1] : x[2] * y[0];
            }
        }
    }
}
