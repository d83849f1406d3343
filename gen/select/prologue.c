// The prologue of a tiled product, what it computes while it loads a factor: a map that nothing
// else reads, such as a normalization and its activation in front of a convolution. No kernel
// stores the map; every load of the product computes it, as often as tiles and windows load an
// element. Decided by cost.

// Maps that the loads of a product compute, in no order.
typedef struct ein__prologue {
    int n;
    ein__val v[2];
} ein__prologue;

// What product `s`, map `m` behind it that reads it by `read` (or none), and its loads cost as a
// kernel of our own, and whether that is `known` from a measurement.
static int64_t ein__cost_loading(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                                 const ein__prologue *p, bool *known) {
    int64_t out[EIN__MAX_RANK];
    ein__kernel k = ein__scope_kernel(ctx, EIN__K_PRODUCT, s, m, read, out);
    memcpy(k.load, p->v, sizeof k.load);
    *known = ein__kernel_row(ctx, &k) != NULL;
    return ein__cost_kernel(ctx, &k);
}
