// Asynchronous copies to shared memory. What is read is read at once, as it may be on a device;
// what is written is written when its group is waited for, or at once as well: by JUDGE_ORDER
// always the one or the other, or any. So a forgotten wait leaves shared memory as it was, and a
// copy that begins too soon overwrites what others still read. Race mode does both.
#ifndef JUDGE_CUDA_PIPELINE_PRIMITIVES_H
#define JUDGE_CUDA_PIPELINE_PRIMITIVES_H

#include "cuda_runtime.h"

// A copy that the running thread has begun: `group` counts its groups.
struct judge_copy {
    void *to;
    unsigned bytes, group;
    alignas(16) unsigned char data[16];
};

void judge_check_copy(const judge_copy &copy, const void *from, size_t zeros);
// Keeps a copy until it is waited for; false: it is wanted at once, too.
bool judge_keep_copy(const judge_copy &copy);
void judge_end_group();
// The next copy of the thread's groups but its `groups` last ones; NULL: there is none left.
const judge_copy *judge_next_copy(unsigned groups);

static inline __attribute__((always_inline)) void judge_store_copy(const judge_copy &copy) {
    if (copy.bytes == 16) {
        *static_cast<uint4 *>(copy.to) = *reinterpret_cast<const uint4 *>(copy.data);
    } else if (copy.bytes == 8) {
        *static_cast<uint2 *>(copy.to) = *reinterpret_cast<const uint2 *>(copy.data);
    } else {
        *static_cast<unsigned *>(copy.to) = *reinterpret_cast<const unsigned *>(copy.data);
    }
}

static inline __attribute__((always_inline)) void __pipeline_memcpy_async(void *to,
                                                                          const void *from,
                                                                          size_t bytes,
                                                                          size_t zeros = 0) {
    judge_copy copy = {};
    copy.to = to;
    copy.bytes = (unsigned)bytes;
    judge_check_copy(copy, from, zeros);
    if (zeros == 0 && bytes == 16) {
        *reinterpret_cast<uint4 *>(copy.data) = *static_cast<const uint4 *>(from);
    } else if (zeros == 0 && bytes == 8) {
        *reinterpret_cast<uint2 *>(copy.data) = *static_cast<const uint2 *>(from);
    } else if (zeros == 0) {
        *reinterpret_cast<unsigned *>(copy.data) = *static_cast<const unsigned *>(from);
    } else {
        for (size_t i = 0; i + zeros < bytes; i++) {
            copy.data[i] = static_cast<const unsigned char *>(from)[i];
        }
    }
    if (!judge_keep_copy(copy)) {
        judge_store_copy(copy);
    }
}

static inline void __pipeline_commit() { judge_end_group(); }

static inline __attribute__((always_inline)) void __pipeline_wait_prior(unsigned groups) {
    while (const judge_copy *copy = judge_next_copy(groups)) {
        judge_store_copy(*copy);
    }
}

#endif
