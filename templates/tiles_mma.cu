//@key rows  whether some loads are added up along their rows
// Where elements lie of a factor of B lines and KC terms, from (line, term) on. Its rows are lines
// of terms (ALONG) or terms of lines (of halves as many as a power of two divides, 64 at most,
// panels of which lie behind each other), and chunks of 16 bytes of a row are exchanged: 8 rows at
// the same column fill the 32 banks of shared memory, and so do 4 rows at 8 neighbours, which
// fragments of f32 terms take.
template <typename T, int B, int KC, bool ALONG>
struct tile_place {
    static const unsigned WHOLE = ALONG ? KC : B, PANEL = B % 64 ? B & -B : 64,
                          C = sizeof(T) == 2 && !ALONG ? PANEL : WHOLE, E = 16 / sizeof(T),
                          W = sizeof(T) == 4 && !ALONG ? 2 : 1, SAME = C / E < 8 ? 8 * E / C : 1,
                          TURNS = (C / E < 8 ? C / E : 8) / W;
    unsigned row, column;

    __device__ __forceinline__ tile_place(unsigned line, unsigned term)
        : row(ALONG ? line : term), column(ALONG ? term : line) {}
    __device__ __forceinline__ unsigned operator()(unsigned r, unsigned c) const {
        r += row;
        c += column;
        const unsigned panel = C < WHOLE ? c / C : 0u;
        c -= panel * C;
        return panel * (C * KC) + r * C + ((c / E) ^ (r / SAME % TURNS * W)) * E + c % E;
    }
};

// Where a lane finds the fragments of LINES lines of a factor from (line, term) on, in every STEP
// terms. Eight rows further on elements lie as they do here.
template <typename T, int B, int KC, bool ALONG, bool SECOND, int LINES, int TERMS>
struct lane_places {
    typedef tensor_type<T> type;
    static const int STEP = 32 / int(sizeof(T)), APART = sizeof(T) == 4 ? 8 : 16;
    static const int N = ALONG ? TERMS / STEP : LINES / APART;
    unsigned at[N];

    __device__ __forceinline__ lane_places(unsigned line, unsigned term) {
        const tile_place<T, B, KC, ALONG> from(line, term);
#pragma unroll
        for (int n = 0; n < N; n++)
            at[n] = kept(from(type::template row<ALONG, SECOND>(),
                              type::template column<ALONG, SECOND>() + n * (ALONG ? STEP : APART)));
    }
    // Of lines from 16 i on and terms from s STEP on.
    __device__ __forceinline__ void fragment(unsigned (&q)[4], const T *p, int i, int s) const {
        const int line = ALONG ? 0 : i * 16 / APART;
        const int row = ALONG ? KC : tile_place<T, B, KC, ALONG>::C;
        type::template fragment<ALONG, SECOND>(q, p + (ALONG ? 16 * i : s * STEP) * row,
                                               at[ALONG ? s : line],
                                               at[ALONG ? s : line + 16 / APART - 1], 4u * B);
    }
};

// Where a thread stores its vectors of W elements, every 256th of a step; of terms of lines as many
// lines come first as a power of two divides.
template <typename T, int B, int KC, bool ALONG, int W>
struct vector_places {
    typedef tile_place<T, B, KC, ALONG> place;
    static const unsigned C = ALONG ? KC : B & -B, N = B * KC / 256 / W,
                          TURN = 8 * C > 256 * W ? 8 * C / (256 * W) : 1;
    unsigned at[TURN];

    __device__ __forceinline__ vector_places() {
#pragma unroll
        for (unsigned i = 0; i < TURN; i++) {
            const unsigned e = (threadIdx.x + 256u * i) * W;
            at[i] = i < N ? kept(place(0u, 0u)(e / C, e % C)) : 0u;
        }
    }
    __device__ __forceinline__ unsigned operator()(unsigned i) const {
        return at[i % TURN] + i / TURN * (TURN * 256u * W / C * place::C);
    }
};

// A factor's way to shared memory, B lines of KC terms a step: what a load gives waits in registers
// until the step before is multiplied (those of two steps would share one of ptxas' six
// scoreboards, and be waited for together), rounded as it is stored; what it fetches is copied,
// where the device can, several steps ahead and as it is (RAW).
template <typename T, int B, int KC, bool ALONG, typename V, typename L>
struct tensor_feed {
    static const bool RAW = false;
    typedef decltype(tensor_type<T>::rounded(made(some<L>(), 0u, 0u, V()))) stored;
    typedef vector_places<T, B, KC, ALONG, sizeof(stored) / sizeof(T)> places;
    L load_from;
    places place;
    V v[places::N];

    __device__ __forceinline__ explicit tensor_feed(L l) : load_from(l) {}
    __device__ __forceinline__ void begin(unsigned) {}
    __device__ __forceinline__ void copy(T *, unsigned) {}
    __device__ __forceinline__ void clear(T *) {}
    __device__ __forceinline__ void move() {}
    __device__ __forceinline__ void load(unsigned k0) {
#pragma unroll
        for (unsigned i = 0; i < places::N; i++) v[i] = nth_load(load_from, i, k0);
    }
    __device__ __forceinline__ void store(T *to, unsigned k0) {
#pragma unroll
        for (unsigned i = 0; i < places::N; i++)
            *reinterpret_cast<stored *>(to + place(i)) =
                tensor_type<T>::rounded(made(load_from, threadIdx.x + 256u * i, k0, v[i]));
    }
};
template <typename L>
struct fetched_value {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, k0).value()) {
        return load(e, k0).value();
    }
};
template <typename L>
static __device__ __forceinline__ auto nth_load(const fetched_value<L> &a, unsigned i, unsigned k0)
    -> decltype(a.load(0u, 0u).value()) {
    return nth_load(a.load, i, k0).value();
}

//@if rows
template <typename L>
static __device__ __forceinline__ void take_rows(const fetched_value<L> &a, unsigned (&x)[4],
                                                 int i) {
    take_rows(a.load, x, i);
}
//@end
template <typename T, int B, int KC, bool ALONG, typename V, typename L, bool COPIES>
struct fetched_feed {
    static const bool RAW = true;
    typedef vector_places<T, B, KC, ALONG, sizeof(V) / sizeof(T)> places;
    L load_from;
    places place;
    load_places<places::N, KC, V, L> copies;

    __device__ __forceinline__ explicit fetched_feed(L l) : load_from(l), copies() {}
    __device__ __forceinline__ void begin(unsigned k0) { copies.begin(load_from, k0); }
    __device__ __forceinline__ void copy(T *to, unsigned k0) {
#pragma unroll
        for (unsigned i = 0; i < places::N; i++)
            copy_async(to + place(i), copies.get(load_from, i, k0));
    }
    __device__ __forceinline__ void clear(T *to) {
#pragma unroll
        for (unsigned i = 0; i < places::N; i++) *reinterpret_cast<V *>(to + place(i)) = V();
    }
    // Places that turn are not copied from: a step's number says nothing.
    __device__ __forceinline__ void move() { copies.move(load_from, 0u); }
    __device__ __forceinline__ void load(unsigned) {}
    __device__ __forceinline__ void store(T *, unsigned) {}
};
template <typename T, int B, int KC, bool ALONG, typename V, typename L>
struct fetched_feed<T, B, KC, ALONG, V, L, false>
    : tensor_feed<T, B, KC, ALONG, V, fetched_value<L> > {
    typedef tensor_feed<T, B, KC, ALONG, V, fetched_value<L> > values;
    __device__ __forceinline__ explicit fetched_feed(L l) : values(fetched_value<L>{l}) {}
};
template <typename T, int B, int KC, bool ALONG, typename V, typename L>
struct tensor_feed<T, B, KC, ALONG, fetched<V>, L>
    : fetched_feed<T, B, KC, ALONG, V, L, ASYNC_COPIES && sizeof(V) >= 4> {
    typedef fetched_feed<T, B, KC, ALONG, V, L, ASYNC_COPIES && sizeof(V) >= 4> feed;
    __device__ __forceinline__ explicit tensor_feed(L l) : feed(l) {}
};

// How 256 threads in PARTS groups have the sums of BM rows by BN columns: a warp WM rows and WN
// columns of them. A thread stores V neighbouring columns at once.
template <int BM, int BN, int PARTS, int WM, int WN, int V>
struct tensor_sums {
    // A thread's result.
    static const int RM = PARTS > 1 ? BM *BN / 256 / V : V > 1 ? WM / 16 : WM / 8;
    static const int RN = PARTS > 1 ? V : V > 1 ? WN / 2 : WN / 4;

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
    // Those of thread t.
    static __device__ unsigned row(int i, unsigned t) {
        const unsigned top = t / 32u / (BN / WN) % (BM / WM) * WM + t % 32u / 4u;
        if (PARTS > 1) return (t + 256u * i) * V / BN;
        return V > 1 ? top + 16 * i + t % 2u * 8 : top + i / 2 * 16 + i % 2 * 8;
    }
    static __device__ unsigned column(int j, unsigned t) {
        const unsigned left = t / 32u % (BN / WN) * WN;
        if (PARTS > 1) return t * V % BN + j;
        return V > 1 ? left + j / 4 * 8 + t % 4u / 2u * 4 + j % 4
                     : left + j / 2 * 8 + t % 4u * 2 + j % 2;
    }

    // What a thread has of its warp's sums, those of its group's terms.
    struct tile_products {
        float c[WM / 16][WN / 8][4];
    };
    static __device__ __forceinline__ tile_products none() { return tile_products(); }

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
};

// BM rows by BN columns of a product, KC terms a step, of which each group has a part. ROOM steps
// have room, where no copies are asynchronous two: one is multiplied while others are on their way,
// in registers where there is one (ALL: as many all the same).
template <typename T, int BM, int BN, int KC, int PARTS, int WM, int WN, int ROOM, int V,
          bool ALL = false>
struct tensor_tile : tensor_sums<BM, BN, PARTS, WM, WN, V> {
    typedef tensor_sums<BM, BN, PARTS, WM, WN, V> own_sums;
    using own_sums::arrange;
    using own_sums::column;
    using own_sums::lane;
    using own_sums::left;
    using own_sums::part;
    using own_sums::RM;
    using own_sums::RN;
    using own_sums::row;
    using own_sums::top;
    typedef typename own_sums::tile_products tile_products;
    static const int STAGES = ASYNC_COPIES || ALL || ROOM < 2 ? ROOM : 2;
    static const int KS = 32 / int(sizeof(T)), SIZE = (BM + BN) * KC;
    static const int SUMS = PARTS > 1 ? PARTS *BM *(BN + 8) * 4 : 0;
    static const int STEPS = STAGES * SIZE * int(sizeof(T)), TIMES = KC / PARTS / KS;
    __align__(128) unsigned char bytes[STEPS > SUMS ? STEPS : SUMS];

    __device__ T *factor(int stage, int b) {
        return reinterpret_cast<T *>(bytes) + stage * SIZE + b * BM * KC;
    }

    //@if rows
    // Sums along the rows of the first factor, of the fragments that are multiplied: of the warps
    // that have the same rows each adds up its share of them. Where a load does not compute values
    // relative to their line's first one, from(line) gives that, and they are made so here.
    template <typename FROM>
    struct row_sums {
        static const int WARPS = BN / WN, OWN = WM / 8 / WARPS;
        FROM from;
        T first[WM / 16][2];
        float sum[OWN], square[OWN];

        __device__ __forceinline__ explicit row_sums(const FROM &f)
            : from(f), first(), sum(), square() {}
        static __device__ unsigned warp() { return threadIdx.x / 32u % WARPS; }
        // The warp's rows, 8 lines apart, of which lane 4g + t has the one g lines further on.
        static __device__ unsigned line(unsigned row) { return top() + row * 8 + lane() / 4u; }

        __device__ __forceinline__ void begin() { begin(from); }
        __device__ __forceinline__ void begin(unshifted) {}
        template <typename F>
        __device__ __forceinline__ void begin(const F &first_of) {
#pragma unroll
            for (unsigned r = 0; r < WM / 8; r++) first[r / 2][r % 2] = first_of(line(r));
        }
        __device__ __forceinline__ void shift(unsigned (&)[4], int, unshifted) const {}
        template <typename F>
        __device__ __forceinline__ void shift(unsigned (&x)[4], int i, const F &) const {
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = tensor_type<T>::minus(x[e], first[i][e % 2]);
        }
        // Of rows from 16 i on.
        __device__ __forceinline__ void take(unsigned (&x)[4], int i) {
            shift(x, i, from);
            if (WARPS > 2 && int(warp() / 2u) != i % (WARPS > 1 ? WARPS / 2 : 1)) return;
#pragma unroll
            for (int r = 0; r < (WARPS > 1 ? 1 : 2); r++) {
                const int own = WARPS > 1 ? 2 * i / WARPS : 2 * i + r;
#pragma unroll
                for (int k = r; k < 4; k += 2)
                    tensor_type<T>::add(WARPS > 1 && warp() % 2u ? x[k + 1] : x[k], sum[own],
                                        square[own]);
            }
        }

        // The lanes' sums v of each line, added up in a fixed order.
        static __device__ __forceinline__ void total(const float (&v)[OWN],
                                                     float (&to)[BM][PARTS]) {
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float s = v[i] + __shfl_xor_sync(0xffffffffu, v[i], 1);
                s += __shfl_xor_sync(0xffffffffu, s, 2);
                if (lane() % 4u == 0u) to[line(i * WARPS + warp())][part()] = s;
            }
        }
        static __device__ __forceinline__ float of(const float (&from)[BM][PARTS], unsigned line) {
            float s = 0.f;
#pragma unroll
            for (int p = 0; p < PARTS; p++) s += from[line][p];
            return s;
        }
    };

    //@end
    // Fragments of 16 rows, and of all columns of a warp.
    struct row_fragment {
        unsigned q[4];
    };
    struct column_fragments {
        unsigned q[WN / 16][4];
    };

    // Fragments of KS terms, number s of the warp's part of a step: of rows from 16 i on, and of
    // all columns.
    template <typename AT>
    __device__ __forceinline__ void get_rows(int stage, int s, int i, const AT &at,
                                             row_fragment &x) {
        at.fragment(x.q, factor(stage, 0), i, s);
    }
    template <typename AT>
    __device__ __forceinline__ void get_columns(int stage, int s, const AT &at,
                                                column_fragments &y) {
#pragma unroll
        for (int j = 0; j < WN / 16; j++) at.fragment(y.q[j], factor(stage, 1), j, s);
    }

    // c += the product of rows from 16 i on and of all columns, of which RAW ones are to be rounded
    // yet: columns by the first rows.
    template <bool RAW_A, bool RAW_B>
    static __device__ __forceinline__ void multiply_fragments(int i, row_fragment &x,
                                                              column_fragments &y,
                                                              float (&c)[WN / 8][4]) {
        typedef tensor_type<T> type;
        if (RAW_A) type::round_words(x.q);
#pragma unroll
        for (int j = 0; j < (RAW_B && i == 0 ? WN / 16 : 0); j++) type::round_words(y.q[j]);
#pragma unroll
        for (int j = 0; j < WN / 8; j++)
            type::multiply_add(c[j], x.q, y.q[j / 2][j % 2 * 2], y.q[j / 2][j % 2 * 2 + 1]);
    }

    // The groups' sums, added up in order; a thread gets neighbours in rows.
    __device__ __forceinline__ void add_groups(const float (&c)[WM / 16][WN / 8][4],
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

    // What a thread stores.
    __device__ __forceinline__ void finish(const tile_products &own, float (&acc)[RM][RN]) {
        if (PARTS > 1) add_groups(own.c, acc);
        else arrange(own.c, acc);
    }

    // A stage that no step is copied to is read all the same, behind the last one.
    template <typename F>
    static __device__ __forceinline__ void first(F &feed, T *to, unsigned k0, unsigned until) {
        if (k0 < until) feed.copy(to, k0);
        else feed.clear(to);
        feed.move();
    }

    // The terms from `from` until `until`; load_a(e, k0) gives vector (or element) e of the step
    // from term k0 on, or where to fetch it. What the kernel before cannot have written, the first
    // (EARLY 1) or the second factor (2), is on its way before that one is over.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned from, unsigned until, A load_a, B load_b,
                                             bool next_early, tile_products &to) {
        typedef tensor_feed<T, BM, KC, ALONG_A, decltype(load_a(0u, from)), A> feed_a;
        typedef tensor_feed<T, BN, KC, ALONG_B, decltype(load_b(0u, from)), B> feed_b;
        feed_a a(load_a);
        feed_b b(load_b);
        const unsigned own = part() * (KC / PARTS);
        const lane_places<T, BM, KC, ALONG_A, false, WM, KC / PARTS> at_a(top(), own);
        const lane_places<T, BN, KC, ALONG_B, true, WN, KC / PARTS> at_b(left(), own);
        if (EARLY == 1) a.begin(from);
        if (EARLY == 2) b.begin(from);
#pragma unroll
        for (int n = 0; n < STAGES; n++) {
            const unsigned k0 = from + n * KC;
            if (EARLY == 1) first(a, factor(n, 0), k0, until);
            if (EARLY == 2) first(b, factor(n, 1), k0, until);
        }
        await_previous(next_early);
        if (EARLY != 1) a.begin(from);
        if (EARLY != 2) b.begin(from);
#pragma unroll
        for (int n = 0; n < STAGES; n++) {
            const unsigned k0 = from + n * KC;
            if (EARLY != 1) first(a, factor(n, 0), k0, until);
            if (EARLY != 2) first(b, factor(n, 1), k0, until);
            end_step();
        }
        //@if rows
        begin_rows(load_a);
        //@end
        a.load(from);
        b.load(from);
        a.store(factor(0, 0), from);
        b.store(factor(0, 1), from);
        if (from + KC < until) {
            a.load(from + KC);
            b.load(from + KC);
        }
        await_steps<STAGES - 1>();
        __syncthreads();
        // What is multiplied and, on its way meanwhile, what comes next.
        row_fragment x[2] = {};
        column_fragments y[2] = {};
        get_rows(0, 0, 0, at_a, x[0]);
        get_columns(0, 0, at_b, y[0]);
        for (unsigned k0 = from; k0 < until;) {
            // Where a stage lies is then part of the instructions.
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                const int next = (stage + 1) % STAGES;
                const bool more = k0 + KC < until;
#pragma unroll
                for (int n = 0; n < TIMES * WM / 16; n++) {
                    const int i = n % (WM / 16), s = stage * TIMES + n / (WM / 16),
                              turn = stage * TIMES * (WM / 16) + n;
                    if (n + 1 < TIMES * WM / 16) {
                        get_rows(stage, (n + 1) / (WM / 16), (n + 1) % (WM / 16), at_a,
                                 x[(turn + 1) % 2]);
                        if (i + 1 == WM / 16)
                            get_columns(stage, (n + 1) / (WM / 16), at_b, y[(s + 1) % 2]);
                    } else if ((feed_a::RAW && feed_b::RAW) || more) {
                        // All warps have what they multiply of this step. Where all is copied there
                        // is no branch, across which ptxas would move nothing that is multiplied:
                        // behind the last step fragments come from a stage to which nothing is
                        // copied, and are not used.
                        if (STAGES == 1) __syncthreads();
                        a.store(factor(next, 0), k0 + KC);
                        b.store(factor(next, 1), k0 + KC);
                        await_steps<(STAGES > 2 ? STAGES - 2 : 0)>();
                        __syncthreads();
                        get_rows(next, 0, 0, at_a, x[(turn + 1) % 2]);
                        get_columns(next, 0, at_b, y[(s + 1) % 2]);
                        if (k0 + STAGES * KC < until) {
                            a.copy(factor(stage, 0), k0 + STAGES * KC);
                            b.copy(factor(stage, 1), k0 + STAGES * KC);
                        }
                        a.move();
                        b.move();
                        end_step();
                    }
                    //@if rows
                    take_rows(a.load_from, x[turn % 2].q, i);
                    //@end
                    multiply_fragments<feed_a::RAW, feed_b::RAW>(i, x[turn % 2], y[s % 2], to.c[i]);
                }
                k0 += KC;
                if (!more) break;
                if (k0 + KC < until) {
                    a.load(k0 + KC);
                    b.load(k0 + KC);
                }
            }
            if (STAGES * TIMES * (WM / 16) % 2) x[0] = x[1];
            if (STAGES * TIMES % 2) y[0] = y[1];
        }
    }
};
