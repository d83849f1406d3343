//@key rows  whether some loads are added up along their rows
// Where a thread's elements lie of a factor of B lines, rows of which are terms: numbers of their
// line are exchanged by some of the bits in MASK. What is known before the loop of term and line
// and what is known as it is compiled have no bit in common, so only these bits need a number each.
template <int B, unsigned MASK>
struct word_places {
    unsigned at[MASK / 4 + 1];

    __device__ __forceinline__ word_places(unsigned term, unsigned line) {
#pragma unroll
        for (unsigned i = 0; i <= MASK / 4; i++) at[i] = kept(term * (B + 4) + (line ^ i * 4u));
    }
    __device__ __forceinline__ unsigned operator()(unsigned term, unsigned line) const {
        return at[(line & MASK) / 4u] + (line & ~MASK) + term * (B + 4);
    }
};

// BM rows by BN columns of a product, KC terms a step; 256 threads in PARTS groups that share the
// terms. A thread has RM rows, and RN columns of which V lie together.
template <int BM, int BN, int KC, int PARTS, int RM, int RN, int V>
struct product_tile {
    static const int SIZE = KC * (BM + BN + 8);  // of a step
    static const int SUMS = PARTS > 1 ? 256 * RM * 4 : 0;
    __align__(16) float words[2 * SIZE > SUMS ? 2 * SIZE : SUMS];

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
    // Those of thread t.
    static __device__ unsigned row(int i, unsigned t) {
        const unsigned down = t / (2u * ACROSS) % (BM / RM / 2) * 2u + t % 2u;
        return down * RM + t / (256 / PARTS) * (RM / PARTS) + i;
    }
    static __device__ unsigned column(int j, unsigned t) {
        return t / 2u % ACROSS * V + j % V + j / V * (ACROSS * V);
    }
    // Where column n of the tile lies, so that each four of a thread's lie together.
    static __device__ unsigned place(unsigned n) {
        const unsigned j = n / (ACROSS * V) * V + n % V;
        return V == 4 ? n : j / 4u * (ACROSS * 4u) + n / V % ACROSS * 4u + j % 4u;
    }

    // What lines of term k are exchanged by, so that terms of a few lines go to different banks.
    static const unsigned TURN = KC > 16 ? 4 : 8, MASK = KC > 16 ? 12 : KC == 16 ? 8 : 0;
    static __device__ unsigned turned(unsigned k) { return k / 8u * TURN & MASK; }

    __device__ float *factor(int turn, int b) { return words + turn * SIZE + b * (KC * (BM + 4)); }

    // A factor's way to shared memory, B lines: what a load gives waits in registers until the step
    // before is multiplied. Element e of a step is term e % KC of line e / KC, or (not ALONG) line
    // e % SIDE of term e / SIDE of the first SIDE lines, a power of two; the next ones follow.
    // Lines are rows or (COLUMNS) columns.
    template <int B, bool ALONG, bool COLUMNS, typename T, typename L>
    struct feed {
        typedef decltype(value_of(nth_load(some<L>(), 0u, 0u))) found;
        static const unsigned W = sizeof(T) / 4, N = B * KC / 256 / W, SIDE = B & -B;
        L load_from;
        load_places<N, KC, found, L> from;
        word_places<B, MASK> place;
        found v[N];

        static __device__ unsigned term(unsigned e) { return ALONG ? e % KC : e / SIDE % KC; }
        static __device__ unsigned line(unsigned e) {
            const unsigned n = ALONG ? e / KC : e % SIDE + e / (SIDE * KC) * SIDE;
            return (COLUMNS ? product_tile::place(n) : n) ^ turned(term(e));
        }

        __device__ __forceinline__ explicit feed(L l)
            : load_from(l), from(), place(term(threadIdx.x * W), line(threadIdx.x * W)), v() {}
        __device__ __forceinline__ void load(unsigned k0) {
#pragma unroll
            for (unsigned i = 0; i < N; i++) from.take(v[i], load_from, i, k0);
        }
        __device__ __forceinline__ void begin(unsigned k0) {
            from.begin(load_from, k0);
            load(k0);
        }
        // The loads of the next step, if any.
        __device__ __forceinline__ void next(unsigned k0, bool more) {
            if (!more) return;
            from.move(load_from, k0);
            load(k0);
        }
        __device__ __forceinline__ void put(float *to, unsigned e, float value) const {
            to[place(term(e), line(e))] = value;
        }
        __device__ __forceinline__ void put(float *to, unsigned e, float4 value) const {
            if (!ALONG && (V == 4 || !COLUMNS)) {
                *reinterpret_cast<float4 *>(to + place(term(e), line(e))) = value;
                return;
            }
            const float w[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
            for (unsigned k = 0; k < 4u; k++) put(to, e + k, w[k]);
        }
        // The loads of the step from term k0 on.
        __device__ __forceinline__ void store(float *to, unsigned k0) {
#pragma unroll
            for (unsigned i = 0; i < N; i++) {
                const T w = made(load_from, threadIdx.x + 256u * i, k0, v[i]);
                //@if rows
                loaded(load_from, int(i), w);
                //@end
                put(to, 256u * W * i, w);
            }
        }
    };

    static __device__ __forceinline__ void four(float *v, const float *from) {
        const float4 w = *reinterpret_cast<const float4 *>(from);
        v[0] = w.x, v[1] = w.y, v[2] = w.z, v[3] = w.w;
    }

    // What a thread has of its rows and columns: sums of its group's terms.
    struct tile_products {
        float sum[RM][RN];
    };
    static __device__ __forceinline__ tile_products none() { return tile_products(); }

    // Adds the product of what was put at `turn`, over the thread's part of the terms.
    __device__ __forceinline__ void step(int turn, const word_places<BM, MASK> &at_a,
                                         const word_places<BN, MASK> &at_b, tile_products &to) {
        const float *a = factor(turn, 0), *b = factor(turn, 1);
#pragma unroll
        for (unsigned k = 0; k < KC / PARTS; k++) {
            float x[RM], y[RN];
#pragma unroll
            for (unsigned i = 0; i < RM; i += 4) four(x + i, a + at_a(k, i ^ turned(k)));
#pragma unroll
            for (unsigned j = 0; j < RN; j += 4) four(y + j, b + at_b(k, j * ACROSS ^ turned(k)));
#pragma unroll
            for (int i = 0; i < RM * RN; i++) to.sum[i / RN][i % RN] += x[i / RN] * y[i % RN];
        }
    }

    // What a thread stores: the groups' sums, added up in order, four columns of each thread at a
    // time.
    __device__ __forceinline__ void finish(const tile_products &own, float (&acc)[RM][RN]) {
        const unsigned pitch = ACROSS * 4u, at = top() * pitch + across() * 4u;
#pragma unroll
        for (int i = 0; i < (PARTS > 1 ? 0 : RM * RN); i++)
            acc[i / RN][i % RN] = own.sum[i / RN][i % RN];
#pragma unroll
        for (int j = 0; j < (PARTS > 1 ? RN : 0); j += 4) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < RM; i++)
                *reinterpret_cast<float4 *>(words + at + (part() * BM + i) * pitch) = make_float4(
                    own.sum[i][j], own.sum[i][j + 1], own.sum[i][j + 2], own.sum[i][j + 3]);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < RM / PARTS; i++) {
                float v[4] = {};
#pragma unroll
                for (int p = 0; p < PARTS; p++) {
                    float w[4];
                    four(w, words + across() * 4u + (p * BM + row(i)) * pitch);
#pragma unroll
                    for (int k = 0; k < 4; k++) v[k] += w[k];
                }
#pragma unroll
                for (int k = 0; k < 4; k++) acc[i][j + k] = v[k];
            }
        }
    }

    // The terms from `from` until `until`; load_a(e, k0) gives element (or four) e of the step from
    // term k0 on, or where it lies. While a step is multiplied, the next one's are on their way.
    // What the kernel before cannot have written, the first (EARLY 1) or the second factor (2), is
    // before that one is over.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename B>
    __device__ __forceinline__ void multiply(unsigned from, unsigned until, A load_a, B load_b,
                                             bool next_early, tile_products &to) {
        feed<BM, ALONG_A, false, decltype(made(load_a, 0u, from, value_of(load_a(0u, from)))), A> a(
            load_a);
        feed<BN, ALONG_B, true, decltype(made(load_b, 0u, from, value_of(load_b(0u, from)))), B> b(
            load_b);
        const unsigned own = part() * (KC / PARTS);
        const word_places<BM, MASK> at_a(own, top() ^ turned(own));
        const word_places<BN, MASK> at_b(own, across() * 4u ^ turned(own));
        if (EARLY == 1) a.begin(from);
        if (EARLY == 2) b.begin(from);
        await_previous(next_early);
        // Where the compiler knows that there are few steps it makes one of them, and spills.
        until = kept(until);
        if (EARLY != 1) a.begin(from);
        if (EARLY != 2) b.begin(from);
        for (unsigned k0 = from; k0 < until;) {
            // Where a step lies is then part of the instructions.
#pragma unroll
            for (int turn = 0; turn < 2; turn++) {
                a.store(factor(turn, 0), k0);
                b.store(factor(turn, 1), k0);
                k0 += KC;
                const bool more = k0 < until;
                // Begun before the barrier, where no compiler puts them behind the step.
                a.next(k0, more);
                b.next(k0, more);
                __syncthreads();
                step(turn, at_a, at_b, to);
                if (!more) break;
            }
        }
    }
};
