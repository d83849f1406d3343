// Which lane holds what, register by register as the PTX manual has it for mma.m16n8k8 (TF32) and
// mma.m16n8k16 (halves): the fragments that templates/mma.cu loads, of both ways in which a factor
// lies in shared memory, and what it makes of fragments that are filled in here; and how it rounds.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "../../templates/mma.cu"

enum { TERMS = 16, PITCH = 24 };  // terms of halves; TF32 has the first 8

static int passed, failed;

static void expect(bool same, const char *what, int lane, int i) {
    if (same) passed++;
    else failed++;
    if (!same && failed < 20) printf("FAIL %s: lane %d, element %d\n", what, lane, i);
}

// Row and term of element i of operand A, term and column of element i of operand B, row and column
// of element i of the result: the manual's groupID is lane / 4, its threadID_in_group lane % 4.
template <typename T>
struct manual;
template <>
struct manual<float> {
    static int row(int lane, int i) { return i == 0 || i == 2 ? lane / 4 : lane / 4 + 8; }
    static int term(int lane, int i) { return i < 2 ? lane % 4 : lane % 4 + 4; }
    static int term_b(int lane, int i) { return i == 0 ? lane % 4 : lane % 4 + 4; }
};
template <>
struct manual<__half> {
    static int row(int lane, int i) { return i < 2 || (4 <= i && i < 6) ? lane / 4 : lane / 4 + 8; }
    static int term(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }
    static int term_b(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8); }
};
static int row_c(int lane, int i) { return i < 2 ? lane / 4 : lane / 4 + 8; }
static int column_c(int lane, int i) { return lane % 4 * 2 + (i & 1); }

static float value(int i) { return (float)(i * 37 % 61 - 30); }

template <typename T, bool ALONG>
static __global__ void load(const T *lines, unsigned *to) {
    __shared__ __align__(16) T s[16 * PITCH];
    for (unsigned i = threadIdx.x; i < 16u * PITCH; i += 32u) s[i] = lines[i];
    __syncthreads();
    unsigned q[4];
    tensor_type<T>::template fragment<ALONG>(q, s, PITCH);
    for (int i = 0; i < 4; i++) to[threadIdx.x * 4u + i] = q[i];
}

template <typename T>
static __global__ void multiply(const unsigned *from, float *to) {
    unsigned a[4];
    float c[4];
    for (int i = 0; i < 4; i++) a[i] = from[threadIdx.x * 6u + i], c[i] = to[threadIdx.x * 4u + i];
    tensor_type<T>::multiply_add(c, a, from[threadIdx.x * 6u + 4u], from[threadIdx.x * 6u + 5u]);
    for (int i = 0; i < 4; i++) to[threadIdx.x * 4u + i] = c[i];
}

template <typename T>
static T as(float v);
template <>
float as<float>(float v) {
    return v;
}
template <>
__half as<__half>(float v) {
    return __float2half(v);
}
static float back(float v) { return v; }
static float back(__half v) { return __half2float(v); }

// The two operands B of a fragment of 16 lines are its registers 0 and 2 and 1 and 3.
template <typename T>
static void check_loads(const char *name, bool along) {
    const int words = 4 / (int)sizeof(T);
    T lines[16 * PITCH], *device;
    unsigned q[128], *got;
    for (int i = 0; i < 16 * PITCH; i++) lines[i] = as<T>(value(i));
    cudaMalloc(&device, sizeof lines);
    cudaMalloc(&got, sizeof q);
    cudaMemcpy(device, lines, sizeof lines, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(32);
    if (along) {
        const auto kernel = load<T, true>;
        kernel<<<grid, block, 0, 0>>>(device, got);
    } else {
        const auto kernel = load<T, false>;
        kernel<<<grid, block, 0, 0>>>(device, got);
    }
    cudaMemcpy(q, got, sizeof q, cudaMemcpyDeviceToHost);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4 * words; i++) {
            T element;
            memcpy(&element, (const char *)&q[lane * 4] + i * sizeof(T), sizeof element);
            const int line = manual<T>::row(lane, i), k = manual<T>::term(lane, i);
            const int at = along ? line * PITCH + k : k * PITCH + line;
            expect(back(element) == value(at), name, lane, i);
            // As operand B of lines 0 to 7, or of lines 8 to 15.
            const int b = i / words % 2, e = i / words / 2 * words + i % words;
            expect(line == lane / 4 + 8 * b && k == manual<T>::term_b(lane, e), name, lane, i);
        }
    cudaFree(device);
    cudaFree(got);
}

template <typename T>
static void check_product(const char *name) {
    const int words = 4 / (int)sizeof(T), terms = 8 * words;
    unsigned registers[32 * 6], *device;
    float c[128], *got;
    for (int lane = 0; lane < 32; lane++) {
        T a[8], b[4];
        for (int i = 0; i < 4 * words; i++)
            a[i] = as<T>(value(manual<T>::row(lane, i) * TERMS + manual<T>::term(lane, i)));
        for (int i = 0; i < 2 * words; i++)
            b[i] = as<T>(value(500 + manual<T>::term_b(lane, i) * 8 + lane / 4));
        memcpy(&registers[lane * 6], a, 16);
        memcpy(&registers[lane * 6 + 4], b, 8);
        for (int i = 0; i < 4; i++) c[lane * 4 + i] = (float)(lane + i);
    }
    cudaMalloc(&device, sizeof registers);
    cudaMalloc(&got, sizeof c);
    cudaMemcpy(device, registers, sizeof registers, cudaMemcpyHostToDevice);
    cudaMemcpy(got, c, sizeof c, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(32);
    const auto kernel = multiply<T>;
    kernel<<<grid, block, 0, 0>>>(device, got);
    cudaMemcpy(c, got, sizeof c, cudaMemcpyDeviceToHost);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            float want = (float)(lane + i);
            for (int k = 0; k < terms; k++)
                want += value(row_c(lane, i) * TERMS + k) * value(500 + k * 8 + column_c(lane, i));
            expect(c[lane * 4 + i] == want, name, lane, i);
        }
    cudaFree(device);
    cudaFree(got);
}

static __global__ void round_all(const unsigned *from, unsigned *to) {
    const unsigned i = threadIdx.x;
    to[i] = __float_as_uint(tensor_type<float>::rounded(__uint_as_float(from[i])));
}

// What cvt.rna.tf32.f32 makes of a number, with the 13 bits that a product does not read: ties go
// away from zero, a NaN stays one whatever it carries, infinities and zeros stay as they are.
static void check_rounding() {
    static const unsigned cases[][2] = {
        {0x3f800fffu, 0x3f800000u}, {0x3f801000u, 0x3f802000u}, {0xbf801000u, 0xbf802000u},
        {0x3ffff000u, 0x40000000u}, {0x00000fffu, 0x00000000u}, {0x80000000u, 0x80000000u},
        {0x7f7fffffu, 0x7f800000u}, {0x7f800000u, 0x7f800000u}, {0xff800000u, 0xff800000u},
        {0x7f800001u, 0x7fffffffu}, {0xffc00000u, 0x7fffffffu}, {0x7fffffffu, 0x7fffffffu}};
    const int n = sizeof cases / sizeof *cases;
    unsigned from[n], got[n], *device;
    for (int i = 0; i < n; i++) from[i] = cases[i][0];
    cudaMalloc(&device, 2 * sizeof from);
    cudaMemcpy(device, from, sizeof from, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(n);
    const auto kernel = round_all;
    kernel<<<grid, block, 0, 0>>>(device, device + n);
    cudaMemcpy(got, device + n, sizeof got, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) expect(got[i] == cases[i][1], "rounding to TF32", 0, i);
    cudaFree(device);
}

int main() {
    check_rounding();
    check_loads<float>("TF32, terms together", true);
    check_loads<float>("TF32, lines together", false);
    check_loads<__half>("halves, terms together", true);
    check_loads<__half>("halves, lines together", false);
    check_product<float>("product of TF32");
    check_product<__half>("product of halves");
    if (cudaGetLastError() != cudaSuccess) failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
