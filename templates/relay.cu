//@key name    the kernel's name
//@key params  its parameters
// A tensor known at load, in another order: element (i0, i1, ..) goes from base + sum from[k] * ik
// to sum to[k] * ik.
struct relay {
    int rank;
    long long base, n[6], from[6], to[6];
};

static __global__ void __launch_bounds__(256) $name(const relay r, $params) {
    await_previous(next_early);
    long long id = (long long)blockIdx.x * 256 + threadIdx.x, from = r.base, to = 0;
    for (int k = r.rank - 1; k >= 0; k--) {
        from += id % r.n[k] * r.from[k];
        to += id % r.n[k] * r.to[k];
        id /= r.n[k];
    }
    if (id == 0) y[to] = p0[from];
}
