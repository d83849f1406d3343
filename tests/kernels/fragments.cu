// Which lane holds what, register by register as the PTX manual has it for mma.m16n8k8 (TF32) and
// mma.m16n8k16 (halves): the fragments that templates/mma.cu loads, of both ways in which a factor
// lies in shared memory, and what it makes of fragments that are filled in here; how it rounds;
// that tiles of templates/tiles_mma.cu have no conflicts of banks; and how far
// templates/half_erf.cu is from erf. tests/kernels/run has it run by the judge, and what nvcc makes
// of it for three architectures by the judge's interpreter.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cuda_pipeline_primitives.h>
#include <stdio.h>
#include <string.h>

#include "../../templates/await.cu"
#include "../../templates/half_erf.cu"
#include "../../templates/mma.cu"
#include "../../templates/tiles_loads.cu"
#include "../../templates/tiles_rows.cu"
#include "../../templates/tiles.cu"
#include "../../templates/tiles_async.cu"
#include "../../templates/tiles_mma.cu"

enum { TERMS = 16 };  // of halves; TF32 has the first 8

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

// A fragment from (row, column) on of 32 rows of C elements, as tiles have them in shared memory.
template <typename T, bool ALONG, bool B, int C>
static __global__ void load(const T *rows, unsigned row, unsigned column, unsigned *to) {
    typedef tile_place<T, ALONG ? 32 : C, ALONG ? C : 32, ALONG> place;
    __shared__ __align__(16) T s[32 * C];
    for (unsigned i = threadIdx.x; i < 32u * C; i += 32u) s[place(0u, 0u)(i / C, i % C)] = rows[i];
    __syncthreads();
    unsigned q[4];
    typedef tensor_type<T> type;
    const place at(ALONG ? row : column, ALONG ? column : row);
    const unsigned r = type::template row<ALONG, B>(), c = type::template column<ALONG, B>();
    type::template fragment<ALONG, B>(q, s, at(r, c), at(r, c + 8u), 4u * C);
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

// Of the second factor (B), registers 0 and 1 are operand B of lines 0 to 7, 2 and 3 of the others.
template <typename T, bool ALONG, bool B, int C>
static void check_load(const char *name, int row, int column) {
    const int words = 4 / (int)sizeof(T);
    static T rows[32 * C];
    T *device;
    unsigned q[128], *got;
    for (int i = 0; i < 32 * C; i++) rows[i] = as<T>(value(i));
    cudaMalloc(&device, sizeof rows);
    cudaMalloc(&got, sizeof q);
    cudaMemcpy(device, rows, sizeof rows, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(32);
    const auto kernel = load<T, ALONG, B, C>;
    kernel<<<grid, block, 0, 0>>>(device, (unsigned)row, (unsigned)column, got);
    cudaMemcpy(q, got, sizeof q, cudaMemcpyDeviceToHost);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4 * words; i++) {
            T element;
            memcpy(&element, (const char *)&q[lane * 4] + i * sizeof(T), sizeof element);
            const int of_b = lane / 4 + i / words / 2 * 8;
            const int line = B ? of_b : manual<T>::row(lane, i),
                      k = B ? manual<T>::term_b(lane, i % (2 * words)) : manual<T>::term(lane, i);
            const int at = (row + (ALONG ? line : k)) * C + column + (ALONG ? k : line);
            expect(back(element) == value(at), name, lane, i);
        }
    cudaFree(device);
    cudaFree(got);
}

template <typename T, bool B>
static void check_loads(const char *name) {
    check_load<T, true, B, 16>(name, 0, 0);
    check_load<T, true, B, 16>(name, 16, 0);
    check_load<T, true, B, 32>(name, 16, 16);
    check_load<T, true, B, 64>(name, 0, 48);
    check_load<T, true, B, 128>(name, 16, 80);
    check_load<T, false, B, 16>(name, 8, 0);
    check_load<T, false, B, 32>(name, 16, 16);
    check_load<T, false, B, 64>(name, 0, 32);
    check_load<T, false, B, 128>(name, 8, 96);
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

static __global__ void round_all(const unsigned *from, unsigned *to, unsigned *even) {
    const unsigned i = threadIdx.x;
    unsigned q[4] = {from[i], from[i], from[i], from[i]};
    to[i] = __float_as_uint(tensor_type<float>::rounded(__uint_as_float(from[i])));
    tensor_type<float>::round_words(q);
    to[blockDim.x + i] = q[i % 4u];
    *even = ROUNDS_TF32;
}

// What cvt.rna.tf32.f32, or cvt.rn, makes of a number, with the 13 bits that a product does not
// read: ties go away from zero, or to even, a NaN stays one whatever it carries, infinities and
// zeros stay as they are. Without cvt.rn a fragment's NaN stays as it is, and one by what its first
// bits carry.
static void check_rounding() {
    static const unsigned cases[][3] = {
        {0x3f800fffu, 0x3f800000u, 0x3f800000u}, {0x3f801000u, 0x3f802000u, 0x3f800000u},
        {0xbf801000u, 0xbf802000u, 0xbf800000u}, {0x3f803000u, 0x3f804000u, 0x3f804000u},
        {0x3f801001u, 0x3f802000u, 0x3f802000u}, {0x3ffff000u, 0x40000000u, 0x40000000u},
        {0x00000fffu, 0x00000000u, 0x00000000u}, {0x80000000u, 0x80000000u, 0x80000000u},
        {0x7f7fffffu, 0x7f800000u, 0x7f800000u}, {0x7f800000u, 0x7f800000u, 0x7f800000u},
        {0xff800000u, 0xff800000u, 0xff800000u}, {0x7f800001u, 0x7fffffffu, 0x7fffffffu},
        {0xffc00000u, 0x7fffffffu, 0x7fffffffu}, {0x7fffffffu, 0x7fffffffu, 0x7fffffffu}};
    const int n = sizeof cases / sizeof *cases;
    unsigned from[n], got[2 * n + 1], *device;
    for (int i = 0; i < n; i++) from[i] = cases[i][0];
    cudaMalloc(&device, sizeof from + sizeof got);
    cudaMemcpy(device, from, sizeof from, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(n);
    const auto kernel = round_all;
    kernel<<<grid, block, 0, 0>>>(device, device + n, device + 3 * n);
    cudaMemcpy(got, device + n, sizeof got, cudaMemcpyDeviceToHost);
    const bool even = got[2 * n] != 0u;
    for (int i = 0; i < n; i++) {
        expect(got[i] == cases[i][even ? 2 : 1], "rounding to TF32", 0, i);
        const bool nan = (from[i] & 0x7fffffffu) > 0x7f800000u;
        const unsigned want = nan && !even ? from[i] : cases[i][even ? 2 : 1];
        expect(got[n + i] >> 13 == want >> 13, "rounding of fragments", 0, i);
    }
    cudaFree(device);
}

// Where the threads of a tile read in a term's rows and columns, and which of these they have.
template <typename TILE, int RM, int RN>
static __global__ void read_places(unsigned *to) {
    unsigned *const own = to + threadIdx.x * (2 + RM + RN);
    own[0] = TILE::top();
    own[1] = TILE::across() * 4u;
    for (int i = 0; i < RM; i++) own[2 + i] = TILE::top() + i;
    for (int j = 0; j < RN; j++)
        own[2 + RM + j] = TILE::column(j) << 16 | TILE::place(TILE::column(j));
}

// A warp reads four words a thread in two cycles where all neighbours, or all threads two apart,
// read the same, and the threads of either half read different banks else. Every element of the
// tile has one thread in each part, and its column lies where that thread reads.
template <int BM, int BN, int KC, int PARTS, int RM, int RN, int V>
static void check_reads(const char *name) {
    typedef product_tile<BM, BN, KC, PARTS, RM, RN, V> tile;
    const int size = 2 + RM + RN;
    static unsigned got[256 * size];
    static int seen[BM][BN];
    unsigned *device;
    cudaMalloc(&device, sizeof got);
    const dim3 grid(1), block(256);
    const auto kernel = read_places<tile, RM, RN>;
    kernel<<<grid, block, 0, 0>>>(device);
    cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost);
    for (int factor = 0; factor < 2; factor++)
        for (int half = 0; half < 256; half += 16) {
            bool one = true, two = true, apart = true;
            for (int i = half; i < half + 16; i++) {
                const unsigned at = got[i * size + factor];
                one &= at == got[(i ^ 1) * size + factor];
                two &= at == got[(i ^ 2) * size + factor];
                for (int j = half; j < i; j++) {
                    const unsigned other = got[j * size + factor];
                    apart &= at == other || at % 32u != other % 32u;
                }
            }
            expect((one || two) && apart, name, factor, half);
        }
    memset(seen, 0, sizeof seen);
    for (int t = 0; t < 256; t++)
        for (int e = 0; e < RM * RN; e++) {
            const int j = e % RN;
            const unsigned *own = got + t * size;
            seen[own[2 + e / RN]][own[2 + RM + j] >> 16]++;
            const unsigned at = own[1] + j / 4 * (BN / RN * 4) + j % 4;
            if (e < RN) expect((own[2 + RM + j] & 0xffffu) == at, name, t, j);
        }
    bool all = true;
    for (int e = 0; e < BM * BN; e++) all &= seen[e / BN][e % BN] == PARTS;
    expect(all, name, BM, BN);
    cudaFree(device);
}

// Device functions that the judge alone lets the host call, in the place of any thread.
#ifdef EIN_JUDGE

// What fills 16 bytes of a tile.
// Times that shared memory takes for the words of n lanes, `words` neighbours from at[i] on each:
// of one of its 32 banks it gives one word at a time, whoever wants it. 16 bytes a lane are the
// business of 8 lanes at once.
static int times(const unsigned *at, int n, int words) {
    int most = 0;
    for (int bank = 0; bank < 32; bank++) {
        unsigned of[32];
        int found = 0;
        for (int i = 0; i < n; i++)
            for (unsigned w = at[i]; w < at[i] + words; w++) {
                bool known = w % 32 != (unsigned)bank;
                for (int k = 0; k < found; k++) known |= of[k] == w;
                if (!known) of[found++] = w;
            }
        most = found > most ? found : most;
    }
    return most;
}

// A thread's vectors of W elements lie where the tile has them.
template <typename T, int B, int KC, bool ALONG, int W>
static void check_vectors(const char *name) {
    const int C = ALONG ? KC : B;
    const tile_place<T, B, KC, ALONG> place(0u, 0u);
    const uint3 before = threadIdx;
    for (unsigned t = 0; t < 256u; t += 5u) {
        threadIdx.x = t;
        const vector_places<T, B, KC, ALONG, W> vectors;
        for (int i = 0; i < B * KC / 256 / W; i++) {
            const int e = ((int)t + 256 * i) * W;
            expect(vectors((unsigned)i) == place(e / C, e % C), name, (int)t, i);
        }
    }
    threadIdx = before;
}

// A tile of B lines and KC terms in shared memory: neither the fragments' lanes nor those that
// store 16 bytes want different words of one bank.
template <typename T, int B, int KC, bool ALONG>
static void check_banks(const char *name) {
    typedef vector_places<T, B, KC, ALONG, 16 / int(sizeof(T))> vectors;
    const int C = ALONG ? KC : B, R = ALONG ? B : KC, each = 4 / (int)sizeof(T);
    const tile_place<T, B, KC, ALONG> place(0u, 0u);
    const uint3 before = threadIdx;
    unsigned at[32];
    for (int first = 0; first < 256; first += 8) {
        for (unsigned i = 0; i < 8u; i++) {
            threadIdx.x = first + i;
            at[i] = vectors()(0u) / each;
            expect(at[i] % 4u == 0u, name, first, (int)i);
        }
        expect(times(at, 8, 4) == 1, name, first, 0);
    }
    threadIdx = before;
    check_vectors<T, B, KC, ALONG, 16 / int(sizeof(T))>(name);
    check_vectors<T, B, KC, ALONG, 1>(name);
    const int rows = ALONG ? 16 : sizeof(T) == 4 ? 8 : 16, columns = ALONG ? 8 * each : 16;
    for (int row = 0; row < R; row += rows)
        for (int column = 0; column < C; column += columns)
            for (int part = 0; part < 4; part++) {
                if (ALONG || sizeof(T) == 2) {
                    for (unsigned i = 0; i < 8u; i++)
                        at[i] = place(row + i + part % 2 * 8, column + part / 2 * 4 * each) / each;
                    expect(times(at, 8, 4) == 1, name, row, column);
                } else {
                    for (unsigned l = 0; l < 32u; l++)
                        at[l] = place(row + l % 4u + part / 2 * 4, column + l / 4u + part % 2 * 8);
                    expect(times(at, 32, 1) == 1, name, row, column);
                }
            }
}

// Of products without tensor cores: lanes that have four neighbouring terms each of some lines of B
// store one after the other, or 16 bytes at once where they have neighbouring lines. No more than
// `most` want different words of a bank, and all lies where the tile has it.
struct four_loads {
    float4 operator()(unsigned, unsigned) const { return make_float4(0.f, 0.f, 0.f, 0.f); }
};
template <int B, int KC, bool ALONG, int V>
static void check_words(const char *name, int most) {
    typedef product_tile<B, B, KC, 1, 4, B % 12 ? 4 : 12, V> tile;
    typedef typename tile::template feed<B, ALONG, true, float4, four_loads> feed;
    const uint3 before = threadIdx;
    const unsigned each = ALONG || V < 4 ? 1u : 4u, lanes = 32u / each;
    unsigned at[32];
    for (unsigned first = 0; first < 256u; first += lanes)
        for (unsigned i = 0; i < 4u; i += each) {
            for (unsigned l = 0; l < lanes; l++) {
                threadIdx.x = first + l;
                const feed f((four_loads()));
                at[l] = f.place(feed::term(i), feed::line(i));
                for (unsigned n = 0; n < feed::N; n++) {
                    const unsigned own = 1024u * n + i, e = threadIdx.x * 4u + own;
                    expect(f.place(feed::term(own), feed::line(own)) ==
                               feed::term(e) * (B + 4) + feed::line(e),
                           name, (int)threadIdx.x, (int)own);
                }
            }
            expect(times(at, (int)lanes, (int)each) <= most, name, (int)first, (int)i);
        }
    threadIdx = before;
}

static void check_stores() {
#define BANKS(T, B, KC)                                         \
    check_banks<T, B, KC, true>("banks of " #T " " #B "x" #KC); \
    check_banks<T, B, KC, false>("banks of " #T " " #KC "x" #B)
    BANKS(float, 128, 16);
    BANKS(float, 64, 16);
    BANKS(float, 64, 32);
    BANKS(float, 32, 32);
    BANKS(float, 32, 64);
    BANKS(float, 16, 64);
    BANKS(__half, 128, 32);
    BANKS(__half, 64, 32);
    BANKS(__half, 64, 64);
    BANKS(__half, 32, 64);
    BANKS(__half, 32, 128);
    BANKS(__half, 16, 128);
#define WORDS(B, KC, most, apart)                                                 \
    check_words<B, KC, true, 4>("terms of " #B "x" #KC, most);                    \
    check_words<B, KC, true, 1>("terms of " #B "x" #KC ", columns apart", apart); \
    check_words<B, KC, false, 4>("lines of " #KC "x" #B, B < 32 ? 2 : 1);         \
    check_words<B, KC, false, 1>("lines of " #KC "x" #B ", columns apart", 4)
    WORDS(192, 16, 1, 4);
    WORDS(128, 16, 1, 4);
    WORDS(96, 32, 1, 4);
    WORDS(64, 16, 1, 4);
    WORDS(64, 32, 1, 4);
    WORDS(32, 32, 1, 4);
    WORDS(64, 64, 2, 4);
    WORDS(32, 64, 2, 4);
    WORDS(16, 64, 2, 4);
}
#endif

static __global__ void erf_of(const float *x, float *y) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    y[i] = half_erf(x[i]);
}

// From -8 to 8, infinities, zeros, numbers that are hardly any, and none.
static void check_erf() {
    enum { N = 4096 };
    const float also[] = {INFINITY, -INFINITY, 0.f, -0.f, 1e-40f, -1e-30f, 3e38f, -1e4f, NAN};
    static float x[N], y[N];
    float *p, *q;
    for (int i = 0; i < N; i++) x[i] = float(i - N / 2) / (N / 16);
    memcpy(x, also, sizeof also);
    cudaMalloc(&p, sizeof x);
    cudaMalloc(&q, sizeof y);
    cudaMemcpy(p, x, sizeof x, cudaMemcpyHostToDevice);
    erf_of<<<N / 256, 256>>>(p, q);
    cudaMemcpy(y, q, sizeof y, cudaMemcpyDeviceToHost);
    cudaFree(p);
    cudaFree(q);
    for (int i = 0; i < N; i++) {
        const double apart = fabs(double(y[i]) - erf(double(x[i])));
        expect(x[i] != x[i] ? y[i] != y[i] : apart <= 7e-7 && !signbit(y[i]) == !signbit(x[i]),
               "erf for halves", i % 32, i);
    }
}

// `prog turing`: of PTX for sm_75, which has no products of TF32.
int main(int argc, char **) {
    check_rounding();
    check_erf();
    check_loads<float, false>("fragments of TF32");
    check_loads<float, true>("fragments of TF32, second factor");
    check_loads<__half, false>("fragments of halves");
    check_loads<__half, true>("fragments of halves, second factor");
#ifdef EIN_JUDGE
    check_stores();
#endif
#define READS(...)                                         \
    check_reads<__VA_ARGS__, 4>("reads of " #__VA_ARGS__); \
    check_reads<__VA_ARGS__, 1>("reads of " #__VA_ARGS__ ", columns apart")
    READS(128, 128, 16, 1, 8, 8);
    READS(64, 192, 16, 1, 4, 12);
    READS(64, 96, 32, 2, 4, 12);
    READS(64, 128, 16, 1, 4, 8);
    READS(64, 64, 16, 1, 4, 4);
    READS(64, 64, 32, 2, 8, 4);
    READS(32, 64, 32, 2, 4, 4);
    READS(32, 64, 32, 4, 8, 4);
    READS(32, 32, 32, 4, 4, 4);
    READS(16, 64, 64, 4, 4, 4);
    if (argc == 1) check_product<float>("product of TF32");
    check_product<__half>("product of halves");
    if (cudaGetLastError() != cudaSuccess) failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
