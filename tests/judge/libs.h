// What the tests of the library bodies share: counting checks, small integers, device arrays of any
// type. All values are small integers, so results must be exact whatever the order of summation.
#ifndef JUDGE_LIBS_H
#define JUDGE_LIBS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <library_types.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

static int passed, failed;
static cudaStream_t stream;

static void check(bool ok, const std::string &what) {
    (ok ? passed : failed)++;
    if (!ok) {
        printf("FAIL %s\n", what.c_str());
    }
}

// Small integers from a fixed sequence.
static float next_value() {
    static unsigned state = 12345;
    state = state * 1664525u + 1013904223u;
    return (float)((int)(state >> 20) % 5 - 2);
}

static std::vector<float> values(size_t count) {
    std::vector<float> v(count);
    for (float &x : v) {
        x = next_value();
    }
    return v;
}

static float to_float(const void *data, size_t i, cudaDataType type) {
    return type == CUDA_R_32F   ? ((const float *)data)[i]
           : type == CUDA_R_16F ? __half2float(((const __half *)data)[i])
                                : __bfloat162float(((const __nv_bfloat16 *)data)[i]);
}

static size_t type_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

// A device array of a given type, filled from floats or left as poison.
struct device_array {
    cudaDataType type;
    size_t count;
    void *data = nullptr;

    device_array(const std::vector<float> &from, cudaDataType t = CUDA_R_32F)
        : type(t), count(from.size()) {
        std::vector<char> raw(count * type_bytes(t));
        for (size_t i = 0; i < count; i++) {
            if (t == CUDA_R_32F) {
                ((float *)raw.data())[i] = from[i];
            } else if (t == CUDA_R_16F) {
                ((__half *)raw.data())[i] = __float2half(from[i]);
            } else {
                ((__nv_bfloat16 *)raw.data())[i] = __float2bfloat16(from[i]);
            }
        }
        cudaMalloc(&data, raw.size() + 1);
        cudaMemcpyAsync(data, raw.data(), raw.size(), cudaMemcpyHostToDevice, stream);
    }
    explicit device_array(size_t n, cudaDataType t = CUDA_R_32F) : type(t), count(n) {
        cudaMalloc(&data, n * type_bytes(t) + 1);
    }
    device_array(const device_array &) = delete;
    ~device_array() { cudaFree(data); }

    float *f() { return (float *)data; }
    std::vector<float> get() {
        std::vector<char> raw(count * type_bytes(type));
        cudaMemcpyAsync(raw.data(), data, raw.size(), cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        std::vector<float> result(count);
        for (size_t i = 0; i < count; i++) {
            result[i] = to_float(raw.data(), i, type);
        }
        return result;
    }
};

// Equal where `want` is a number; poison where it is not.
static bool same(const std::vector<float> &got, const std::vector<float> &want) {
    for (size_t i = 0; i < want.size(); i++) {
        if (!(got[i] == want[i]) && !(got[i] != got[i] && want[i] != want[i])) {
            return false;
        }
    }
    return got.size() == want.size();
}

static std::vector<float> poison(size_t count) { return std::vector<float>(count, NAN); }

static int summary() {
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#endif
