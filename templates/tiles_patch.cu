// What a tile's lines see of a factor that is read through windows lies in shared memory once, as
// it does in memory, wherever the windows overlap: ELEMENTS that element(e) gives. A line has a
// term at line() + term(), and a line that is a sum of others without a common bit at the sum of
// their places.
template <int ELEMENTS, typename E, typename L, typename K>
struct patch_load {
    E element;
    L line;
    K term;
};
template <int ELEMENTS, typename E, typename L, typename K>
static __device__ __forceinline__ patch_load<ELEMENTS, E, L, K> patch(E element, L line, K term) {
    return {element, line, term};
}

// BM rows by BN columns of a product of TERMS, all at once, rounded to TF32; the rows' factor is a
// patch, or (ACROSS) the columns' is, the other one is there in steps of KC terms. Warps and
// threads as tensor_sums has them.
template <int BM, int BN, int KC, int TERMS, int WM, int WN, int V, int ELEMENTS, bool ACROSS>
struct patch_tile : tensor_sums<BM, BN, 1, WM, WN, V> {
    typedef tensor_sums<BM, BN, 1, WM, WN, V> own_sums;
    typedef typename own_sums::tile_products tile_products;
    typedef tensor_type<float> type;
    static const int STEPS = (TERMS + KC - 1) / KC, LINES = ACROSS ? BM : BN;
    static const int SEEN = ACROSS ? WN : WM, OTHERS = ACROSS ? WM : WN;  // lines of a warp
    static const int EACH = KC / 8, WHOLE = TERMS / 8 / EACH;  // steps that are, in eights of terms
    static const int LOADS = (ELEMENTS + 255) / 256;           // of a thread
    __align__(128) float factor[STEPS][LINES * KC];
    float seen[ELEMENTS];
    int2 places[STEPS * KC / 2];  // of terms t and t + 4 of eight, -1 behind the last one

    __device__ __forceinline__ void finish(const tile_products &own,
                                           float (&acc)[own_sums::RM][own_sums::RN]) {
        own_sums::arrange(own.c, acc);
    }

    template <typename F>
    __device__ __forceinline__ void load(F &feed) {
        feed.begin(0u);
#pragma unroll
        for (int n = 0; n < STEPS; n++) {
            feed.copy(factor[n], n * KC);
            feed.load(n * KC);
            feed.store(factor[n], n * KC);
            feed.move();
        }
        end_step();
    }
    // The patch, of which all is on its way before some is stored, and where terms are in it.
    template <typename P>
    __device__ __forceinline__ void look(const P &from) {
        float v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const unsigned e = threadIdx.x + 256u * i;
            v[i] = 256 * (i + 1) <= ELEMENTS || e < ELEMENTS ? from.element(e) : 0.f;
        }
        for (unsigned n = threadIdx.x; n < STEPS * KC / 2; n += 256u) {
            const unsigned k = n / 4u * 8u + n % 4u;
            places[n] =
                make_int2(k < TERMS ? from.term(k) : -1, k + 4u < TERMS ? from.term(k + 4u) : -1);
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const unsigned e = threadIdx.x + 256u * i;
            if (256 * (i + 1) <= ELEMENTS || e < ELEMENTS) seen[e] = type::rounded(v[i]);
        }
    }

    // Fragments of LINES lines of the patch and eight terms that are `at`, from line `first` on;
    // SOME: a term may be none. As of tensor_type, ACROSS: of columns.
    template <bool SOME, int N, typename P>
    __device__ __forceinline__ void see(unsigned (&q)[N][4], const P &from, int first,
                                        int2 at) const {
#pragma unroll
        for (int e = 0; e < 4 * N; e++) {
            const bool above = (ACROSS ? e / 2 : e) % 2, later = (ACROSS ? e : e / 2) % 2;
            const int place = later ? at.y : at.x, line = from.line(e / 4 * 16u + above * 8u);
            const float v = SOME && place < 0 ? 0.f : seen[first + place + line];
            q[e / 4][e % 4] = __float_as_uint(v);
        }
    }
    template <bool SOME, bool RAW, typename P, typename AT>
    __device__ __forceinline__ void add(const P &from, int first, const AT &at, int step, int s,
                                        tile_products &to) const {
        unsigned own[SEEN / 16][4], others[OTHERS / 16][4];
        const int2 place = places[step * (KC / 2) + s * 4 + threadIdx.x % 4u];
#pragma unroll
        for (int j = 0; j < OTHERS / 16; j++) {
            at.fragment(others[j], factor[step], j, s);
            if (RAW) type::round_words(others[j]);
        }
        see<SOME>(own, from, first, place);
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++) {
                const unsigned(&a)[4] = ACROSS ? others[i] : own[i],
                      (&b)[4] = ACROSS ? own[j / 2] : others[j / 2];
                type::multiply_add(to.c[i][j], a, b[j % 2 * 2], b[j % 2 * 2 + 1]);
            }
    }

    template <bool ALONG, bool EARLY, typename P, typename L>
    __device__ __forceinline__ void multiply_seen(const P &from, L load_others, bool next_early,
                                                  tile_products &to) {
        typedef tensor_feed<float, LINES, KC, ALONG, decltype(load_others(0u, 0u)), L> feed;
        feed others(load_others);
        if (EARLY) load(others);
        await_previous(next_early);
        if (!EARLY) load(others);
        look(from);
        await_steps<0>();
        __syncthreads();
        const unsigned top = own_sums::top(), left = own_sums::left();
        const lane_places<float, LINES, KC, ALONG, !ACROSS, OTHERS, KC> at(ACROSS ? top : left, 0u);
        const int first = from.line((ACROSS ? left : top) + own_sums::lane() / 4u);
#pragma unroll 1
        for (int n = 0; n < WHOLE; n++)
#pragma unroll
            for (int s = 0; s < EACH; s++) add<false, feed::RAW>(from, first, at, n, s, to);
#pragma unroll
        for (int s = 0; s < (TERMS + 7) / 8 - WHOLE * EACH; s++) {
            if ((WHOLE * EACH + s + 1) * 8 <= TERMS)
                add<false, feed::RAW>(from, first, at, WHOLE, s, to);
            else add<true, feed::RAW>(from, first, at, WHOLE, s, to);
        }
    }
    // As tensor_tile has it, of all terms.
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename E, typename L, typename K, typename B>
    __device__ __forceinline__ void multiply(unsigned, unsigned,
                                             patch_load<ELEMENTS, E, L, K> load_a, B load_b,
                                             bool next_early, tile_products &to) {
        multiply_seen<ALONG_B, EARLY == 2>(load_a, load_b, next_early, to);
    }
    template <bool ALONG_A, bool ALONG_B, int EARLY, typename A, typename E, typename L, typename K>
    __device__ __forceinline__ void multiply(unsigned, unsigned, A load_a,
                                             patch_load<ELEMENTS, E, L, K> load_b, bool next_early,
                                             tile_products &to) {
        multiply_seen<ALONG_A, EARLY == 1>(load_b, load_a, next_early, to);
    }
};
