//@key parts     blocks share the terms of a tile
//@key rows      they share sums along its rows too
//@key together  some such blocks are a cluster
// Whether this block is the last of n to arrive. What the others wrote before they arrived it may
// read (by __ldcg) then, and the counter is 0 again. A template, since a device may need none.
template <typename U>
static __device__ __forceinline__ bool arrives_last(U *arrived, unsigned n) {
    int last = 0;
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0u) {
        __threadfence();
        last = atomicInc(arrived, n - 1u) == n - 1u;
        __threadfence();
    }
    return __syncthreads_or(last) != 0;
}
//@if parts

// How PARTS blocks share the terms of a tile of LINES rows: each leaves its sums, N vectors of four
// a thread, in memory; behind those of all tiles, two sums of each of its rows. The last to arrive
// goes on with what all have left, OWN vectors a thread.
template <int PARTS, int N, int LINES>
struct parts_in_memory {
    static const int COUNT = PARTS, VECTORS = N, ROWS = LINES, OWN = N, TURNS = 1;
    float4 *sums;
    float *rows;
    unsigned *arrived;

    __device__ __forceinline__ parts_in_memory(float4 *parts, unsigned *counters, void *)
        : sums(parts + blockIdx.x * (N * 256u)),
          rows(reinterpret_cast<float *>(parts + gridDim.x * (N * 256u)) +
               blockIdx.x * (2u * LINES)),
          arrived(counters + blockIdx.x / PARTS) {}
    static __device__ __forceinline__ int part() { return int(blockIdx.x % PARTS); }
    // Which of the TURNS blocks that go on this is.
    static __device__ __forceinline__ unsigned turn() { return 0u; }
    // Of vector n of those that this thread goes on with: where it lies, that is, which vector of
    // which thread's sums it is; and whether there is one.
    static __device__ __forceinline__ unsigned place(int n) { return n * 256u + threadIdx.x; }
    static __device__ __forceinline__ int vector(int n) { return n; }
    static __device__ __forceinline__ unsigned thread(int) { return threadIdx.x; }
    static __device__ __forceinline__ bool has(int) { return true; }
    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ bool arrive() const { return arrives_last(arrived, PARTS); }
    // What block p has left where this one left *own: in memory blocks are `apart`.
    template <typename T>
    __device__ __forceinline__ T of(const T *own, int p, int apart) const {
        return __ldcg(own + (p - part()) * apart);
    }
    template <int SUMS>
    __device__ __forceinline__ void leave(const float (&)[SUMS]) const {}
    __device__ __forceinline__ void end() const {}
};

template <typename S, int RM, int RN>
static __device__ __forceinline__ void leave_part(const S &shares, const float (&acc)[RM][RN]) {
    shares.begin();
#pragma unroll
    for (unsigned e = 0; e < unsigned(S::VECTORS); e++) {
        float v[4];
#pragma unroll
        for (unsigned k = 0; k < 4u; k++) v[k] = acc[(4 * e + k) / RN][(4 * e + k) % RN];
        shares.sums[e * 256u + threadIdx.x] = make_float4(v[0], v[1], v[2], v[3]);
    }
}

// All parts of what this block goes on with, added up in order, whichever of them is its own.
template <typename S>
static __device__ __forceinline__ void add_parts(const S &shares, float (&sum)[4 * S::OWN]) {
#pragma unroll
    for (int n = 0; n < S::OWN; n++) {
        if (!S::has(n)) break;
#pragma unroll
        for (int p = 0; p < S::COUNT; p++) {
            const float4 w = shares.of(shares.sums + S::place(n), p, S::VECTORS * 256);
            sum[4 * n] += w.x, sum[4 * n + 1] += w.y, sum[4 * n + 2] += w.z, sum[4 * n + 3] += w.w;
        }
    }
}
//@end
//@if rows

template <typename S>
static __device__ __forceinline__ float add_row(const S &shares, int kind, unsigned line) {
    float s = 0.f;
#pragma unroll
    for (int p = 0; p < S::COUNT; p++)
        s += shares.of(shares.rows + kind * S::ROWS + line, p, 2 * S::ROWS);
    return s;
}
//@end
//@if together

// The same where these blocks are a cluster (of compute capability 9.0 and later): each leaves its
// sums in its own shared memory, from the beginning of the tile on, and goes on with a share of
// what all have left. Compiled with -DNO_CLUSTERS they share memory there, too.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(NO_CLUSTERS)
#define CLUSTER(n) __launch_bounds__(256, 1) __cluster_dims__(n)
template <int PARTS, int N, int LINES>
struct parts_in_cluster {
    static const int COUNT = PARTS, VECTORS = N, ROWS = LINES, OWN = (N + PARTS - 1) / PARTS,
                     TURNS = PARTS, SHARE = N * 256 / PARTS;
    static const bool SAME = N % PARTS == 0;  // threads go on with their own places
    float4 *sums;
    float *rows;

    __device__ __forceinline__ parts_in_cluster(float4 *, unsigned *, void *tile)
        : sums(static_cast<float4 *>(tile)), rows(static_cast<float *>(tile) + N * 1024) {}
    static __device__ __forceinline__ unsigned turn() { return blockIdx.x % PARTS; }
    static __device__ __forceinline__ unsigned place(int n) {
        return turn() * SHARE + n * 256u + threadIdx.x;
    }
    static __device__ __forceinline__ int vector(int n) {
        return SAME ? int(turn()) * OWN + n : int(place(n) / 256u);
    }
    static __device__ __forceinline__ unsigned thread(int n) {
        return SAME ? threadIdx.x : place(n) % 256u;
    }
    static __device__ __forceinline__ bool has(int n) {
        return SAME || n * 256u + threadIdx.x < unsigned(SHARE);
    }
    // All threads have read what they multiply.
    __device__ __forceinline__ void begin() const { __syncthreads(); }
    __device__ __forceinline__ bool arrive() const {
        asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
        end();
        return true;
    }
    template <typename T>
    __device__ __forceinline__ T of(const T *own, int p, int) const {
        const T *other;
        asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(p));
        return *other;
    }
    // No block ends while others read what it has left. That their threads have got what they read
    // is known when something was made of it; to say so, nothing has to be visible to others, for
    // which a block would wait half a microsecond.
    template <int SUMS>
    __device__ __forceinline__ void leave(const float (&sum)[SUMS]) const {
        unsigned bits = 0u;
#pragma unroll
        for (int s = 0; s < SUMS; s++) bits |= __float_as_uint(sum[s]);
        __syncthreads_or(bits != 0u);
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
    __device__ __forceinline__ void end() const {
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    }
};
#else
#define CLUSTER(n) __launch_bounds__(256, 1)
template <int PARTS, int N, int LINES>
struct parts_in_cluster : parts_in_memory<PARTS, N, LINES> {
    __device__ __forceinline__ parts_in_cluster(float4 *parts, unsigned *counters, void *tile)
        : parts_in_memory<PARTS, N, LINES>(parts, counters, tile) {}
};
#endif
//@end
