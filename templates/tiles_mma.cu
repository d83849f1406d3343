//@key rows  whether some loads are added up along their rows
// BM rows by BN columns of a product, KC terms a step; 256 threads in PARTS groups that share the
// terms of a step. A warp has WM rows and WN columns. With two BUFFERS a step is stored while the
// one before is multiplied. A thread stores V neighbouring columns at once. A line of terms is
// followed by 16 unused bytes and a term of lines by 8 elements, so that the lanes of a fragment
// read from different banks.
template <typename T, int BM, int BN, int KC, int PARTS, int WM, int WN, int BUFFERS, int V>
struct tensor_tile {
    static const int KS = 32 / int(sizeof(T)), EDGE = 16 / int(sizeof(T));
    static const int SIZE_A = BM * KC + (BM * EDGE > 8 * KC ? BM * EDGE : 8 * KC);
    static const int SIZE_B = BN * KC + (BN * EDGE > 8 * KC ? BN * EDGE : 8 * KC);
    static const int STEPS = BUFFERS * (SIZE_A + SIZE_B) * int(sizeof(T));
    static const int SUMS = PARTS > 1 ? PARTS *BM *(BN + 8) * 4 : 0;
    // A thread's result.
    static const int RM = PARTS > 1 ? BM *BN / 256 / V : V > 1 ? WM / 16 : WM / 8;
    static const int RN = PARTS > 1 ? V : V > 1 ? WN / 2 : WN / 4;
    __align__(16) unsigned char bytes[STEPS > SUMS ? STEPS : SUMS];

    static __device__ unsigned lane() { return threadIdx.x % 32u; }
    static __device__ unsigned part() { return threadIdx.x / (256 / PARTS); }
    static __device__ unsigned top() { return threadIdx.x / 32u / (BN / WN) % (BM / WM) * WM; }
    static __device__ unsigned left() { return threadIdx.x / 32u % (BN / WN) * WN; }
    // Row i and column j of those that a thread stores. With V > 1 two lanes have exchanged what
    // they computed, so that four columns of a row lie together.
    static __device__ unsigned row(int i) {
        if (PARTS > 1) return (threadIdx.x + 256u * i) * V / BN;
        if (V > 1) return top() + 16 * i + lane() % 2u * 8 + lane() / 4u;
        return top() + i / 2 * 16 + i % 2 * 8 + lane() / 4u;
    }
    static __device__ unsigned column(int j) {
        if (PARTS > 1) return threadIdx.x * V % BN + j;
        if (V > 1) return left() + j / 4 * 8 + lane() % 4u / 2u * 4 + j % 4;
        return left() + j / 2 * 8 + lane() % 4u * 2 + j % 2;
    }

    template <bool ALONG, int B>
    static __device__ unsigned at(unsigned line, unsigned k) {
        return ALONG ? line * (KC + EDGE) + k : k * (B + 8) + line;
    }
    __device__ T *factor(int turn, int b) {
        return reinterpret_cast<T *>(bytes) + turn * (SIZE_A + SIZE_B) + b * SIZE_A;
    }

    // Vector e of a step begins at term e % KC of line e / KC, or (not ALONG) at line e % B of term
    // e / B, counted in elements.
    template <bool ALONG, int B, typename L>
    static __device__ __forceinline__ void put(T *to, unsigned e, L v) {
        typedef decltype(tensor_type<T>::rounded(v)) stored;
        e *= static_cast<unsigned>(sizeof(stored) / sizeof(T));
        const unsigned line = ALONG ? e / KC : e % B, k = ALONG ? e % KC : e / B;
        *reinterpret_cast<stored *>(to + at<ALONG, B>(line, k)) = tensor_type<T>::rounded(v);
    }

    // c += the product of what was put at `turn`, over the warp's part of the terms.
    template <bool ALONG_A, bool ALONG_B>
    __device__ __forceinline__ void step(int turn, float (&c)[WM / 16][WN / 8][4]) {
        typedef tensor_type<T> type;
#pragma unroll
        for (int s = 0; s < KC / PARTS / KS; s++) {
            const unsigned k = part() * (KC / PARTS) + s * KS;
            unsigned x[WM / 16][4], y[WN / 16][4];
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
                type::template fragment<ALONG_A>(
                    x[i], factor(turn, 0) + at<ALONG_A, BM>(top() + 16 * i, k),
                    ALONG_A ? KC + EDGE : BM + 8);
#pragma unroll
            for (int j = 0; j < WN / 16; j++)
                type::template fragment<ALONG_B>(
                    y[j], factor(turn, 1) + at<ALONG_B, BN>(left() + 16 * j, k),
                    ALONG_B ? KC + EDGE : BN + 8);
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
#pragma unroll
                for (int j = 0; j < WN / 8; j++)
                    type::multiply_add(c[i][j], x[i], y[j / 2][j % 2], y[j / 2][j % 2 + 2]);
        }
    }

    // The sums as they are stored: as they are, or four columns of one row from two lanes.
    static __device__ __forceinline__ void arrange(const float (&c)[WM / 16][WN / 8][4],
                                                   float (&acc)[RM][RN]) {
        const bool odd = threadIdx.x % 2u != 0u;
#pragma unroll
        for (int e = 0; e < (PARTS > 1 ? 0 : WM * WN / 128); e++) {
            const int i = e / (WN / 8), j = e % (WN / 8);
            if (V > 1) {
                const float *own = c[i][j];
                const float x = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[2], 1),
                            y = __shfl_xor_sync(0xffffffffu, odd ? own[1] : own[3], 1);
                acc[i][4 * j] = odd ? x : own[0];
                acc[i][4 * j + 1] = odd ? y : own[1];
                acc[i][4 * j + 2] = odd ? own[2] : x;
                acc[i][4 * j + 3] = odd ? own[3] : y;
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++) acc[2 * i + k / 2][2 * j + k % 2] = c[i][j][k];
            }
        }
    }

    // Adds up the groups' sums in order; a thread gets neighbours in rows.
    __device__ __forceinline__ void sum(const float (&c)[WM / 16][WN / 8][4],
                                        float (&acc)[RM][RN]) {
        float *sums = reinterpret_cast<float *>(bytes);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < WM * WN / 64; e++) {
            const int i = e / 2 / (WN / 8), j = e / 2 % (WN / 8), k = e % 2 * 2;
            const unsigned m = part() * BM + top() + 16 * i + 4 * k + lane() / 4u,
                           n = left() + 8 * j + lane() % 4u * 2;
            *reinterpret_cast<float2 *>(sums + m * (BN + 8) + n) =
                make_float2(c[i][j][k], c[i][j][k + 1]);
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < RM * RN; e++) {
            float v = 0.f;
#pragma unroll
            for (int p = 0; p < PARTS; p++)
                v += sums[(p * BM + row(e / RN)) * (BN + 8) + column(e % RN)];
            acc[e / RN][e % RN] = v;
        }
    }

    // load_a(e, k0) gives vector (or element) e of the step from term k0 on. While a step is
    // multiplied, the next one's are on their way.
    template <bool ALONG_A, bool ALONG_B, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned terms, A load_a, B load_b,
                                             float (&acc)[RM][RN]) {
        typedef tensor_type<T> type;
        const unsigned e = threadIdx.x, bytes_a = BM * KC * sizeof(T) / 256,
                       bytes_b = BN * KC * sizeof(T) / 256,
                       na = bytes_a / sizeof type::rounded(load_a(0u, terms)),
                       nb = bytes_b / sizeof type::rounded(load_b(0u, terms));
        decltype(load_a(0u, terms)) va[na];
        decltype(load_b(0u, terms)) vb[nb];
        float c[WM / 16][WN / 8][4] = {};
        int turn = 0;
        for (unsigned k0 = 0;; k0 += KC, turn = (turn + 1) % BUFFERS) {
            //@if rows
            if (k0 > 0) {
#pragma unroll
                for (unsigned i = 0; i < na; i++) loaded(load_a, static_cast<int>(i), va[i]);
            }
            //@end
            if (k0 < terms) {
#pragma unroll
                for (unsigned i = 0; i < na; i++) va[i] = load_a(e + 256u * i, k0);
#pragma unroll
                for (unsigned i = 0; i < nb; i++) vb[i] = load_b(e + 256u * i, k0);
            }
            if (k0 > 0) step<ALONG_A, ALONG_B>((turn + BUFFERS - 1) % BUFFERS, c);
            if (k0 >= terms) break;
            if (BUFFERS == 1) __syncthreads();
#pragma unroll
            for (unsigned i = 0; i < na; i++)
                put<ALONG_A, BM>(factor(turn, 0), e + 256u * i, va[i]);
#pragma unroll
            for (unsigned i = 0; i < nb; i++)
                put<ALONG_B, BN>(factor(turn, 1), e + 256u * i, vb[i]);
            __syncthreads();
        }
        if (PARTS > 1) sum(c, acc);
        else arrange(c, acc);
    }
};
