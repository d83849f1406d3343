// Tiles whose terms several blocks share (split-K in one kernel): each block leaves its sums in
// memory, and the last to arrive at a tile adds all up in the order of the parts and goes on with
// the epilogue (templates/tail.cu; the form of CUDA's threadFenceReduction sample). Compared with a
// second kernel that adds up the parts (split.c), a launch is saved, but one block reads what all
// blocks of the tile wrote. Blocks that are a cluster (compute capability 9.0 and later) leave
// their sums in their own shared memory, and each adds up a share of the tile.

enum {
    EIN__TAIL_PARTS = 16,  // at most
    // What a block takes to make its sums visible, count itself, and get the others' sums: three
    // trips to the L2 cache, one after the other; chosen as EIN__PRODUCT_START_PS.
    EIN__TAIL_PS = 1300000,
    // The same in a cluster: to leave the sums, meet the others, get theirs; chosen so, too.
    EIN__CLUSTER_PS = 500000,
    EIN__CLUSTER_MOST = 8,  // blocks: what every GPU that has clusters takes
    // An SM's byte from another one's shared memory: all those of an H800 got 2.65 TB/s in clusters
    // of four (Luo et al. 2024).
    EIN__CLUSTER_BYTE_PS = 50,
    EIN__TAIL_MARGIN = 3,  // percent by which whole tiles have to be slower
    EIN__TAIL_ALONE = 2,   // shares of the L2 cache's rate that one SM gets at most; assumed
};

// How a product is cut up: its tile, the blocks that share the terms of one, how many terms each of
// them has, the last one no more than those, and whether these blocks are a cluster.
typedef struct ein__product_cut {
    const ein__product_tile *tile;
    int parts;
    int64_t share;
    bool cluster;
} ein__product_cut;

// Terms of a part in whole steps of the tile's loop; 0: there are not as many parts, a thread has
// no registers to add them up, or the last part's loads are others (ein__product_copies).
static int64_t ein__tail_share(const ein__tiled *p, const ein__product_tile *t, int parts) {
    int64_t share = (p->depth + parts - 1) / parts;
    share = (share + t->terms - 1) / t->terms * t->terms;
    bool ragged = p->shifted && p->depth % t->terms;
    if (parts > 1 && (ein__product_is_large(t) || ragged || t->patch)) return 0;
    if (parts > 1 && p->crosses && (!p->added || p->crosses > 1)) return 0;
    return share * (parts - 1) < p->depth ? share : 0;
}

// The same of the product that is added to it: of these terms a part may have none.
static int64_t ein__addend_share(const ein__tiled *p, const ein__product_tile *t, int parts) {
    return ein__ceil(ein__ceil(p->depth, parts), t->terms) * t->terms;
}

// Bytes that the parts of all tiles take in memory, with two sums along each of their rows where
// these are wanted.
static int64_t ein__tail_bytes(const ein__tiled *p, const ein__product_tile *t, int parts) {
    int64_t each = 4 * t->rows * (t->cols + (p->each ? 2 : 0));
    return ein__times(ein__product_blocks(p, t), each * parts);
}

// Bytes that a block of a cluster leaves for the others, from the beginning of its tile on: its
// sums and two along each of their rows.
static int64_t ein__cluster_bytes(const ein__tiled *p, const ein__product_tile *t) {
    return 4 * t->rows * (t->cols + (p->each ? 2 : 0));
}

// Whether the blocks that share a tile may be a cluster: of a size that GPUs have room for wherever
// their SMs lie, where the tile's memory holds what they leave and, on tensor cores, what is made
// of the sums of rows.
static bool ein__clusters(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                          int parts) {
    bool fits = parts > 1 && parts <= EIN__CLUSTER_MOST && EIN__CLUSTER_MOST % parts == 0,
         beside = p->each && t->math != EIN__MATH_FP32;
    int64_t bytes = ein__cluster_bytes(p, t);
    if (beside) bytes += 4 * t->rows * (2 * t->parts + EIN__NORM_ROWS);
    return g->cc >= 90 && fits && bytes <= ein__product_least_bytes(t);
}

// Whether terms that are shared, at `ps`, are taken against whole ones.
static bool ein__tail_gains(int64_t ps, int64_t whole) {
    return ein__plus(ps, ein__muldiv(ps, EIN__TAIL_MARGIN, 100)) < whole;
}

// What a cluster's blocks take to add up what they have left: each an equal share, from all.
static int64_t ein__cluster_ps(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                               int parts) {
    int64_t each = 4 * t->rows * t->cols * (parts - 1) / parts;
    int64_t blocks = ein__times(ein__product_blocks(p, t), parts);
    int64_t bytes = ein__times(each, ein__ceil(blocks, g->sms));
    return ein__plus(ein__times(bytes, EIN__CLUSTER_BYTE_PS), EIN__CLUSTER_PS);
}

// Time of a product whose tiles are shared: the loops of the parts, the parts on their way to the
// L2 cache, and the last block of each tile, which reads them alone.
static int64_t ein__tail_ps(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                            int parts, bool cluster) {
    int64_t share = ein__tail_share(p, t, parts), bytes = ein__tail_bytes(p, t, parts);
    int64_t tiles = ein__product_blocks(p, t), alone = g->sms / EIN__TAIL_ALONE;
    if (!share || bytes > g->l2_bytes / 4) return INT64_MAX;
    ein__tiled q = *p, addend;
    q.extent[2] = ein__times(q.extent[2], parts);
    q.depth = share;
    q.together = cluster ? parts : 0;
    if (p->addend) {
        addend = *p->addend;
        addend.extent[2] = q.extent[2];
        addend.depth = ein__addend_share(&addend, t, parts);
        q.addend = &addend;
    }
    if (cluster) return ein__plus(ein__product_tile_ps(g, &q, t), ein__cluster_ps(g, p, t, parts));
    int64_t l2 = g->bandwidth * (g->l2_rate > 100 ? g->l2_rate : 100) / 100;
    // As if as many blocks read as the cache can serve.
    int64_t tail = ein__times(4 * t->rows * t->cols * (parts - 1), tiles > alone ? tiles : alone);
    int64_t moved = ein__muldiv(bytes + tail, 1000 * 1000, l2);
    return ein__product_tile_ps(g, &q, t) + moved + EIN__TAIL_PS;
}

// The cut that is estimated to be fastest on the context's GPU, and its time.
static int64_t ein__find_cut(const ein_ctx *ctx, const ein__tiled *p, ein__product_cut *cut) {
    static const int choices[] = {2, 3, 4, 6, 8, 12, EIN__TAIL_PARTS};
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t whole, best;
    double least = g->cc < 90 ? EIN__TAIL_PS : EIN__CLUSTER_PS;
    *cut = (ein__product_cut){ein__product_tile_of(ctx, p, &whole), 1, p->depth, false};
    if ((double)whole <= least) return whole;
    best = whole;
    // Patches' tiles share no terms.
    for (int i = 0; i < EIN__PRODUCT_PLAIN; i++) {
        const ein__product_tile *t = &ein__product_table[i];
        if (!ein__product_fits(p, t) || !ein__product_pays(p, t)) continue;
        // A machine that is full has nothing to gain.
        int64_t tiles = ein__product_blocks(p, t), slots = ein__product_slots(g, p, t);
        double waves = (double)tiles / (double)g->sms;  // at best, of any number of parts
        if (ein__product_floor(g, p, t, waves) > (double)best) continue;
        for (int k = 0; k < (int)(sizeof choices / sizeof *choices) && tiles < slots; k++) {
            int64_t blocks = ein__times(tiles, choices[k]);
            waves = (double)ein__ceil(blocks, g->sms) / choices[k];
            // Clusters that find room where blocks do share terms at less than memory does.
            bool room =
                ein__ceil(blocks, ein__clustered(g->sms, choices[k])) == ein__ceil(blocks, g->sms);
            int first = ein__clusters(g, p, t, choices[k]), last = first && room;
            for (int cluster = first; cluster >= last; cluster--) {
                double tail = cluster ? EIN__CLUSTER_PS : EIN__TAIL_PS;
                if (ein__product_floor(g, p, t, waves) + tail > (double)best) continue;
                int64_t ps = ein__tail_ps(g, p, t, choices[k], cluster);
                if (ps >= best || !ein__tail_gains(ps, whole)) continue;
                int64_t share = ein__tail_share(p, t, choices[k]);
                best = ps;
                *cut = (ein__product_cut){t, choices[k], share, cluster};
            }
        }
    }
    return best;
}

// What cuts of a product depend on, in so many numbers at most.
enum { EIN__CUT_NUMBERS = 64 };

// The cut of a product and its time, as they were found; the rest tells the product.
typedef struct ein__known_cut {
    int64_t ps;
    ein__product_cut cut;
    int64_t of[2 * EIN__CUT_NUMBERS];
} ein__known_cut;

static int ein__put_cut_numbers(const ein__tiled *p, int64_t *to) {
    int n = 0;
    int64_t flags[] = {p->scattered,     p->computed,      p->floats,         p->warpgroups,
                       p->rounded,       p->shifted,       p->addend != NULL, p->patch.side,
                       (int64_t)p->math, (int64_t)p->held, p->each,           p->together,
                       p->values[0],     p->values[1],     p->term_each,      p->added,
                       p->crosses};
    for (int i = 0; i < (int)(sizeof flags / sizeof *flags); i++) to[n++] = flags[i];
    for (int i = 0; i < 3; i++) to[n++] = p->extent[i];
    to[n++] = p->depth;
    for (int k = 0; k < 4; k++) {
        const ein__factor_load *l = k < 2 ? &p->load[k] : &p->second[k % 2];
        if (k >= 2 && p->values[k % 2] < 2) continue;
        int64_t load[] = {l->along, l->half,  l->guarded, l->words, l->apart,
                          l->each,  l->steps, l->taps,    l->packs};
        for (int i = 0; i < (int)(sizeof load / sizeof *load); i++) to[n++] = load[i];
    }
    for (int i = 0; i < EIN__BOXES && p->patch.side; i++) {
        to[n++] = p->patch.box[i].boxes;
        to[n++] = p->patch.box[i].elements;
    }
    EIN_ASSERT(n <= EIN__CUT_NUMBERS);
    return n;
}

// The same, which is asked for again and again: plans are priced under many layouts.
EIN__FN int64_t ein__product_cut_of(ein_ctx *ctx, const ein__tiled *p, ein__product_cut *cut) {
    ein__known_cut c;
    memset(&c, 0, sizeof c);
    int n = ein__put_cut_numbers(p, c.of);
    if (p->addend) n += ein__put_cut_numbers(p->addend, c.of + n);
    size_t size = offsetof(ein__known_cut, of) + (size_t)n * sizeof *c.of;
    ctx->cuts.derived = offsetof(ein__known_cut, of);
    uint32_t id = ein__interned(&ctx->cuts, &c, size);
    if (!id) {
        c.ps = ein__find_cut(ctx, p, &c.cut);
        id = ein__intern(&ctx->arena, &ctx->cuts, &c, size);
    }
    const ein__known_cut *known = ctx->cuts.rec[id];
    *cut = known->cut;
    return known->ps;
}

// The cut's name in tables of costs: its tile's and, where blocks share the terms, how many do
// behind `.p` or, of those that are a cluster, `.c`.
static void ein__product_cut_name(const ein__product_tile *t, int parts, bool cluster,
                                  char name[32]) {
    ein__product_tile_name(t, name);
    size_t n = strlen(name);
    if (parts > 1) snprintf(name + n, 32 - n, ".%c%d", cluster ? 'c' : 'p', parts);
}

// The cut of product `p` that has this name; false: there is none.
static bool ein__product_cut_named(const ein_ctx *ctx, const ein__tiled *p, const char *name,
                                   ein__product_cut *cut) {
    const ein__gpu *g = ein__gpu_of(ctx);
    for (int i = 0; i < EIN__PRODUCT_TILES; i++)
        for (int n = 2; n < 2 * EIN__TAIL_PARTS + 2; n++) {
            const ein__product_tile *t = &ein__product_table[i];
            bool cluster = n % 2;
            char other[32];
            ein__product_cut_name(t, n / 2, cluster, other);
            if (!ein__product_fits(p, t) || strcmp(name, other)) continue;
            if (cluster && !ein__clusters(g, p, t, n / 2)) continue;
            *cut = (ein__product_cut){t, n / 2, ein__tail_share(p, t, n / 2), cluster};
            return cut->share > 0;
        }
    return false;
}
