//@key second  whether some rows or columns have two values of a term
// Tiles of reductions whose terms are no products but functions of what a row and what a column
// have: loads and sums are a product_tile's.

// The loads of columns, what a thread does with each term, and what it begins with.
template <typename L, typename T>
struct crossed_loads {
    L load;
    T term;
    float start;
};
template <typename L, typename T>
static __device__ __forceinline__ crossed_loads<L, T> crossed(L load, T term, float start) {
    return {load, term, start};
}
//@if second

// The loads of two values; whether neighbouring threads load neighbouring terms of the second one.
template <bool ALONG, typename L, typename M>
struct two_loads {
    L first;
    M second;
};
template <bool ALONG, typename L, typename M>
static __device__ __forceinline__ two_loads<ALONG, L, M> both(L first, M second) {
    return {first, second};
}
//@end

// RESULTS: sums of terms, which have values in common; ROWS and COLUMNS: values that a row and a
// column have of them, one or two. TERMS of eight are written out, so that costly ones do not
// outgrow the cache of instructions. ENDS: zeros behind the last term would change a result.
template <int RESULTS, int ROWS, int COLUMNS, int TERMS, bool ENDS, int BM, int BN, int KC,
          int PARTS, int RM, int RN, int V>
struct cross_tile : product_tile<BM, BN, KC, PARTS, RM, RN, V> {
    typedef product_tile<BM, BN, KC, PARTS, RM, RN, V> base;
    struct sums {
        float of[RM * RN][RESULTS];
    };
    static const int OF_ROWS = (ROWS - 1) * KC * (BM + 4),
                     SIZE = OF_ROWS + (COLUMNS - 1) * KC * (BN + 4);  // of a step's second values
    __align__(16) float seconds[SIZE ? 2 * SIZE : 4];

    static __device__ __forceinline__ sums none() { return sums(); }

    // What a thread stores of sum N.
    template <int N = 0>
    __device__ __forceinline__ void finish(const sums &own, float (&acc)[RM][RN]) {
        typename base::tile_products one;
#pragma unroll
        for (int e = 0; e < RM * RN; e++) one.sum[e / RN][e % RN] = own.of[e][N];
        base::finish(one, acc);
    }

    // Where value n of a step's rows or columns lies.
    __device__ float *values(int turn, bool columns, int n) {
        return n ? seconds + turn * SIZE + columns * OF_ROWS : this->factor(turn, columns);
    }

    // Value N of a side on its way to shared memory.
    template <bool SIDE, int N, bool ALONG, typename L>
    struct value_feed {
        typedef decltype(made(some<L>(), 0u, 0u, value_of(some<L>()(0u, 0u)))) type;
        typename base::template feed<SIDE ? BN : BM, ALONG, SIDE, type, L> from;

        __device__ __forceinline__ explicit value_feed(L load) : from(load) {}
        __device__ __forceinline__ void begin(unsigned k0) { from.begin(k0); }
        __device__ __forceinline__ void next(unsigned k0, bool more) { from.next(k0, more); }
        __device__ __forceinline__ void store(cross_tile &to, int turn, unsigned k0) {
            from.store(to.values(turn, SIDE, N), k0);
        }
    };
    template <bool SIDE, bool ALONG, typename L>
    struct side_feed : value_feed<SIDE, 0, ALONG, L> {
        __device__ __forceinline__ explicit side_feed(L load)
            : value_feed<SIDE, 0, ALONG, L>(load) {}
    };
    //@if second
    template <bool SIDE, bool ALONG, bool ALONG2, typename L, typename M>
    struct side_feed<SIDE, ALONG, two_loads<ALONG2, L, M>> {
        value_feed<SIDE, 0, ALONG, L> first;
        value_feed<SIDE, 1, ALONG2, M> second;

        __device__ __forceinline__ explicit side_feed(two_loads<ALONG2, L, M> l)
            : first(l.first), second(l.second) {}
        __device__ __forceinline__ void begin(unsigned k0) {
            first.begin(k0);
            second.begin(k0);
        }
        __device__ __forceinline__ void next(unsigned k0, bool more) {
            first.next(k0, more);
            second.next(k0, more);
        }
        __device__ __forceinline__ void store(cross_tile &to, int turn, unsigned k0) {
            first.store(to, turn, k0);
            second.store(to, turn, k0);
        }
    };
    //@end

    // Takes the thread's part of the terms that were put at `turn`, of which there are `left`.
    template <typename T>
    __device__ __forceinline__ void terms(int turn, const word_places<BM, base::MASK> &at_a,
                                          const word_places<BN, base::MASK> &at_b, unsigned left,
                                          const T &term, sums &to) {
        const unsigned own = base::part() * (KC / PARTS);
#pragma unroll
        for (unsigned eight = 0; eight < KC / PARTS; eight += 8) {
            const unsigned turned = base::turned(eight);
#pragma unroll TERMS
            for (unsigned k = eight; k < eight + 8; k++) {
                if (ENDS && own + k >= left) break;
                float x[ROWS][RM], y[COLUMNS][RN];
#pragma unroll
                for (int n = 0; n < ROWS; n++)
#pragma unroll
                    for (unsigned i = 0; i < RM; i += 4)
                        base::four(x[n] + i, values(turn, false, n) + at_a(k, i ^ turned));
#pragma unroll
                for (int n = 0; n < COLUMNS; n++)
#pragma unroll
                    for (unsigned j = 0; j < RN; j += 4)
                        base::four(y[n] + j,
                                   values(turn, true, n) + at_b(k, j * base::ACROSS ^ turned));
#pragma unroll
                for (int e = 0; e < RM * RN; e++)
                    term(to.of[e], x[0][e / RN], x[ROWS - 1][e / RN], y[0][e % RN],
                         y[COLUMNS - 1][e % RN]);
            }
        }
    }

    // As product_tile::multiply, with feeds of two values and a start of each sum.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B, typename T>
    __device__ __forceinline__ void multiply(unsigned from, unsigned until, A load_a,
                                             crossed_loads<B, T> load_b, bool next_early,
                                             sums &to) {
        side_feed<false, ALONG_A, A> a(load_a);
        side_feed<true, ALONG_B, B> b(load_b.load);
        const unsigned own = base::part() * (KC / PARTS);
        const word_places<BM, base::MASK> at_a(own, base::top() ^ base::turned(own));
        const word_places<BN, base::MASK> at_b(own, base::across() * 4u ^ base::turned(own));
#pragma unroll
        for (int e = 0; e < RM * RN * RESULTS; e++) to.of[e / RESULTS][e % RESULTS] = load_b.start;
        if (EARLY == 1) a.begin(from);
        if (EARLY == 2) b.begin(from);
        await_previous(next_early);
        until = kept(until);
        if (EARLY != 1) a.begin(from);
        if (EARLY != 2) b.begin(from);
        for (unsigned k0 = from; k0 < until;) {
#pragma unroll
            for (int turn = 0; turn < 2; turn++) {
                const unsigned left = until - k0;
                a.store(*this, turn, k0);
                b.store(*this, turn, k0);
                k0 += KC;
                const bool more = k0 < until;
                a.next(k0, more);
                b.next(k0, more);
                __syncthreads();
                terms(turn, at_a, at_b, left, load_b.term, to);
                if (!more) break;
            }
        }
    }
};
