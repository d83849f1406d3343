//@key tiles     whether products have tiles; attention copies what its own loads find
//@key computed  whether some of their elements are made of what loads find
//@key moved     whether addresses are moved by bytes
//@key spaced    whether some loads are spaced ...
//@key moving    ... or moving ...
//@key turning   ... or turning ...
//@key taps      ... or take their terms' places from a table
// How the threads of a product's tile load its factors: a load gives values, or says where they
// lie.

// What a load finds in memory: V at `from`, or zeros where it is not `inside`.
template <typename V>
struct fetched {
    const V *from;
    bool inside;
    __device__ __forceinline__ V value() const { return inside ? *from : V(); }
};
template <typename V, typename T>
static __device__ __forceinline__ fetched<V> fetch(const T *from, bool inside = true) {
    return {reinterpret_cast<const V *>(from), inside};
}

//@if moved
template <typename V>
static __device__ __forceinline__ const V *moved(const V *from, size_t bytes) {
    return reinterpret_cast<const V *>(reinterpret_cast<const char *>(from) + bytes);
}
//@end
//@if tiles

template <typename T>
const T &some();  // of which only the type is asked
//@if spaced

// Loads of which a thread's in one step lie APART bytes from each other, every 256th of the step.
template <unsigned APART, typename L>
struct spaced_load {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, k0)) {
        return load(e, k0);
    }
};
template <unsigned APART, typename L>
static __device__ __forceinline__ spaced_load<APART, L> spaced(L load) {
    return {load};
}
//@end
//@if moving

// Loads that lie BYTES further on for each term; a thread's in one step as those, or (APART 0) the
// load says where.
template <unsigned BYTES, unsigned APART, typename L>
struct moving_load {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const -> decltype(load(e)) {
        const auto v = load(e);
        return {moved(v.from, size_t(k0) * BYTES), v.inside};
    }
};
template <unsigned BYTES, unsigned APART, typename L>
static __device__ __forceinline__ moving_load<BYTES, APART, L> moving(L load) {
    return {load};
}
//@end
//@if turning

// Loads that lie BYTES further on for each of INNER terms, which are whole steps, and elsewhere
// behind them; a thread's in one step lie APART bytes from each other.
template <unsigned BYTES, unsigned APART, unsigned INNER, typename L>
struct turning_load {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, k0)) {
        return load(e, k0);
    }
};
template <unsigned BYTES, unsigned APART, unsigned INNER, typename L>
static __device__ __forceinline__ turning_load<BYTES, APART, INNER, L> turning(L load) {
    return {load};
}
//@end
//@if taps

// Loads that have what a term adds to their place from a table; WIDE of a step are of one term, and
// TURNS of a thread's, one behind the other, of one line.
template <unsigned WIDE, unsigned TURNS, typename L, typename TAP>
struct tapped_load {
    L load;
    const TAP *taps;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, *taps)) {
        return load(e, taps[k0 + e / WIDE % (256u / WIDE * TURNS)]);
    }
};
template <unsigned WIDE, unsigned TURNS, typename L, typename TAP>
static __device__ __forceinline__ tapped_load<WIDE, TURNS, L, TAP> tapped(L load, const TAP *taps) {
    return {load, taps};
}
//@end

// The thread's load number i of the step from term k0 on.
template <typename L>
static __device__ __forceinline__ auto nth_load(const L &load, unsigned i, unsigned k0)
    -> decltype(load(0u, 0u)) {
    return load(threadIdx.x + 256u * i, k0);
}
//@if spaced
template <unsigned APART, typename L>
static __device__ __forceinline__ auto nth_load(const spaced_load<APART, L> &load, unsigned i,
                                                unsigned k0) -> decltype(load(0u, 0u)) {
    return {moved(load(threadIdx.x, k0).from, size_t(i) * APART),
            load(threadIdx.x + 256u * i, k0).inside};
}
//@end
//@if taps
template <unsigned WIDE, unsigned TURNS, typename L, typename TAP>
static __device__ __forceinline__ auto nth_load(const tapped_load<WIDE, TURNS, L, TAP> &a,
                                                unsigned i, unsigned k0)
    -> decltype(a.load(0u, *a.taps)) {
    const TAP *const first = a.taps + k0 + threadIdx.x / WIDE;
    return a.load(threadIdx.x + i / TURNS * (256u * TURNS), first[256u / WIDE * (i % TURNS)]);
}
//@end

// A load's elements.
template <typename V>
static __device__ __forceinline__ V value_of(const V &v) {
    return v;
}
template <typename V>
static __device__ __forceinline__ V value_of(const fetched<V> &v) {
    return v.value();
}

// What a load gives as it is stored: what it found, or what is made of that. Computed at once it
// would be waited for.
template <typename L, typename V>
static __device__ __forceinline__ V made(const L &, unsigned, unsigned, const V &v) {
    return v;
}
//@if computed
template <typename L, typename M>
struct computed_load {
    L load;
    M make;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, k0)) {
        return load(e, k0);
    }
};
template <typename L, typename M>
static __device__ __forceinline__ computed_load<L, M> computed(L load, M make) {
    return {load, make};
}
template <typename L, typename M, typename V>
static __device__ __forceinline__ auto made(const computed_load<L, M> &a, unsigned e, unsigned k0,
                                            const V &found) -> decltype(a.make(e, k0, found)) {
    return a.make(e, k0, found);
}
//@end

// Where a thread's N loads of a step of KC terms find their elements: the load says it each time;
// one that moves says it once, and what lies outside stays so.
template <int N, int KC, typename V, typename L>
struct load_places {
    __device__ __forceinline__ void begin(const L &, unsigned) {}
    __device__ __forceinline__ auto get(const L &load, unsigned i, unsigned k0) const
        -> decltype(nth_load(load, i, k0)) {
        return nth_load(load, i, k0);
    }
    __device__ __forceinline__ void take(V &v, const L &load, unsigned i, unsigned k0) const {
        v = value_of(get(load, i, k0));
    }
    // To the step from term k0 on.
    __device__ __forceinline__ void move(const L &, unsigned) {}
};
//@if moving
template <int N, int KC, typename V, unsigned BYTES, unsigned APART, typename L>
struct load_places<N, KC, V, moving_load<BYTES, APART, L> > {
    typedef moving_load<BYTES, APART, L> load_type;
    fetched<V> at[N];
    __device__ __forceinline__ void begin(const load_type &load, unsigned k0) {
#pragma unroll
        for (unsigned i = 0; i < N; i++) at[i] = nth_load(load, i, k0);
    }
    __device__ __forceinline__ fetched<V> get(const load_type &, unsigned i, unsigned) const {
        if (!APART) return at[i];
        return {moved(at[0].from, size_t(i) * APART), at[i].inside};
    }
    // Into what is zero at first.
    __device__ __forceinline__ void take(V &v, const load_type &load, unsigned i, unsigned) const {
        const fetched<V> found = get(load, i, 0u);
        if (found.inside) v = *found.from;
    }
    __device__ __forceinline__ void move(const load_type &, unsigned) {
#pragma unroll
        for (unsigned i = 0; i < (APART ? 1u : N); i++)
            at[i].from = moved(at[i].from, size_t(KC) * BYTES);
    }
};
//@end
//@if turning
template <int N, int KC, typename V, unsigned BYTES, unsigned APART, unsigned INNER, typename L>
struct load_places<N, KC, V, turning_load<BYTES, APART, INNER, L> > {
    typedef turning_load<BYTES, APART, INNER, L> load_type;
    fetched<V> at[N];
    __device__ __forceinline__ void begin(const load_type &load, unsigned k0) {
#pragma unroll
        for (unsigned i = 0; i < N; i++) at[i] = nth_load(load, i, k0);
    }
    __device__ __forceinline__ void take(V &v, const load_type &, unsigned i, unsigned) const {
        v = fetched<V>{moved(at[0].from, size_t(i) * APART), at[i].inside}.value();
    }
    __device__ __forceinline__ void move(const load_type &load, unsigned k0) {
        if (k0 % INNER == 0u) begin(load, k0);
        else at[0].from = moved(at[0].from, size_t(KC) * BYTES);
    }
};
//@end

// Makes a number known before a loop, where the compiler would make it anew in every turn.
static __device__ __forceinline__ unsigned kept(unsigned v) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(v));
#endif
    return v;
}
//@end
