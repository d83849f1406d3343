//@key rows  whether some loads are added up along their rows
// What a load gives, or the first of four: an element of a step, of which row or column of the
// tile.
struct element {
    unsigned line, term;
};

// BM rows by BN columns of a product, KC terms a step; 256 threads in PARTS groups that share the
// terms. A thread has RM rows, and RN columns of which V lie together.
template <int BM, int BN, int KC, int PARTS, int RM, int RN, int V>
struct product_tile {
    __align__(16) float a[2][KC][BM + 4];
    __align__(16) float b[2][KC][BN + 4];

    static const unsigned ACROSS = BN / RN;  // threads along a row

    static __device__ unsigned part() { return threadIdx.x / (256 / PARTS); }
    // Neighbouring threads lie below each other in pairs: of two neighbours, and of two that are
    // two apart, either the rows or the columns agree. Shared memory then answers a warp that reads
    // four words a thread in two cycles, not four.
    static __device__ unsigned down() {
        return threadIdx.x / (2u * ACROSS) % (BM / RM / 2) * 2u + threadIdx.x % 2u;
    }
    static __device__ unsigned across() { return threadIdx.x / 2u % ACROSS; }
    static __device__ unsigned top() { return down() * RM; }
    // Row i and column j of those that a thread stores, RM / PARTS by RN.
    static __device__ unsigned row(int i) { return top() + part() * (RM / PARTS) + i; }
    static __device__ unsigned column(int j) { return across() * V + j % V + j / V * (ACROSS * V); }
    // Where column n of the tile lies, so that each four of a thread's lie together.
    static __device__ unsigned place(unsigned n) {
        const unsigned j = n / (ACROSS * V) * V + n % V;
        return V == 4 ? n : j / 4u * (ACROSS * 4u) + n / V % ACROSS * 4u + j % 4u;
    }

    // What lines of term k are exchanged by, so that terms of a few lines go to different banks.
    static __device__ unsigned turned(unsigned k) { return KC > 16 ? k / 8u * 4u % 16u : 0u; }

    // Element e of a step is term e % KC of line e / KC, or (not ALONG) line e % B of term e / B.
    // Lines are rows or (COLUMNS) columns.
    template <bool ALONG, bool COLUMNS, int B>
    static __device__ void put(float (&to)[KC][B + 4], unsigned e, float v) {
        const unsigned k = ALONG ? e % KC : e / B, line = ALONG ? e / KC : e % B;
        (&to[0][0])[k * (B + 4) + ((COLUMNS ? place(line) : line) ^ turned(k))] = v;
    }
    template <bool ALONG, bool COLUMNS, int B>
    static __device__ void put(float (&to)[KC][B + 4], unsigned e, float4 v) {
        const float w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (unsigned i = 0; i < 4u; i++) put<ALONG, COLUMNS, B>(to, e * 4u + i, w[i]);
    }

    // The thread's elements (or fours) threadIdx.x + 256 i of the step from term k0 on, by `get`.
    template <bool ALONG, int B, typename L, typename T, int N>
    static __device__ __forceinline__ void load(const L &get, unsigned k0, T (&v)[N]) {
        const unsigned wide = sizeof(T) / 4, run = (ALONG ? KC : B) / wide;
        const unsigned near = threadIdx.x % run * wide, far = threadIdx.x / run;
#pragma unroll
        for (unsigned i = 0; i < N; i++) {
            const unsigned next = far + i * (256u / run);
            v[i] = get(ALONG ? element{next, near} : element{near, next}, k0);
        }
    }
    template <bool ALONG, bool COLUMNS, int B, typename T, int N>
    static __device__ __forceinline__ void put(float (&to)[KC][B + 4], const T (&v)[N]) {
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            put<ALONG, COLUMNS, B>(to, threadIdx.x % 256u + 256u * i, v[i]);
    }

    // acc += the product of what was put at `turn`, over the thread's part of the terms.
    __device__ __forceinline__ void step(int turn, float (&acc)[RM][RN]) const {
#pragma unroll
        for (int k = 0; k < KC / PARTS; k++) {
            const unsigned t = part() * (KC / PARTS) + k, other = turned(t);
            float x[RM], y[RN];
#pragma unroll
            for (int i = 0; i < RM; i++) x[i] = a[turn][t][((top() + i / 4 * 4) ^ other) + i % 4];
#pragma unroll
            for (int j = 0; j < RN; j++)
                y[j] = b[turn][t][((across() + j / 4 * ACROSS) * 4u ^ other) + j % 4];
#pragma unroll
            for (int i = 0; i < RM * RN; i++) acc[i / RN][i % RN] += x[i / RN] * y[i % RN];
        }
    }

    // Adds up the groups' sums in order; a thread keeps the rows that it stores.
    __device__ __forceinline__ void sum(float (&acc)[RM][RN]) {
        float *sums = &a[0][0][0];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RM * RN; i++)
            sums[(part() * BM + top() + i / RN) * BN + column(i % RN)] = acc[i / RN][i % RN];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RM * RN / PARTS; i++) {
            float v = 0.f;
#pragma unroll
            for (int p = 0; p < PARTS; p++) v += sums[(p * BM + row(i / RN)) * BN + column(i % RN)];
            acc[i / RN][i % RN] = v;
        }
    }

    // The terms from `from` until `until`; load_a(e, k0) gives element (or four) e of the step from
    // term k0 on. While a step is multiplied, the next one's are on their way. What the kernel
    // before cannot have written, the first (EARLY 1) or the second factor (2), is before that one
    // is over.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned from, unsigned until, A load_a, B load_b,
                                             float (&acc)[RM][RN]) {
        typedef decltype(load_a(element(), from)) of_a;
        typedef decltype(load_b(element(), from)) of_b;
        of_a va[BM * KC / 64 / sizeof(of_a)];
        of_b vb[BN * KC / 64 / sizeof(of_b)];
        if (EARLY == 1) load<ALONG_A, BM>(load_a, from, va);
        if (EARLY == 2) load<ALONG_B, BN>(load_b, from, vb);
        await_previous();
        if (EARLY != 1) load<ALONG_A, BM>(load_a, from, va);
        if (EARLY != 2) load<ALONG_B, BN>(load_b, from, vb);
        int turn = 0;
        for (unsigned k0 = from; k0 < until; k0 += KC, turn ^= 1) {
            //@if rows
#pragma unroll
            for (int i = 0; i < BM * KC / 64 / int(sizeof(of_a)); i++) loaded(load_a, i, va[i]);
            //@end
            put<ALONG_A, false, BM>(a[turn], va);
            put<ALONG_B, true, BN>(b[turn], vb);
            // Begun before the barrier, where no compiler puts them behind the step.
            if (k0 + KC < until) {
                load<ALONG_A, BM>(load_a, k0 + KC, va);
                load<ALONG_B, BN>(load_b, k0 + KC, vb);
            }
            __syncthreads();
            step(turn, acc);
        }
        if (PARTS > 1) sum(acc);
    }
};
