//@key rows  whether some loads are added up along their rows
// BM rows by BN columns of a product, KC terms a step; 256 threads in PARTS groups that share the
// terms. A thread has RM rows, and RN columns of which V lie together.
template <int BM, int BN, int KC, int PARTS, int RM, int RN, int V>
struct product_tile {
    __align__(16) float a[2][KC][BM + 4];
    __align__(16) float b[2][KC][BN + 4];

    static __device__ unsigned part() { return threadIdx.x / (256 / PARTS); }
    static __device__ unsigned top() { return threadIdx.x / (BN / RN) % (BM / RM) * RM; }
    // Row i and column j of those that a thread stores, RM / PARTS by RN.
    static __device__ unsigned row(int i) { return top() + part() * (RM / PARTS) + i; }
    static __device__ unsigned column(int j) {
        return threadIdx.x % (BN / RN) * V + j % V + j / V * (BN / RN * V);
    }

    // What lines of term k are exchanged by, so that terms of a few lines go to different banks.
    static __device__ unsigned turned(unsigned k) { return KC > 16 ? k / 8u * 4u % 16u : 0u; }

    // Element e of a step is term e % KC of line e / KC, or (not ALONG) line e % B of term e / B.
    template <bool ALONG, int B>
    static __device__ void put(float (*to)[B + 4], unsigned e, float v) {
        const unsigned k = ALONG ? e % KC : e / B;
        to[k][(ALONG ? e / KC : e % B) ^ turned(k)] = v;
    }
    template <bool ALONG, int B>
    static __device__ void put(float (*to)[B + 4], unsigned e, float4 v) {
        const float w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (unsigned i = 0; i < 4u; i++) put<ALONG, B>(to, e * 4u + i, w[i]);
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
            for (int j = 0; j < RN; j++) y[j] = b[turn][t][(column(j / V * V) ^ other) + j % V];
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

    // load_a(e, k0) gives element (or four) e of the step from term k0 on. While a step is
    // multiplied, the next one's are on their way. What the kernel before cannot have written, the
    // first (EARLY 1) or the second factor (2), is before that one is over.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned terms, A load_a, B load_b,
                                             float (&acc)[RM][RN]) {
        decltype(load_a(0u, terms)) va[BM * KC / 64 / sizeof load_a(0u, terms)];
        decltype(load_b(0u, terms)) vb[BN * KC / 64 / sizeof load_b(0u, terms)];
        const unsigned na = sizeof va / sizeof *va, nb = sizeof vb / sizeof *vb, e = threadIdx.x;
        int turn = 0;
        for (unsigned k0 = 0;; k0 += KC, turn ^= 1) {
            //@if rows
            if (k0 > 0) {
#pragma unroll
                for (unsigned i = 0; i < na; i++) loaded(load_a, static_cast<int>(i), va[i]);
            }
            //@end
#pragma unroll
            for (unsigned i = 0; i < nb && EARLY == 2 && k0 < terms; i++)
                vb[i] = load_b(e + 256u * i, k0);
            if (EARLY != 1 && k0 == 0) await_previous();
#pragma unroll
            for (unsigned i = 0; i < na && k0 < terms; i++) va[i] = load_a(e + 256u * i, k0);
            if (EARLY == 1 && k0 == 0) await_previous();
#pragma unroll
            for (unsigned i = 0; i < nb && EARLY != 2 && k0 < terms; i++)
                vb[i] = load_b(e + 256u * i, k0);
            if (k0 > 0) step(turn ^ 1, acc);
            if (k0 >= terms) break;
#pragma unroll
            for (unsigned i = 0; i < na; i++) put<ALONG_A, BM>(a[turn], e + 256u * i, va[i]);
#pragma unroll
            for (unsigned i = 0; i < nb; i++) put<ALONG_B, BN>(b[turn], e + 256u * i, vb[i]);
            __syncthreads();
        }
        if (PARTS > 1) sum(acc);
    }
};
