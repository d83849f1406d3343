//@key threads  whether threads add up what they load
//@key warps    whether warps add up fragments of it (tiles_mma.cu)
//@if threads
// Sums along the rows of a product's first factor, of what each thread loads of it: W neighbouring
// terms of a line at a time, BM lines of KC terms a step. The threads that share a line are LANES
// neighbours, in PARTS warps.
template <int BM, int KC, int W>
struct row_sums {
    static const int N = BM * KC / W / 256, LANES = KC / W < 32 ? KC / W : 32;
    static const int PARTS = KC / W / LANES;
    float sum[N], square[N];

    __device__ __forceinline__ void add(int i, float v) {
        sum[i] += v;
        square[i] += v * v;
    }
    __device__ __forceinline__ void add(int i, float4 v) {
        const float w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) add(i, w[k]);
    }

    // The threads' sums v of each line, added up in a fixed order.
    static __device__ __forceinline__ void total(const float (&v)[N], float (&to)[BM][PARTS]) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const unsigned e = threadIdx.x + 256u * i;
            float s = v[i];
#pragma unroll
            for (int k = LANES / 2; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
            if (e % LANES == 0u) to[e / (KC / W)][e % (KC / W) / LANES] = s;
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
// A load whose values are added up, the step's while the next one is on its way.
template <typename L, typename S>
struct summed_load {
    L load;
    S *sums;
    template <typename E>
    __device__ __forceinline__ auto operator()(E e, unsigned k0) const -> decltype(load(e, k0)) {
        return load(e, k0);
    }
};
template <typename L, typename S>
static __device__ __forceinline__ summed_load<L, S> summing(L load, S *sums) {
    return {load, sums};
}
template <typename L, typename S>
static __device__ __forceinline__ auto nth_load(const summed_load<L, S> &a, unsigned i, unsigned k0)
    -> decltype(a.load(0u, 0u)) {
    return nth_load(a.load, i, k0);
}
template <typename L, typename S, typename V>
static __device__ __forceinline__ auto made(const summed_load<L, S> &a, unsigned e, unsigned k0,
                                            const V &found)
    -> decltype(made(a.load, e, k0, found)) {
    return made(a.load, e, k0, found);
}
template <int N, int KC, typename V, typename L, typename S>
struct load_places<N, KC, V, summed_load<L, S> > : load_places<N, KC, V, L> {
    typedef load_places<N, KC, V, L> plain;
    __device__ __forceinline__ void begin(const summed_load<L, S> &a, unsigned k0) {
        plain::begin(a.load, k0);
    }
    __device__ __forceinline__ auto get(const summed_load<L, S> &a, unsigned i, unsigned k0) const
        -> decltype(nth_load(a.load, i, k0)) {
        return plain::get(a.load, i, k0);
    }
    __device__ __forceinline__ void move(const summed_load<L, S> &a, unsigned k0) {
        plain::move(a.load, k0);
    }
    __device__ __forceinline__ void take(V &v, const summed_load<L, S> &a, unsigned i,
                                         unsigned k0) const {
        plain::take(v, a.load, i, k0);
    }
};
//@if threads
template <typename L, typename V>
static __device__ __forceinline__ void loaded(const L &, int, const V &) {}
template <typename L, typename S, typename V>
static __device__ __forceinline__ void loaded(const summed_load<L, S> &a, int i, const V &v) {
    a.sums->add(i, v);
}
//@end
//@if warps
template <typename L>
static __device__ __forceinline__ void begin_rows(const L &) {}
template <typename L, typename S>
static __device__ __forceinline__ void begin_rows(const summed_load<L, S> &a) {
    a.sums->begin();
}
template <typename L>
static __device__ __forceinline__ void take_rows(const L &, unsigned (&)[4], int) {}
template <typename L, typename S>
static __device__ __forceinline__ void take_rows(const summed_load<L, S> &a, unsigned (&x)[4],
                                                 int i) {
    a.sums->take(x, i);
}
template <typename L, typename T>
static __device__ __forceinline__ void take_step(const L &, const T *) {}
template <typename L, typename S, typename T>
static __device__ __forceinline__ void take_step(const summed_load<L, S> &a, const T *rows) {
    a.sums->take_step(rows);
}

// Lines that are added up as they are loaded.
struct unshifted {};
//@end
