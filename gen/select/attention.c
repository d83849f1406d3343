// Online softmax (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et
// al. 2022, FlashAttention, section 3.1): a product, a softmax along one of its dimensions and a
// second product that sums over this dimension, as one kernel that never stores the scores. With
//     m = max(s) x[s],  l = sum(s) exp(x[s] - m),  a = sum(s) exp(x[s] - m) * v[s]
// over two disjoint sets of keys s, the triples (m1, l1, a1) and (m2, l2, a2) give that of the
// union:
//     m = max(m1, m2),  l = l1 * exp(m1 - m) + l2 * exp(m2 - m),  a likewise,
// because exp(x - m1) * exp(m1 - m) = exp(x - m); (-inf, 0, 0) is that of no key. So keys may come
// in tiles, with a maximum, a sum and an accumulator for each row.
//
// What is looked for, in values and expressions alone: a sum over s whose terms, with the maps that
// lead to them put in place, are exp(x - m) times v times what is free of s; m the maximum of the
// same x over the same s; x any expression in one element of a product (scale, mask, bias). The sum
// l is looked for among the other factors and in the map behind, so the division may come before
// the second product or after it. Weights that are NaN may be replaced by 0, as exporters do for
// rows without keys: all weights of a row are NaN or none is. And a condition may leave weights out
// of the second product, as masks do that are applied to weights too. All other sums there are just
// read.
// Nothing on the way may be read elsewhere. Where x is made of no product, it may be any
// expression: then all maps over as many elements as there are scores are put in place, and the
// kernel begins with x.
//
// What x is compared with may be larger than m, as it is where scores have some beside them that no
// value belongs to: sinks (Xiao et al. 2023, StreamingLLM), which are concatenated or spelled out.
// Weights are exp(x - b) = exp(x - m) * exp(m - b) then, b any expression in m: the result has the
// second factor for both sums, and the terms that l has beside those of the keys.
//
// Without an exponential x itself is the weight, any expression in one element of a product, as it
// is where scores go through a sigmoid or decay with the distance (Sun et al. 2023, RetNet; Zhai et
// al. 2024, HSTU): nothing is scaled then, and the sum of the weights, or that of their absolute
// values, is looked for alike.

enum {
    EIN__ATTENTION_VALUES = 9,  // a step has one more, which it stores, and loads
    EIN__ATTENTION_LOADS = EIN__STEP_VALUES - EIN__ATTENTION_VALUES - 1,
    EIN__ATTENTION_MAPS = 4,       // maps between the first product and x
    EIN__ATTENTION_KEYS = 3,       // dimensions that the softmax runs over
    EIN__ATTENTION_SINKS = 4,      // scores of a row that are of no key
    EIN__ATTENTION_COLUMNS = 256,  // of the values, in tiles
    EIN__ATTENTION_GROUPS = 4096,  // of heads that share a key
    EIN__ATTENTION_LOOKS = 100     // values looked at, and maps put in place, for one attention
};

// Slots of `box`: the result's traversal, the keys, then the depth of the first product.
typedef struct ein__attention {
    ein__scope box;
    uint32_t nt, slots;           // traversal slots, all of them
    ein__ex query, key, value;    // factors of both products: reads, or what loads compute
    double alpha;                 // constant factor of the first product
    bool soft;                    // weights are a softmax of x; else they are x
    bool absolute;                // then: `sum` is that of their absolute values
    ein__ex score;                // x, which reads `dot`
    ein__ex gate;                 // 0 where a weight does not count for the second product; else 1
    ein__ex result;               // what is stored; reads `out`, and perhaps `sum` and `max`
    ein__ex top;                  // the row's maximum: the only read of `max`; 0 if there is none
    ein__ex by, shift;            // b, and exp(m - b); none where b is m
    ein__val dot, max, sum, out;  // dot: none where x is made of no product; query and key are 0
    int64_t plain;                // then: how many scores there are; else 0
    uint32_t batch, rows, cols, keys, depth;  // slots, as bits; those of extent 1 are in none
    // A band: key and value are read at m + d * j, m a row and j a key, and nowhere else at m or j.
    bool band;
    int m, j;
    int64_t d;
    // Heads in groups of `each` that share a key: slot `head` counts those of a group, slot `group`
    // the groups. each: 0 or 1 elsewhere.
    int head, group;
    int64_t each;
    int n;  // values that only live inside the kernel, `out` among them when a map is behind it
    ein__val inner[EIN__ATTENTION_VALUES];
    int nload;  // maps, and copies of them, that its loads compute (attention_loads.c)
    ein__val load[EIN__ATTENTION_LOADS];
    int looks;
} ein__attention;

static bool ein__attention_absorb(ein__attention *a, ein__val v) {
    for (int i = 0; i < a->n; i++)
        if (a->inner[i].i == v.i) return true;
    if (a->n == EIN__ATTENTION_VALUES) return false;
    a->inner[a->n++] = v;
    return true;
}

// Whether `x` has as many elements as `y`, or a few more or fewer along one dimension, as it has
// where scores of no key are beside those of the keys.
static bool ein__is_about(const ein__shape *x, const ein__shape *y) {
    int others = 0;
    if (ein__elements(x) == ein__elements(y)) return true;
    for (int k = 0; k < x->rank && x->rank == y->rank; k++) {
        int64_t more = x->d[k] > y->d[k] ? x->d[k] - y->d[k] : y->d[k] - x->d[k];
        if (more) others += more <= EIN__ATTENTION_SINKS ? 1 : 2;
    }
    return x->rank == y->rank && others == 1;
}

// Whether `v` is a map over about as many elements of a product, itself or through other such maps.
static bool ein__is_over_product(ein_ctx *ctx, ein__val v, int depth, int *looks) {
    if (!ein__is_map(ctx, v) || ctx->value[v.i].weight_only || depth > EIN__ATTENTION_MAPS ||
        ++*looks > EIN__ATTENTION_LOOKS)
        return false;
    bool found = false;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !found; i++) {
        ein__val r = {ein__ex_get(ctx, reads[i])->val};
        const ein__scope *s = ein__scope_of(ctx, r);
        if (!s || !ein__is_about(&ctx->value[r.i].shape, &ctx->value[v.i].shape)) continue;
        found = ein__is_contraction(ctx, s) || ein__is_over_product(ctx, r, depth + 1, looks);
    }
    return found;
}

// Elements that `ex`, in the slots of the box, stands for.
static int64_t ein__attention_volume(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    uint32_t used = ein__ex_uses(ctx, ex);
    int64_t n = 1;
    for (uint32_t i = 0; i < a->nt + a->box.ns; i++)
        if (used >> i & 1) n = ein__times(n, a->box.n[i]);
    return n;
}

// Whether map `p` is one of those that lead from the first product, or whatever there is instead,
// to the weights.
static bool ein__attention_leads(ein_ctx *ctx, ein__attention *a, ein__val p) {
    if (!a->plain) return ein__is_over_product(ctx, p, 0, &a->looks);
    return ein__is_map(ctx, p) && !ctx->value[p.i].weight_only &&
           ein__elements(&ctx->value[p.i].shape) == a->plain && ++a->looks <= EIN__ATTENTION_LOOKS;
}

// A read of a map over a product: its definition in place.
static ein__ex ein__attention_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__attention *a = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val p = {e->val};
    if (!ein__attention_leads(ctx, a, p)) return ex;
    ein__ex body = ein__rule_inline(ctx, p, e);
    if (!body.i || ein__ex_size(ctx, body) > EIN__MAX_INLINE || !ein__attention_absorb(a, p))
        return ex;
    return ein__ex_replace_reads(ctx, body, ein__attention_read, a);
}

static ein__ex ein__attention_expand(ein_ctx *ctx, ein__attention *a, ein__ex ex) {
    return ex.i ? ein__ex_replace_reads(ctx, ex, ein__attention_read, a) : ex;
}

// The terms of the second product, taken apart: one weight, which is an exponential where weights
// are a softmax, one read of the keys' values, the other factors free of the keys.
typedef struct ein__attention_terms {
    ein__attention *a;
    ein__ex softmax;  // a read whose definition has the weight, or none
    ein__ex mark;     // what stands for the sum
    ein__ex weight;   // found
    ein__ex total;    // a read that has to be the exponentials' sum, or none
} ein__attention_terms;

// The conditions of a select whose other case is 0: free of the keys, or that the weight, which is
// an exponential over the sum of all, is no number. The largest exponential is 1, so then the sum
// is none either, and no weight of the row is.
static bool ein__attention_condition(ein_ctx *ctx, ein__attention_terms *z, ein__expr *e) {
    double zero;
    if (!ein__ex_is_const(ctx, e->kid[3], &zero) || zero != 0) return false;
    if (!((ein__ex_uses(ctx, e->kid[0]) | ein__ex_uses(ctx, e->kid[1])) & z->a->keys)) return true;
    const ein__expr *weight = ein__ex_get(ctx, e->kid[0]);
    if (e->fn != EIN__EQ || e->kid[0].i != e->kid[1].i || weight->op != EIN__X_BINARY ||
        weight->fn != EIN__DIV || e->kid[0].i != e->kid[2].i || z->total.i)
        return false;
    e->kid[0] = e->kid[1] = z->total = weight->kid[1];
    return ein__ex_get(ctx, weight->kid[0])->fn == EIN__EXP &&
           ein__ex_get(ctx, weight->kid[0])->op == EIN__X_UNARY &&
           ein__ex_get(ctx, z->total)->op == EIN__X_READ;
}

// Whether select `e` leaves weights out by a condition of the keys: a gate. Gives the others.
static ein__ex ein__attention_gates(ein_ctx *ctx, ein__attention_terms *z, const ein__expr *e) {
    ein__ex one = ein__ex_const(ctx, 1), zero = ein__ex_const(ctx, 0);
    uint32_t used = ein__ex_uses(ctx, e->kid[0]) | ein__ex_uses(ctx, e->kid[1]);
    bool first = e->kid[2].i == zero.i;
    if (!first && e->kid[3].i != zero.i) return (ein__ex){0};
    // A weight that is compared with itself is another matter.
    if (z->a->gate.i != one.i || !(used & z->a->keys) || e->kid[0].i == e->kid[1].i)
        return (ein__ex){0};
    z->a->gate = ein__ex_select(ctx, (ein__fn)e->fn, e->kid[0], e->kid[1], first ? zero : one,
                                first ? one : zero);
    return z->a->gate.i ? e->kid[2 + first] : (ein__ex){0};
}

static bool ein__attention_is_gated(ein_ctx *ctx, const ein__attention *a) {
    return ein__ex_get(ctx, a->gate)->op == EIN__X_SELECT;
}

// `ex`, which has the weight, with the mark in its place: what all keys have in common stays.
static ein__ex ein__attention_weight(ein_ctx *ctx, ein__attention_terms *z, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    bool quotient = e.op == EIN__X_BINARY && e.fn == EIN__DIV;
    for (int k = 0; k < 2 && (quotient || (e.op == EIN__X_BINARY && e.fn == EIN__MUL)); k++) {
        if ((quotient && k) || ein__ex_uses(ctx, e.kid[1 - k]) & z->a->keys) continue;
        e.kid[k] = ein__attention_weight(ctx, z, e.kid[k]);
        return e.kid[k].i ? ein__ex_make(ctx, &e) : (ein__ex){0};
    }
    z->weight = ex;
    return z->mark;
}

// `ex` with the weight replaced by the mark and without the value; none when it is nothing of the
// kind.
static ein__ex ein__attention_spine(ein_ctx *ctx, ein__attention_terms *z, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    if (!(ein__ex_uses(ctx, ex) & z->a->keys)) return ex;
    bool product = e.op == EIN__X_BINARY && (e.fn == EIN__MUL || e.fn == EIN__DIV);
    if (!z->a->soft && !product && ein__ex_contains(ctx, ex, z->softmax)) {
        ein__ex body = z->weight.i ? (ein__ex){0} : ein__attention_expand(ctx, z->a, ex);
        return body.i ? ein__attention_weight(ctx, z, body) : body;
    }
    if (z->a->soft && e.op == EIN__X_UNARY && e.fn == EIN__EXP && !z->weight.i) {
        z->weight = ex;
        return z->mark;
    }
    if (e.op == EIN__X_READ && ex.i == z->softmax.i) {
        ein__ex body = ein__attention_expand(ctx, z->a, ex);
        return body.i && body.i != ex.i ? ein__attention_spine(ctx, z, body) : (ein__ex){0};
    }
    if (e.op == EIN__X_READ && !z->a->value.i) {
        z->a->value = ex;
        return ein__ex_const(ctx, 1);
    }
    if (e.op == EIN__X_SELECT && e.fn == EIN__NE) {
        ein__ex kid = e.kid[2];
        e.kid[2] = e.kid[3];
        e.kid[3] = kid;
        e.fn = EIN__EQ;
    }
    if (e.op == EIN__X_SELECT && z->a->soft) {
        ein__ex open = ein__attention_gates(ctx, z, &e);
        if (open.i) return ein__attention_spine(ctx, z, open);
        if (!ein__attention_condition(ctx, z, &e)) return (ein__ex){0};
        e.kid[2] = ein__attention_spine(ctx, z, e.kid[2]);
        return e.kid[2].i ? ein__ex_make(ctx, &e) : (ein__ex){0};
    }
    if (!product) return (ein__ex){0};
    if (e.fn == EIN__DIV && ein__ex_uses(ctx, e.kid[1]) & z->a->keys) return (ein__ex){0};
    for (int k = 0; k < 2; k++) {
        e.kid[k] = ein__attention_spine(ctx, z, e.kid[k]);
        if (!e.kid[k].i) return (ein__ex){0};
    }
    return ein__ex_make(ctx, &e);
}

// `ex` where the gate is 0.
static ein__ex ein__attention_where_closed(ein_ctx *ctx, const ein__expr *gate, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_SELECT && e.kid[0].i == gate->kid[0].i && e.kid[1].i == gate->kid[1].i) {
        bool contrary =
            (e.fn == EIN__EQ && gate->fn == EIN__NE) || (e.fn == EIN__NE && gate->fn == EIN__EQ);
        int kid = gate->kid[2].i == ein__ex_const(ctx, 0).i ? 2 : 3;
        if (e.fn == gate->fn) return ein__attention_where_closed(ctx, gate, e.kid[kid]);
        if (contrary) return ein__attention_where_closed(ctx, gate, e.kid[5 - kid]);
    }
    for (uint32_t i = 0; i < e.nkid; i++) {
        e.kid[i] = ein__attention_where_closed(ctx, gate, e.kid[i]);
        if (!e.kid[i].i) return (ein__ex){0};
    }
    return e.nkid ? ein__ex_make(ctx, &e) : ex;
}

// Whether rows of which the gate leaves nothing have a sum of weights that is a number, so that the
// result is 0 there, as it is where no weight is added up: the score is a finite constant where the
// gate is 0. Where the gate leaves some weight and the sum is no number, no weight is.
static bool ein__attention_is_closable(ein_ctx *ctx, const ein__attention *a) {
    double v;
    if (!ein__attention_is_gated(ctx, a)) return true;
    const ein__expr gate = *ein__ex_get(ctx, a->gate);
    ein__ex closed = ein__attention_where_closed(ctx, &gate, a->score);
    return closed.i && ein__ex_is_const(ctx, closed, &v) && v - v == 0;
}

// Terms of a reduction beside those of the keys.
typedef struct ein__attention_beside {
    int n;
    ein__ex term[EIN__ATTENTION_SINKS];
} ein__attention_beside;

// The term of reduction `s` where its iterators are `map`.
static ein__ex ein__attention_term(ein_ctx *ctx, ein__attention *a, const ein__scope *s,
                                   const ein__ix *map) {
    return ein__attention_expand(ctx, a, ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns)));
}

// Whether the terms of `s`, of which iterator `slot` runs over a few places more than key `key`
// does, are `want` at the keys, in a row; `z`: what they are at the other places.
static bool ein__attention_longer(ein_ctx *ctx, ein__attention *a, const ein__scope *s,
                                  ein__ix *map, int slot, int key, ein__ex want,
                                  ein__attention_beside *z) {
    int64_t keys = a->box.n[key], more = s->n[slot] - keys;
    if (more < 1 || more > EIN__ATTENTION_SINKS) return false;
    ein__ix at = ein__ix_iter(ctx, (uint32_t)key, keys);
    for (int64_t from = 0; from <= more; from++) {
        int n = a->n;
        map[slot] = ein__ix_addc(ctx, at, from);
        bool found = ein__attention_term(ctx, a, s, map).i == want.i;
        for (int64_t k = 0; found && k < more; k++) {
            map[slot] = ein__ix_const(ctx, k < from ? k : k + keys);
            z->term[z->n++] = ein__attention_term(ctx, a, s, map);
            if (!z->term[z->n - 1].i) return false;
        }
        if (found) return true;
        a->n = n;
    }
    return false;
}

// Whether `read`, in the slots of the box, is reduction `red` of `want` over all keys, and over
// what is beside them.
static bool ein__attention_is(ein_ctx *ctx, ein__attention *a, ein__ex read, ein__red red,
                              ein__ex want, ein__attention_beside *z) {
    const ein__expr *e = ein__ex_get(ctx, read);
    const ein__scope *s = ein__scope_of(ctx, (ein__val){e->val});
    int key[EIN__ATTENTION_KEYS], from[EIN__ATTENTION_KEYS], nkey = 0, nfrom = 0;
    ein__ix map[EIN__MAX_ITERS];
    *z = (ein__attention_beside){.n = 0};
    if (!s || s->reduce != red || !ein__inside(ctx, e)) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = i < s->nt ? e->ix[i] : ein__ix_const(ctx, 0);
        if (i < s->nt && ein__ix_uses(ctx, map[i]) & a->keys) return false;
        if (i < s->nt || s->n[i] == 1) continue;
        if (nfrom == EIN__ATTENTION_KEYS) return false;
        from[nfrom++] = (int)i;
    }
    for (int i = 0; i < EIN__MAX_ITERS; i++)
        if (a->keys >> i & 1) key[nkey++] = i;
    if (nkey == 1 && nfrom == 1 && s->n[from[0]] > a->box.n[key[0]])
        return ein__attention_longer(ctx, a, s, map, from[0], key[0], want, z);
    // Their order is free: every one that the extents allow is tried.
    int turns = nkey == 3 ? 6 : nkey;
    for (int t = 0; nkey == nfrom && t < turns; t++) {
        bool fits = true;
        for (int i = 0; i < nkey; i++) {
            int to = key[t < nkey ? (i + t) % nkey : (2 * nkey - i - t) % nkey];
            fits &= s->n[from[i]] == a->box.n[to];
            map[from[i]] = ein__ix_iter(ctx, (uint32_t)to, a->box.n[to]);
        }
        int n = a->n;
        if (fits && want.i && ein__attention_term(ctx, a, s, map).i == want.i) return true;
        a->n = n;
    }
    return false;
}

// The only read of `v` in `ex`; none where there are several, or none.
static ein__ex ein__attention_only(ein_ctx *ctx, ein__ex ex, ein__val v) {
    ein__ex found = {0};
    int times = 0;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (ein__ex_get(ctx, reads[i])->val == v.i && reads[i].i != found.i)
            times++, found = reads[i];
    return times == 1 ? found : (ein__ex){0};
}

// The product that x reads, its factors in the slots of the box: one follows the rows, the other
// the keys.
static bool ein__attention_product(ein_ctx *ctx, ein__attention *a, ein__ex read) {
    const ein__expr *e = ein__ex_get(ctx, read), *factor[2];
    const ein__scope *s = ein__scope_of(ctx, (ein__val){e->val});
    ein__ix map[EIN__MAX_ITERS];
    if (!s || !ein__two_factors(ctx, s, factor, &a->alpha) || !ein__inside(ctx, e)) return false;
    uint32_t n = a->nt + a->box.ns;
    for (uint32_t i = 0; i < s->nt; i++) map[i] = e->ix[i];
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (s->n[i] == 1) continue;
        if (n == EIN__MAX_ITERS) return false;
        a->box.n[n] = s->n[i];
        a->depth |= 1u << n;
        map[i] = ein__ix_iter(ctx, n++, s->n[i]);
    }
    a->slots = n;
    for (int k = 0; k < 2; k++) {
        ein__ex q = ein__ex_subst(ctx, ein__ex_of(ctx, factor[k]), map, (int)(s->nt + s->ns));
        ein__ex other =
            ein__ex_subst(ctx, ein__ex_of(ctx, factor[1 - k]), map, (int)(s->nt + s->ns));
        if (!q.i || !other.i || ein__ex_get(ctx, q)->op != EIN__X_READ) return false;
        if (ein__ex_get(ctx, other)->op != EIN__X_READ) return false;
        if (ein__ex_uses(ctx, q) & a->keys || !(ein__ex_uses(ctx, other) & a->keys)) continue;
        a->query = q;
        a->key = other;
        a->dot = (ein__val){e->val};
        return true;
    }
    return false;
}

// Whether every subscript of `read` that has m or j has them as k * (m + d * j), the same d in all.
static bool ein__attention_moves(ein_ctx *ctx, ein__ex read, int m, int j, int64_t *d) {
    const ein__expr *e = ein__ex_get(ctx, read);
    bool found = false;
    for (uint32_t i = 0; i < e->nix; i++) {
        if (!(ein__ix_uses(ctx, e->ix[i]) & (1u << m | 1u << j))) continue;
        int64_t km = ein__ix_coef(ctx, e->ix[i], (uint32_t)m);
        int64_t kj = ein__ix_coef(ctx, e->ix[i], (uint32_t)j);
        if (!ein__ix_affine(ctx, e->ix[i]) || !km || !kj || kj % km) return false;
        if (kj / km > INT32_MAX || kj / km < -INT32_MAX || (*d && *d != kj / km)) return false;
        *d = kj / km;
        found = true;
    }
    return found;
}

// What each slot of the result counts: rows, which key and value do not have; columns, which only
// the value has; batches. In a band, one row slot moves key and value along.
static bool ein__attention_slots(ein_ctx *ctx, ein__attention *a) {
    uint32_t of_key = ein__ex_uses(ctx, a->key), of_value = ein__ex_uses(ctx, a->value);
    uint32_t of_score = ein__ex_uses(ctx, a->query) | ein__ex_uses(ctx, a->score) | of_key |
                        ein__ex_uses(ctx, a->gate);
    if (ein__ex_uses(ctx, a->value) & a->depth || !(of_value & a->keys)) return false;
    for (uint32_t i = 0; i < a->nt; i++) {
        if (a->box.n[i] == 1) continue;
        bool moved = of_key & of_value & 1u << i && !(a->keys & (a->keys - 1)) && !a->band;
        for (int j = 0; moved && j < EIN__MAX_ITERS; j++) {
            int64_t d = 0;
            if (!(a->keys >> j & 1) || !ein__attention_moves(ctx, a->key, (int)i, j, &d) ||
                !ein__attention_moves(ctx, a->value, (int)i, j, &d))
                continue;
            a->band = true;
            a->m = (int)i;
            a->j = j;
            a->d = d;
        }
        if (a->band && a->m == (int)i) continue;
        if (of_value >> i & 1 && !(of_score >> i & 1)) a->cols |= 1u << i;
        else if ((of_key | of_value) >> i & 1) a->batch |= 1u << i;
        else a->rows |= 1u << i;
    }
    if (a->band) {
        a->batch |= a->rows;
        a->rows = 1u << a->m;
    }
    return true;
}

// Whether values of the kernel are read where they are meant to be only.
static bool ein__attention_reads(ein_ctx *ctx, const ein__attention *a) {
    ein__ex part[] = {a->query, a->key, a->value, a->score, a->result, a->gate};
    bool ok = true;
    for (int p = 0; p < 6; p++) {
        const ein__ex *reads = ein__ex_reads(ctx, part[p]);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            uint32_t v = ein__ex_get(ctx, reads[i])->val;
            bool meant = (p == 3 && v == a->dot.i) ||
                         (p == 4 && (v == a->out.i || reads[i].i == a->top.i || v == a->sum.i));
            bool made = v == a->out.i || v == a->dot.i || v == a->max.i || v == a->sum.i;
            for (int k = 0; k < a->n; k++) made |= a->inner[k].i == v;
            ok &= meant || !made;
        }
    }
    for (int k = 0; k < a->n; k++) ok &= ein__is_real(ctx, a->inner[k]);
    return ok;
}

// The product in x. A bias may be a product of queries as well, over fewer keys: the largest one is
// wanted.
static bool ein__attention_dot(ein_ctx *ctx, ein__attention *a) {
    ein__attention best;
    int64_t most = 0;
    const ein__ex *reads = ein__ex_reads(ctx, a->score);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__attention z = *a;
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        if (!ein__attention_only(ctx, a->score, v).i || !ein__ex_get(ctx, reads[i])->nix ||
            !ein__attention_product(ctx, &z, reads[i]) || !ein__attention_absorb(&z, z.dot))
            continue;
        int64_t terms = ein__extent_of(ein__scope_of(ctx, v), ~0u);
        if (terms <= most) continue;
        most = terms;
        best = z;
    }
    if (most) *a = best;
    return most > 0;
}

static ein__ex ein__attention_put(ein_ctx *ctx, ein__ex in, ein__val v, ein__ex by) {
    return in.i && by.i ? ein__ex_put(ctx, in, v, by) : (ein__ex){0};
}

static ein__ex ein__attention_exchanged(ein_ctx *ctx, void *user, ein__ex ex) {
    (void)ctx;
    const ein__ex *z = user;
    return ex.i == z[0].i ? z[1] : ex;
}

// `in` with `by` for `read`; others of the same value stay.
static ein__ex ein__attention_exchange(ein_ctx *ctx, ein__ex in, ein__ex read, ein__ex by) {
    ein__ex z[] = {read, by};
    return in.i && by.i ? ein__ex_replace_reads(ctx, in, ein__attention_exchanged, z)
                        : (ein__ex){0};
}

// Whether map `v` is made of maximum `max` (none: of any), itself or through other maps.
static bool ein__is_over_maximum(ein_ctx *ctx, ein__val v, ein__val max, int depth, int *looks) {
    if (!ein__is_map(ctx, v) || ctx->value[v.i].weight_only || depth > EIN__ATTENTION_MAPS ||
        ++*looks > EIN__ATTENTION_LOOKS)
        return false;
    bool found = false;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !found; i++) {
        ein__val r = {ein__ex_get(ctx, reads[i])->val};
        const ein__scope *s = ein__scope_of(ctx, r);
        found = max.i ? r.i == max.i : s && s->reduce == EIN__R_MAX;
        found = found || ein__is_over_maximum(ctx, r, max, depth + 1, looks);
    }
    return found;
}

// A read of a map over the maximum: its definition in place.
static ein__ex ein__attention_open_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__attention *a = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val p = {e->val};
    if (p.i == a->out.i || !ein__is_over_maximum(ctx, p, a->max, 0, &a->looks)) return ex;
    ein__ex body = ein__rule_inline(ctx, p, e);
    if (!body.i || ein__ex_size(ctx, body) > EIN__MAX_INLINE || !ein__attention_absorb(a, p))
        return ex;
    return ein__ex_replace_reads(ctx, body, ein__attention_open_read, a);
}

// `ex` with maps over the maximum in place.
static ein__ex ein__attention_opened(ein_ctx *ctx, ein__attention *a, ein__ex ex) {
    return ein__ex_replace_reads(ctx, ex, ein__attention_open_read, a);
}

// The maximum of x in `by`, what the weights have x compared with. `whole`: what is to be put for
// the read that it is found as, which may be the maximum of more.
static bool ein__attention_top(ein_ctx *ctx, ein__attention *a, ein__ex by, ein__ex *whole) {
    ein__attention_beside z;
    by = ein__attention_opened(ctx, a, by);
    const ein__ex *reads = by.i ? ein__ex_reads(ctx, by) : NULL;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        if (!ein__attention_is(ctx, a, reads[i], EIN__R_MAX, a->score, &z)) continue;
        a->max = v;
        a->top = *whole = reads[i];
        for (int k = 0; k < z.n; k++) *whole = ein__ex_binary(ctx, EIN__MAX, *whole, z.term[k]);
        if (!ein__attention_only(ctx, by, v).i || !ein__attention_absorb(a, v)) return false;
        by = ein__attention_exchange(ctx, by, a->top, *whole);
        if (by.i == a->top.i) return true;
        a->by = by;
        by = by.i ? ein__ex_binary(ctx, EIN__SUB, a->top, by) : by;
        a->shift = by.i ? ein__ex_unary(ctx, EIN__EXP, by) : by;
        return a->shift.i != 0;
    }
    return false;
}

// x, its maximum and the product in it, from the exponential of its distance to the maximum, or
// from x.
static bool ein__attention_scores(ein_ctx *ctx, ein__attention *a, ein__ex exponential,
                                  ein__ex *whole) {
    if (!a->soft) {
        a->score = exponential;
        a->top = ein__ex_const(ctx, 0);
        return ein__attention_dot(ctx, a);
    }
    const ein__expr *minus = ein__ex_get(ctx, ein__ex_get(ctx, exponential)->kid[0]);
    if (minus->op != EIN__X_BINARY || minus->fn != EIN__SUB) return false;
    a->score = minus->kid[0];
    if (ein__ex_uses(ctx, minus->kid[1]) & a->keys ||
        !ein__attention_top(ctx, a, minus->kid[1], whole))
        return false;
    if (a->plain) {
        a->query = a->key = ein__ex_const(ctx, 0);
        a->alpha = 1;
        a->slots = a->nt + a->box.ns;
        return (ein__ex_uses(ctx, a->score) & a->keys) != 0;
    }
    return ein__attention_dot(ctx, a);
}

// The sum of the weights, or of their absolute values, among what the result reads, where it is;
// `whole` as above.
static bool ein__attention_sum(ein_ctx *ctx, ein__attention *a, ein__ex exponential,
                               ein__ex whole) {
    ein__attention_beside z;
    ein__ex size = a->soft ? exponential : ein__ex_unary(ctx, EIN__ABS, exponential);
    if (a->shift.i) a->result = ein__attention_opened(ctx, a, a->result);
    if (a->soft) a->result = ein__attention_exchange(ctx, a->result, a->top, whole);
    const ein__ex *reads = a->result.i ? ein__ex_reads(ctx, a->result) : NULL;
    for (ptrdiff_t i = 0; i < arrlen(reads) && !a->sum.i; i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        if (v.i == a->out.i) continue;
        bool sum = ein__attention_is(ctx, a, reads[i], EIN__R_SUM, exponential, &z);
        if (!sum && !ein__attention_is(ctx, a, reads[i], EIN__R_SUM, size, &z)) continue;
        if (!ein__attention_only(ctx, a->result, v).i || !ein__attention_absorb(a, v)) return false;
        a->sum = v;
        a->absolute = !sum;
        ein__ex all = reads[i];
        if (a->shift.i) all = ein__ex_binary(ctx, EIN__MUL, all, a->shift);
        for (int k = 0; k < z.n && all.i; k++) {
            ein__ex term = ein__attention_exchange(ctx, z.term[k], a->top, whole);
            all = term.i ? ein__ex_binary(ctx, EIN__ADD, all, term) : term;
        }
        a->result = ein__attention_put(ctx, a->result, v, all);
        break;
    }
    ein__ex out = a->result.i && a->shift.i ? ein__attention_only(ctx, a->result, a->out) : a->top;
    if (!a->shift.i || !out.i) return a->result.i && out.i;
    out = ein__ex_binary(ctx, EIN__MUL, out, a->shift);
    a->result = ein__attention_put(ctx, a->result, a->out, out);
    return a->result.i != 0;
}

// What weights are: a softmax of scores that are made of a product, or of any, or what is made of
// an element of a product.
typedef enum ein__attention_kind { EIN__OF_PRODUCT, EIN__OF_ANY, EIN__WITHOUT } ein__attention_kind;

// One choice of which read of `v` has the weights in its definition; none: `v` has them itself.
static bool ein__attention_with(ein_ctx *ctx, ein__val v, ein__val map, ein__ex softmax,
                                ein__attention_kind kind, ein__attention *a) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix ix[EIN__MAX_RANK];
    *a = (ein__attention){.box = *s, .nt = s->nt, .out = v, .gate = ein__ex_const(ctx, 1)};
    a->soft = kind != EIN__WITHOUT;
    for (uint32_t i = 0; i < s->nt; i++) ix[i] = ein__ix_iter(ctx, i, s->n[i]);
    int keys = 0;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if (s->n[i] > 1) a->keys |= 1u << i, keys++;
    if (!keys || keys > EIN__ATTENTION_KEYS || s->nt + s->ns > EIN__MAX_RANK) return false;
    if (kind == EIN__OF_ANY) a->plain = ein__attention_volume(ctx, a, softmax);
    ein__attention_terms z = {a, softmax, ein__ex_read(ctx, v, 0, ix, (int)s->nt), {0}, {0}};
    a->result = ein__attention_spine(ctx, &z, s->body);
    if (!a->result.i || !z.weight.i || !a->value.i) return false;
    ein__ex whole = {0};
    if (!ein__attention_scores(ctx, a, z.weight, &whole) || !ein__attention_is_closable(ctx, a))
        return false;
    if (map.i) {
        a->result = ein__ex_put(ctx, ein__scope_of(ctx, map)->body, v, a->result);
        if (!a->result.i || !ein__attention_absorb(a, v)) return false;
    }
    return ein__attention_sum(ctx, a, z.weight, whole) &&
           (!z.total.i || ein__ex_get(ctx, z.total)->val == a->sum.i) &&
           ein__attention_slots(ctx, a) && ein__attention_reads(ctx, a);
}

// Whether `v` is a map over an exponential, as a softmax is.
static bool ein__is_exponential(ein_ctx *ctx, ein__val v) {
    if (!ein__is_map(ctx, v) || ctx->value[v.i].weight_only) return false;
    const ein__expr *e = ein__ex_get(ctx, ein__scope_of(ctx, v)->body);
    while (e->op == EIN__X_BINARY && (e->fn == EIN__DIV || e->fn == EIN__MUL))
        e = ein__ex_get(ctx, e->kid[0]);
    return e->op == EIN__X_UNARY && e->fn == EIN__EXP;
}

// Whether what `read` reads may have the weights in its definition.
static bool ein__is_weighing(ein_ctx *ctx, ein__attention_kind kind, const ein__expr *read) {
    ein__val v = {read->val};
    int looks = 0;
    if (!ein__inside(ctx, read)) return false;
    if (kind == EIN__OF_ANY) return ein__is_exponential(ctx, v);
    const ein__scope *s = ein__scope_of(ctx, v);
    bool dot = s && kind == EIN__WITHOUT && ein__is_contraction(ctx, s);
    return dot ? !ctx->value[v.i].weight_only : ein__is_over_product(ctx, v, 0, &looks);
}

// The attention of `kind` that `v` ends, of several that with the most weights. Fewer weights than
// results are little beside what is stored anyway.
static bool ein__match_kind(ein_ctx *ctx, ein__val v, ein__val map, ein__attention_kind kind,
                            ein__attention *a) {
    ein__attention z;
    const ein__scope *s = ein__scope_of(ctx, v);
    bool soft = kind != EIN__WITHOUT, found = false;
    int64_t most = soft ? 0 : ein__elements(&ctx->value[v.i].shape);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !(soft && found); i++) {
        const ein__expr *read = ein__ex_get(ctx, reads[i]);
        uint32_t others = ((1u << s->nt) - 1) & ~ein__ex_uses(ctx, reads[i]);
        if (!soft && ein__extent_of(s, others) > EIN__ATTENTION_COLUMNS) continue;
        if (!ein__is_weighing(ctx, kind, read)) continue;
        int64_t n = ein__elements(&ctx->value[read->val].shape);
        if (n <= most || !ein__attention_with(ctx, v, map, reads[i], kind, &z)) continue;
        most = n;
        found = true;
        *a = z;
    }
    return found;
}

// Whether sum `v`, with map `map` behind that reads it in place (or none), is the second product of
// an attention whose weights are a softmax (`soft`) or are not.
EIN__FN bool ein__match_weights(ein_ctx *ctx, ein__val v, ein__val map, bool soft,
                                ein__attention *a) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__val last = map.i ? map : v;
    if (!s || s->reduce != EIN__R_SUM || ctx->value[v.i].weight_only) return false;
    if (map.i && !ein__attention_only(ctx, ein__scope_of(ctx, map)->body, v).i) return false;
    if ((map.i && ctx->value[v.i].dtype != EIN__F32) || ctx->value[last.i].dtype > EIN__BF16)
        return false;
    ein__attempt attempt = ein__try(ctx);
    bool found = false;
    for (int kind = EIN__OF_PRODUCT; kind < EIN__WITHOUT && soft && !found; kind++)
        found = ein__match_kind(ctx, v, map, (ein__attention_kind)kind, a);
    if (soft && !found) found = ein__attention_with(ctx, v, map, (ein__ex){0}, EIN__OF_PRODUCT, a);
    if (!soft) found = ein__match_kind(ctx, v, map, EIN__WITHOUT, a);
    return ein__tried(ctx, attempt) && found;
}

// The same of either kind.
EIN__FN bool ein__match_attention(ein_ctx *ctx, ein__val v, ein__val map, ein__attention *a) {
    return ein__match_weights(ctx, v, map, true, a) || ein__match_weights(ctx, v, map, false, a);
}

// ------------------------------------------------------------------------------------ groups

// `ex` with `by` for iterator `slot`.
static ein__ex ein__attention_in(ein_ctx *ctx, const ein__attention *a, ein__ex ex, int slot,
                                 ein__ix by) {
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < EIN__MAX_ITERS; i++)
        map[i] = ein__ix_iter(ctx, i, i < a->slots ? a->box.n[i] : 1);
    map[slot] = by;
    return ein__ex_subst(ctx, ex, map, EIN__MAX_ITERS);
}

// Takes slot `head`, n heads, apart into groups of `each`; false: keys are not shared that way.
static bool ein__attention_group(ein_ctx *ctx, ein__attention *a, int head, int64_t each) {
    ein__attention z = *a;
    int64_t n = a->box.n[head];
    z.head = head;
    z.each = each;
    z.group = (int)z.slots++;
    z.box.n[head] = each;
    z.box.n[z.group] = n / each;
    ein__ix at = ein__ix_scale(ctx, ein__ix_iter(ctx, (uint32_t)z.group, n / each), each);
    at = ein__ix_add(ctx, at, ein__ix_iter(ctx, (uint32_t)head, each));
    ein__ex *part[] = {&z.key, &z.value, &z.query, &z.score, &z.result,
                       &z.top, &z.gate,  &z.by,    &z.shift};
    for (int p = 0; p < (z.shift.i ? 9 : 7); p++) {
        *part[p] = ein__attention_in(ctx, a, *part[p], head, at);
        if (!part[p]->i || (p < 2 && ein__ex_uses(ctx, *part[p]) >> head & 1)) return false;
    }
    z.batch = (z.batch & ~(1u << head)) | 1u << z.group;
    z.rows |= 1u << head;
    *a = z;
    return true;
}

// Heads that share keys and values, of which these are read at the head's number divided by how
// many share one, as rows of one tile: the most heads a group that there are. False: there are no
// such.
EIN__FN bool ein__attention_grouped(ein_ctx *ctx, ein__attention *a) {
    if (a->band || a->each > 1 || a->slots == EIN__MAX_ITERS || !a->dot.i) return false;
    for (int head = 0; head < (int)a->nt; head++) {
        bool whole = !(a->batch >> head & 1);
        const ein__ex *reads = ein__ex_reads(ctx, a->key);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *e = ein__ex_get(ctx, reads[k]);
            for (uint32_t i = 0; i < e->nix; i++)
                whole |= ein__ix_coef(ctx, e->ix[i], (uint32_t)head) != 0;
        }
        int64_t n = a->box.n[head], most = ein__least(n / 2, EIN__ATTENTION_GROUPS);
        for (int64_t groups = 2; !whole && groups <= most; groups++)
            if (n % groups == 0 && ein__attention_group(ctx, a, head, n / groups)) return true;
    }
    return false;
}

// ------------------------------------------------------------------------------------ meaning

// A value of the first `nt` slots of the box, reduced over the `ns` behind them, and its read
// there.
static ein__ex ein__attention_define(ein_ctx *ctx, const ein__attention *a, const char *name,
                                     ein__red reduce, uint32_t nt, uint32_t ns, ein__ex body) {
    ein__scope s = {.reduce = ns ? reduce : EIN__R_NONE, .nt = nt, .ns = ns, .body = body};
    ein__shape shape = {.rank = (int)nt};
    ein__ix ix[EIN__MAX_ITERS];
    memcpy(s.n, a->box.n, sizeof s.n);
    for (uint32_t i = 0; i < nt; i++) {
        shape.d[i] = s.n[i];
        ix[i] = ein__ix_iter(ctx, i, s.n[i]);
    }
    ein__sc sc = body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return (ein__ex){0};
    const ein__value like = ctx->value[a->out.i];
    ein__val v = ein__val_new(ctx, ein__namef(ctx, "%s.%s", like.name, name), EIN__V_SCOPE,
                              like.tensor, sc, &shape, EIN__F32, like.node);
    return ein__ex_read(ctx, v, 0, ix, (int)nt);
}

// `ex` without the second factor of weights.
static ein__ex ein__attention_unshifted(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    if (ex.i == a->shift.i) return ein__ex_const(ctx, 1);
    for (uint32_t i = 0; i < e.nkid; i++) {
        e.kid[i] = ein__attention_unshifted(ctx, a, e.kid[i]);
        if (!e.kid[i].i) return (ein__ex){0};
    }
    return e.nkid ? ein__ex_make(ctx, &e) : ex;
}

// `a` with one iterator for all heads again.
static ein__attention ein__attention_apart_of(ein_ctx *ctx, const ein__attention *a) {
    ein__attention z = *a;
    if (a->each < 2) return z;
    z.slots--;
    z.box.n[a->head] *= a->box.n[a->group];
    ein__ix head = ein__ix_iter(ctx, (uint32_t)a->head, z.box.n[a->head]), map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < EIN__MAX_ITERS; i++)
        map[i] = ein__ix_iter(ctx, i, i < z.slots ? z.box.n[i] : 1);
    map[a->head] = ein__ix_mod(ctx, head, a->each);
    map[a->group] = ein__ix_floordiv(ctx, head, a->each);
    ein__ex *part[] = {&z.key, &z.value, &z.query, &z.score, &z.result,
                       &z.top, &z.gate,  &z.by,    &z.shift};
    for (int p = 0; p < (z.shift.i ? 9 : 7); p++)
        *part[p] = ein__ex_subst(ctx, *part[p], map, EIN__MAX_ITERS);
    return z;
}

// What the kernel of `a` computes, written down from what its text is made of, as a value to be
// proved equal to the one that it stands for. None when a limit is met.
EIN__FN ein__val ein__attention_meaning(ein_ctx *ctx, const ein__attention *grouped) {
    ein__attention apart = ein__attention_apart_of(ctx, grouped), *a = &apart;
    uint32_t nt = a->nt, ns = a->box.ns;
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, a->query, a->key);
    if (a->alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, a->alpha), body);
    ein__ex dot = {0};
    if (a->dot.i)
        dot = ein__attention_define(ctx, a, "dot", EIN__R_SUM, nt + ns, a->slots - nt - ns, body);
    ein__ex x = a->dot.i ? ein__attention_put(ctx, a->score, a->dot, dot) : a->score;
    ein__ex max = {0}, weight = x, by = {0};
    if (a->soft) max = by = ein__attention_define(ctx, a, "max", EIN__R_MAX, nt, ns, x);
    if (a->soft && a->shift.i) by = ein__attention_put(ctx, a->by, a->max, max);
    if (a->soft) weight = ein__ex_unary(ctx, EIN__EXP, ein__ex_binary(ctx, EIN__SUB, x, by));
    ein__ex size = a->absolute ? ein__ex_unary(ctx, EIN__ABS, weight) : weight;
    ein__ex sum = ein__attention_define(ctx, a, "sum", EIN__R_SUM, nt, ns, size);
    if (ein__attention_is_gated(ctx, a)) {
        ein__ex zero = ein__ex_const(ctx, 0);
        weight = ein__ex_select(ctx, EIN__NE, a->gate, zero, weight, zero);
    }
    body = ein__ex_binary(ctx, EIN__MUL, weight, a->value);
    ein__ex out = ein__attention_define(ctx, a, "out", EIN__R_SUM, nt, ns, body);
    body = ein__attention_put(ctx, ein__attention_unshifted(ctx, a, a->result), a->out, out);
    if (a->soft) body = ein__attention_put(ctx, body, a->max, max);
    if (a->sum.i) body = ein__attention_put(ctx, body, a->sum, sum);
    ein__ex read = ein__attention_define(ctx, a, "result", EIN__R_NONE, nt, 0, body);
    return read.i ? (ein__val){ein__ex_get(ctx, read)->val} : (ein__val){0};
}
