//@key rows  whether some loads are added up along their rows
//@key half  whether halves are multiplied
//@key tf32  whether f32 values are, rounded to TF32
// Tiles that warpgroups multiply: 128 threads together, asynchronously, factors straight from
// shared memory (PTX ISA, wgmma). Devices of compute capability 9.0 have that, in code compiled for
// sm_90a; compiled for others the same tile is multiplied by warps, which takes longer.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1
// A warpgroup's sums, c[..][4] a thread, from column 8 j on; and their names in the instruction.
#define SUMS_8(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define SUMS_32(c, j) SUMS_8(c, j), SUMS_8(c, j + 1), SUMS_8(c, j + 2), SUMS_8(c, j + 3)
#define SUMS_64(c, j) SUMS_32(c, j), SUMS_32(c, j + 4)
#define SUMS_96(c, j) SUMS_64(c, j), SUMS_32(c, j + 8)
#define SUMS_128(c, j) SUMS_64(c, j), SUMS_64(c, j + 8)
#define NAMES_64                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_96 \
    NAMES_64     \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_128                                                                             \
    NAMES_64                                                                                  \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
    "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_192                                                                        \
    NAMES_128                                                                            \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_256                                                                          \
    NAMES_192                                                                              \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
    "%124, %125, %126, %127"
//@if half
// c += A B for 64 rows, N columns and 16 terms; A, B and so on are the operands' numbers. Of a
// factor whose rows in shared memory are terms of lines (ACROSS) the instruction is told so.
template <int N>
struct warpgroup_product;
#define WARPGROUP_PRODUCT(N, NAMES, A, B, ACROSS_A, ACROSS_B, ...)                             \
    template <>                                                                                \
    struct warpgroup_product<N> {                                                              \
        template <bool A_ACROSS, bool B_ACROSS>                                                \
        static __device__ __forceinline__ void add(float (&c)[N / 8][4], unsigned long long a, \
                                                   unsigned long long b) {                     \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" NAMES      \
                         "}, %" #A ", %" #B ", 1, 1, 1, %" #ACROSS_A ", %" #ACROSS_B ";"       \
                         : __VA_ARGS__                                                         \
                         : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));                      \
        }                                                                                      \
    };
WARPGROUP_PRODUCT(64, NAMES_64, 32, 33, 34, 35, SUMS_64(c, 0))
WARPGROUP_PRODUCT(96, NAMES_96, 48, 49, 50, 51, SUMS_96(c, 0))
WARPGROUP_PRODUCT(128, NAMES_128, 64, 65, 66, 67, SUMS_128(c, 0))
WARPGROUP_PRODUCT(192, NAMES_192, 96, 97, 98, 99, SUMS_128(c, 0), SUMS_64(c, 16))
WARPGROUP_PRODUCT(256, NAMES_256, 128, 129, 130, 131, SUMS_128(c, 0), SUMS_128(c, 16))
//@end
//@if tf32
// c += A B for 64 rows, N columns and 8 terms: of f32 values whose last 13 bits nobody reads. A is
// in registers, where it can be rounded, each warp's 16 rows as mma has them (A to D are the
// operands' numbers, E the second factor's).
template <int N>
struct warpgroup_rounded_product;
#define WARPGROUP_ROUNDED_PRODUCT(N, NAMES, A, B, C, D, E, ...)                                  \
    template <>                                                                                  \
    struct warpgroup_rounded_product<N> {                                                        \
        static __device__ __forceinline__ void add(float (&c)[N / 8][4], const unsigned (&a)[4], \
                                                   unsigned long long b) {                       \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" NAMES       \
                         "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", 1, 1, 1;"            \
                         : __VA_ARGS__                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                  \
        }                                                                                        \
    };
WARPGROUP_ROUNDED_PRODUCT(64, NAMES_64, 32, 33, 34, 35, 36, SUMS_64(c, 0))
WARPGROUP_ROUNDED_PRODUCT(96, NAMES_96, 48, 49, 50, 51, 52, SUMS_96(c, 0))
WARPGROUP_ROUNDED_PRODUCT(128, NAMES_128, 64, 65, 66, 67, 68, SUMS_128(c, 0))
WARPGROUP_ROUNDED_PRODUCT(192, NAMES_192, 96, 97, 98, 99, 100, SUMS_128(c, 0), SUMS_64(c, 16))
WARPGROUP_ROUNDED_PRODUCT(256, NAMES_256, 128, 129, 130, 131, 132, SUMS_128(c, 0), SUMS_128(c, 16))
//@end

// Where the instruction finds lines of a factor in shared memory: rows of ROW bytes, eight of them
// with their chunks exchanged as tile_place has it, the next eight behind them; where rows are
// terms of lines, the next lines `panel` bytes further on.
template <unsigned ROW>
static __device__ __forceinline__ unsigned long long warpgroup_factor(unsigned at, unsigned panel) {
    static_assert(ROW == 128 || ROW == 64, "chunks of whole or half rows of the banks");
    const unsigned long long swizzled = (ROW == 128 ? 1ull : 2ull) << 62, rows = 8u * ROW >> 4;
    return swizzled | rows << 32 | static_cast<unsigned long long>(panel >> 4) << 16 | at >> 4;
}
// What is copied to shared memory is there for the instruction.
static __device__ __forceinline__ void publish_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// What makes a product's registers is in front of this, and what takes them behind it: compilers
// know no order of the two.
template <int N>
static __device__ __forceinline__ void settle(float (&c)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]));
}
//@if tf32
template <int N>
static __device__ __forceinline__ void settle(unsigned (&q)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(q[i][0]), "+r"(q[i][1]), "+r"(q[i][2]), "+r"(q[i][3]));
}
//@end
template <int N>
static __device__ __forceinline__ void begin_products(float (&c)[N][4]) {
    settle(c);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all products but those of the last N steps are added.
template <int N>
static __device__ __forceinline__ void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
#else
#define WARPGROUPS 0
#endif

// Whether loads say where whole vectors lie, which copies take.
template <typename LOADED>
struct lies_whole {
    static const bool value = false;
};
template <typename V>
struct lies_whole<fetched<V>> {
    static const bool value = sizeof(V) == 16;
};

// 128 rows by BN columns of a product, KC terms of 128 bytes a step, of which STAGES have room;
// each of two warpgroups has 64 rows. While a step is multiplied the next ones are copied, to where
// the one before it was. A thread stores V neighbouring columns at once, its neighbours the next.
template <typename T, int BM, int BN, int KC, int STAGES, int V>
struct warpgroup_tile : tensor_tile<T, BM, BN, KC, 1, BM / 8, BN, STAGES, V, true> {
    typedef tensor_tile<T, BM, BN, KC, 1, BM / 8, BN, STAGES, V, true> tile;
    typedef typename tile::tile_products tile_products;
    static const int SIDE = BN & -BN, ACROSS = SIDE / V;  // threads along a row
    static const int RM = BM * ACROSS / 256, RN = BN / SIDE * V, AHEAD = STAGES - 1;

    static __device__ unsigned row(int i, unsigned t) { return t / ACROSS + 256 / ACROSS * i; }
    static __device__ unsigned column(int j, unsigned t) {
        return t % ACROSS * V + j % V + j / V * SIDE;
    }
    static __device__ unsigned row(int i) { return row(i, threadIdx.x); }
    static __device__ unsigned column(int j) { return column(j, threadIdx.x); }

    // What a thread stores of the sums, which pass through shared memory.
    __device__ __forceinline__ void finish(const tile_products &own, float (&acc)[RM][RN]) {
        static_assert(BM * (BN + 8) * 4 <= int(sizeof(tile)), "the steps' memory has room");
        float *const sums = reinterpret_cast<float *>(this->bytes);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < BN / 4; e++) {
            const unsigned m = tile::top() + e % 2 * 8 + threadIdx.x % 32u / 4u,
                           n = e / 2 * 8 + threadIdx.x % 4u * 2;
            *reinterpret_cast<float2 *>(sums + m * (BN + 8) + n) =
                make_float2(own.c[0][e / 2][e % 2 * 2], own.c[0][e / 2][e % 2 * 2 + 1]);
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < RM * RN; e += V) {
            const float *const from = sums + row(e / RN) * (BN + 8) + column(e % RN);
            float *const to = acc[e / RN] + e % RN;
            if (V == 4) {
                const float4 v = *reinterpret_cast<const float4 *>(from);
                to[0] = v.x, to[1 % V] = v.y, to[2 % V] = v.z, to[3 % V] = v.w;
            } else {
#pragma unroll
                for (int j = 0; j < V; j++) to[j] = from[j];
            }
        }
    }

#if WARPGROUPS
    //@if half
    template <bool ALONG_A, bool ALONG_B>
    struct step_places {
        static const unsigned ROW_A = tile_place<T, BM, KC, ALONG_A>::C * sizeof(T),
                              ROW_B = tile_place<T, BN, KC, ALONG_B>::C * sizeof(T);
        unsigned a, b;

        __device__ __forceinline__ explicit step_places(warpgroup_tile &t)
            : a(shared_address(t.factor(0, 0)) + threadIdx.x / 128u * (KC * ROW_A)),
              b(shared_address(t.factor(0, 1))) {}
        template <typename A>
        __device__ __forceinline__ void add(warpgroup_tile &, int stage, const A &,
                                            tile_products &to) const {
            const unsigned at = stage * (tile::SIZE * int(sizeof(T)));
            begin_products(to.c[0]);
#pragma unroll
            for (unsigned s = 0; s < KC / 16; s++)
                warpgroup_product<BN>::template add<!ALONG_A, !ALONG_B>(
                    to.c[0],
                    warpgroup_factor<ROW_A>(a + at + s * (ALONG_A ? 32u : 16u * ROW_A), KC * ROW_A),
                    warpgroup_factor<ROW_B>(b + at + s * (ALONG_B ? 32u : 16u * ROW_B),
                                            KC * ROW_B));
            end_products();
        }
        template <int N>
        static __device__ __forceinline__ void await() {
            await_products<N>();
        }
        static __device__ __forceinline__ void publish() { publish_copies(); }
    };
    //@end
    //@if tf32
    // A step's fragments of the first factor, rounded. The second one is weights, which create has
    // rounded, as lines of terms.
    struct step_rows {
        unsigned q[KC / tile::KS][4];
    };
    template <bool ALONG_A>
    struct rounded_places {
        lane_places<T, BM, KC, ALONG_A, false, BM / 8, KC> a;
        unsigned b;

        __device__ __forceinline__ explicit rounded_places(warpgroup_tile &t)
            : a(tile::top(), 0u), b(shared_address(t.factor(0, 1))) {}
        template <typename A>
        __device__ __forceinline__ void get(warpgroup_tile &t, int stage, const A &load_a,
                                            step_rows &x) const {
#pragma unroll
            for (int s = 0; s < KC / tile::KS; s++) {
                a.fragment(x.q[s], t.factor(stage, 0), 0, s);
                //@if rows
                take_rows(load_a, x.q[s], 0);
                //@end
                tensor_type<T>::round_words(x.q[s]);
            }
        }
        __device__ __forceinline__ void add(int stage, step_rows &x, tile_products &to) const {
            const unsigned ROW = KC * sizeof(T), at = b + stage * (tile::SIZE * sizeof(T));
            settle(x.q);
            begin_products(to.c[0]);
#pragma unroll
            for (unsigned s = 0; s < KC / tile::KS; s++)
                warpgroup_rounded_product<BN>::add(to.c[0], x.q[s],
                                                   warpgroup_factor<ROW>(at + s * 32u, KC * ROW));
            end_products();
        }
    };
    //@end
#else
    template <bool ALONG_A, bool ALONG_B>
    struct step_places {
        lane_places<T, BM, KC, ALONG_A, false, BM / 8, KC> a;
        lane_places<T, BN, KC, ALONG_B, true, BN, KC> b;

        __device__ __forceinline__ explicit step_places(warpgroup_tile &)
            : a(tile::top(), 0u), b(0u, 0u) {}
        template <typename A>
        __device__ __forceinline__ void add(warpgroup_tile &t, int stage, const A &load_a,
                                            tile_products &to) const {
#pragma unroll
            for (int s = 0; s < KC / tile::KS; s++) {
                unsigned x[4];
                a.fragment(x, t.factor(stage, 0), 0, s);
                //@if rows
                if (sizeof(T) == 4) take_rows(load_a, x, 0);
                //@end
                tensor_type<T>::round_words(x);
#pragma unroll
                for (int j = 0; j < BN / 16; j++) {
                    unsigned y[4];
                    b.fragment(y, t.factor(stage, 1), j, s);
                    tensor_type<T>::multiply_add(to.c[0][2 * j], x, y[0], y[1]);
                    tensor_type<T>::multiply_add(to.c[0][2 * j + 1], x, y[2], y[3]);
                }
            }
        }
        template <int N>
        static __device__ __forceinline__ void await() {}
        static __device__ __forceinline__ void publish() {}
    };
#endif

    //@if rows
    // Sums along the rows of the first factor: of f32 values as tensor_tile has them, of fragments.
    template <typename FROM, int BYTES>
    struct sums_of_rows : tile::template row_sums<FROM> {
        __device__ __forceinline__ explicit sums_of_rows(const FROM &f)
            : tile::template row_sums<FROM>(f) {}
        __device__ __forceinline__ void take_step(const T *) {}
    };
    // Of halves, which no thread has in registers, two threads have half of a line each that a step
    // has in shared memory. Nothing is subtracted from lines that are multiplied there.
    template <typename FROM>
    struct sums_of_rows<FROM, 2> {
        float sum[1], square[1];

        __device__ __forceinline__ explicit sums_of_rows(unshifted) : sum(), square() {}
        static __device__ unsigned line() { return threadIdx.x / 2u; }
        __device__ __forceinline__ void begin() {}
        __device__ __forceinline__ void take(unsigned (&)[4], int) {}
        __device__ __forceinline__ void take_step(const T *rows) {
            const tile_place<T, BM, KC, true> place(line(), threadIdx.x % 2u * (KC / 2));
#pragma unroll
            for (unsigned i = 0; i < KC / 2; i += 16 / sizeof(T)) {
                const uint4 v = *reinterpret_cast<const uint4 *>(rows + place(0u, i));
                const unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int k = 0; k < 4; k++) tensor_type<T>::add(w[k], sum[0], square[0]);
            }
        }
        static __device__ __forceinline__ void total(const float (&v)[1], float (&to)[BM][1]) {
            const float s = v[0] + __shfl_xor_sync(0xffffffffu, v[0], 1);
            if (threadIdx.x % 2u == 0u) to[line()][0] = s;
        }
        static __device__ __forceinline__ float of(const float (&from)[BM][1], unsigned line) {
            return from[line][0];
        }
    };
    template <typename FROM>
    using row_sums = sums_of_rows<FROM, sizeof(T)>;

    //@end
    template <typename F>
    static __device__ __forceinline__ void copy(F &feed, T *to, unsigned k0, unsigned until) {
        if (k0 < until) feed.copy(to, k0);
        feed.move();
    }

    template <int BYTES>
    struct element_bytes {};

    // The steps' products, the first steps on their way: while one is multiplied the next ones are
    // copied, to where the one before it was.
#if WARPGROUPS
    //@if tf32
    // The copies of all steps but the last N are there for everybody.
    template <int N>
    static __device__ __forceinline__ void show_step() {
        await_steps<N>();
        publish_copies();
        __syncthreads();
    }
    // Where no other block has room on an SM, rows of a step are fetched while the step before is
    // multiplied, else while the other block's are.
    static const bool ALONE = sizeof(tile) > 113u << 10;
    template <bool ALONG_A, bool ALONG_B, typename FA, typename FB, typename A>
    __device__ __forceinline__ void add_steps(element_bytes<4>, FA &a, FB &b, A load_a,
                                              unsigned from, unsigned until, tile_products &to) {
        static_assert(ALONG_B, "the instruction has no other order of TF32");
        const rounded_places<ALONG_A> places(*this);
        step_rows x, y = {};
        int stage = 0, next = AHEAD;
        if (ALONE) show_step<AHEAD - 1>();
        if (ALONE) places.get(*this, 0, load_a, x);
#pragma unroll 1
        for (unsigned k0 = from; k0 < until; k0 += KC) {
            if (!ALONE) show_step<AHEAD - 1>();
            if (!ALONE) places.get(*this, stage, load_a, x);
            places.add(stage, x, to);
            // All have multiplied the step before, too.
            if (ALONE) show_step<AHEAD - 2>();
            copy(a, this->factor(next, 0), k0 + AHEAD * KC, until);
            copy(b, this->factor(next, 1), k0 + AHEAD * KC, until);
            end_step();
            next = stage;
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            if (ALONE && k0 + KC < until) places.get(*this, stage, load_a, y);
            await_products<0>();
            settle(x.q);
            if (ALONE) x = y;
        }
    }
    //@end
#endif
    template <bool ALONG_A, bool ALONG_B, int BYTES, typename FA, typename FB, typename A>
    __device__ __forceinline__ void add_steps(element_bytes<BYTES>, FA &a, FB &b, A load_a,
                                              unsigned from, unsigned until, tile_products &to) {
        const step_places<ALONG_A, ALONG_B> places(*this);
        int stage = 0, next = AHEAD;
#pragma unroll 1
        for (unsigned k0 = from; k0 < until; k0 += KC) {
            await_steps<AHEAD - 1>();
            places.publish();
            __syncthreads();
            places.add(*this, stage, load_a, to);
            places.template await<1>();
            // All have multiplied the step before.
            __syncthreads();
            copy(a, this->factor(next, 0), k0 + AHEAD * KC, until);
            copy(b, this->factor(next, 1), k0 + AHEAD * KC, until);
            end_step();
            //@if rows
            take_step(load_a, this->factor(stage, 0));
            //@end
            next = stage;
            stage = stage + 1 < STAGES ? stage + 1 : 0;
        }
        places.template await<0>();
    }

    // As tensor_tile has it.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned from, unsigned until, A load_a, B load_b,
                                             bool next_early, tile_products &to) {
        static_assert(lies_whole<decltype(load_a(0u, from))>::value &&
                          lies_whole<decltype(load_b(0u, from))>::value,
                      "nothing but copies brings factors here");
        tensor_feed<T, BM, KC, ALONG_A, decltype(load_a(0u, from)), A> a(load_a);
        tensor_feed<T, BN, KC, ALONG_B, decltype(load_b(0u, from)), B> b(load_b);
        if (EARLY == 1) a.begin(from);
        if (EARLY == 2) b.begin(from);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            if (EARLY == 1) copy(a, this->factor(n, 0), from + n * KC, until);
            if (EARLY == 2) copy(b, this->factor(n, 1), from + n * KC, until);
        }
        await_previous(next_early);
        if (EARLY != 1) a.begin(from);
        if (EARLY != 2) b.begin(from);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            if (EARLY != 1) copy(a, this->factor(n, 0), from + n * KC, until);
            if (EARLY != 2) copy(b, this->factor(n, 1), from + n * KC, until);
            end_step();
        }
        //@if rows
        begin_rows(load_a);
        //@end
        add_steps<ALONG_A, ALONG_B>(element_bytes<sizeof(T)>(), a, b, load_a, from, until, to);
#if WARPGROUPS
        settle(to.c[0]);
#endif
    }
};
//@if tf32

// Weights that are multiplied so, in the place where create has them.
static __global__ void round_weights(float *w, unsigned long long n, bool next_early) {
    await_previous(next_early);
    const unsigned long long all = 1ull * blockDim.x * gridDim.x;
    for (unsigned long long i = 1ull * blockDim.x * blockIdx.x + threadIdx.x; i < n; i += all)
        w[i] = tensor_type<float>::rounded(w[i]);
}
//@end
