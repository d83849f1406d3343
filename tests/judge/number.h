// Element types of the library bodies: everything is computed in float, other types are converted
// at the borders.
#ifndef JUDGE_NUMBER_H
#define JUDGE_NUMBER_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <string.h>

#include <vector>

inline size_t judge_type_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

inline bool judge_type_known(cudaDataType type) {
    return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

inline float judge_load(const void *base, size_t index, cudaDataType type) {
    switch (type) {
    case CUDA_R_16F: return __half2float(static_cast<const __half *>(base)[index]);
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16 *>(base)[index]);
    default: return static_cast<const float *>(base)[index];
    }
}

inline void judge_store(void *base, size_t index, cudaDataType type, float value) {
    switch (type) {
    case CUDA_R_16F: static_cast<__half *>(base)[index] = __float2half(value); break;
    case CUDA_R_16BF: static_cast<__nv_bfloat16 *>(base)[index] = __float2bfloat16(value); break;
    default: static_cast<float *>(base)[index] = value;
    }
}

// The nearest TF32 number, with 10 bits of mantissa; ties away from zero, as cvt.rna.tf32 does.
inline float judge_tf32(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) {
        bits = (bits + 0x1000u) & ~0x1fffu;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A column-major matrix as floats with the same leading dimension: the matrix itself, or a
// converted copy.
class judge_floats {
   public:
    judge_floats(const void *data, cudaDataType type, size_t rows, size_t columns, size_t ld,
                 bool tf32) {
        if (type == CUDA_R_32F && !tf32) {
            values_ = static_cast<const float *>(data);
            return;
        }
        copy_.resize(rows && columns ? ld * (columns - 1) + rows : 0);
        for (size_t c = 0; c < columns; c++) {
            for (size_t r = 0; r < rows; r++) {
                float value = judge_load(data, c * ld + r, type);
                copy_[c * ld + r] = tf32 ? judge_tf32(value) : value;
            }
        }
        values_ = copy_.data();
    }
    const float *get() const { return values_; }

   private:
    const float *values_;
    std::vector<float> copy_;
};

#endif
