// Products that a kernel of ours computes (templates/product.cu): any contraction, by the groups of
// its iterators. Iterators that only one factor has count the rows of a tile, those that only the
// other has count its columns, the rest count batches; those that are summed count terms. A
// convolution is such a product as it stands, its window and its padding part of how one factor is
// read (implicit GEMM). The columns are those of the factor along which the result's neighbours
// lie.

enum { EIN__CROSS_VALUES = 2 };  // that a row, or a column, has of each term (cross.c)

typedef struct ein__tiled {
    const ein__expr *read[2];  // rows, columns
    double alpha;
    uint32_t group[3];  // traversal iterators of the rows, of the columns, of the batch
    int64_t extent[3], depth;
    bool scattered;   // the result's neighbours belong to different batches
    ein__math math;   // of the tensor cores' tiles that may compute it; FP32: none
    ein__dtype held;  // type of both factors: tiles that hold it may fetch several steps
    bool computed;    // loads compute a factor as they go
    bool floats;      // it is f32 in FP16 mode: TF32's tiles may compute it too
    bool warpgroups;  // the GPU has instructions for tiles that these multiply
    bool rounded;     // the second factor is weights that create may round (ein__may_round)
    int each;      // instructions for each element of the rows' factor that its sums take (norm.c)
    bool shifted;  // of it, what its line begins with is subtracted first
    int together;  // blocks of a cluster, which share a tile's terms
    const struct ein__tiled *addend;  // a product that the same tiles add to it, or NULL
    ein__factor_load load[2];
    ein__patch patch;
    // Where terms are no products but functions of what rows and columns have (cross.c): how many
    // such terms are each added up by itself, 0: none; these; what they take of either; their
    // instructions, and the loads of second values.
    int crosses;
    ein__ex term[EIN__SUMS], value[2][EIN__CROSS_VALUES];
    int values[2];
    int64_t term_each;
    bool added;  // the terms are added up
    ein__factor_load second[2];
} ein__tiled;

// How a block cuts a product up: a tile of `rows` x `cols`, `terms` at a time, `rm` x `rn` elements
// a thread, or (tensor cores) a warp. `parts` groups of threads share the terms of one tile and add
// up in order. `share`: of the peak arithmetic that a full machine reaches, in 1/1000, assumed
// until it is measured; for tensor cores see ein__tensor_share. Of what nvcc 13 issues for sm_90 in
// a step of plain matrices 0.92, 0.88, 0.83, 0.83, 0.77, 0.81, and for the last four 0.88, 0.85,
// 0.90 and 0.89 are multiplications (in the table's order; 0.02 to 0.07 less where columns are
// stored one by one). For two blocks on an SM bench/issue.py gives 0.84, 0.79, 0.70, 0.63, 0.58,
// 0.55, 0.76, 0.67, 0.80 and 0.78 of the peak: shared memory, 128 bytes a clock, binds the small
// ones. 0.83 to 0.85 of that is assumed.
typedef struct ein__product_tile {
    int rows, cols, rm, rn, terms, parts;
    int64_t share;
    int resident;  // blocks that share an SM; tensor cores: where it copies, else one
    ein__math math;
    int stages;  // tensor cores: steps in shared memory where factors are copied there directly
    bool warpgroups;  // 128 threads multiply together (templates/tiles_warpgroup.cu)
    int patch;        // the factor that is one (templates/tiles_patch.cu): 1 rows, 2 columns; 0
} ein__product_tile;

enum {
    EIN__PRODUCT_THREADS = 256,
    EIN__PRODUCT_FMA = 28,    // the first of tiles, among which are all without tensor cores
    EIN__PRODUCT_PLAIN = 40,  // ... without patches
    EIN__PRODUCT_TILES = 50,
    EIN__PRODUCT_DEPTH = 1 << 30,
    EIN__PRODUCT_SUMS = 64 * 32,
    EIN__CROSS_SUMS = 48,  // of a thread, see ein__cross_alone
    EIN__CROSS_MOST = 64   // ... of several reductions
};

// But for warpgroups no tile's steps take more than the 99 KB that a block has on sm_86 and sm_89,
// so that a program for a larger GPU runs there.
static const ein__product_tile ein__product_table[EIN__PRODUCT_TILES] = {
    {128, 128, 8, 8, 16, 1, 705, 2, EIN__MATH_FP32, 2, false, 0},  // large on both sides
    {64, 128, 4, 8, 16, 1, 670, 2, EIN__MATH_FP32, 2, false, 0},   // few rows
    {64, 64, 4, 4, 16, 1, 595, 3, EIN__MATH_FP32, 2, false, 0},    // ... and columns
    {32, 64, 4, 4, 32, 2, 530, 3, EIN__MATH_FP32, 2, false, 0},
    {32, 32, 4, 4, 32, 4, 490, 4, EIN__MATH_FP32, 2, false, 0},  // so few that the terms are shared
    {16, 64, 4, 4, 64, 4, 460, 2, EIN__MATH_FP32, 2, false, 0},
    {128, 128, 64, 32, 16, 1, 0, 2, EIN__MATH_TF32, 3, false, 0},
    {64, 128, 32, 32, 16, 1, 0, 2, EIN__MATH_TF32, 4, false, 0},
    {64, 64, 32, 32, 32, 2, 0, 2, EIN__MATH_TF32, 3, false, 0},
    {32, 64, 32, 32, 32, 4, 0, 2, EIN__MATH_TF32, 6, false, 0},
    {32, 32, 32, 32, 64, 8, 0, 2, EIN__MATH_TF32, 6, false, 0},
    {16, 64, 16, 32, 64, 4, 0, 2, EIN__MATH_TF32, 4, false, 0},
    {128, 128, 64, 32, 32, 1, 0, 1, EIN__MATH_FP16, 3, false, 0},
    {64, 128, 32, 32, 32, 1, 0, 2, EIN__MATH_FP16, 4, false, 0},
    {64, 64, 32, 32, 64, 2, 0, 2, EIN__MATH_FP16, 3, false, 0},
    {32, 64, 32, 32, 64, 4, 0, 2, EIN__MATH_FP16, 6, false, 0},
    {32, 32, 32, 32, 128, 8, 0, 2, EIN__MATH_FP16, 6, false, 0},
    {16, 64, 16, 32, 128, 4, 0, 2, EIN__MATH_FP16, 4, false, 0},
    // Half as many steps where these pass through registers, one after the other.
    {64, 64, 32, 32, 64, 2, 0, 1, EIN__MATH_TF32, 1, false, 0},
    {64, 64, 32, 32, 128, 2, 0, 1, EIN__MATH_FP16, 1, false, 0},
    // More for a thread of each word that it reads, and more sums to add up.
    {64, 64, 8, 4, 32, 2, 630, 2, EIN__MATH_FP32, 2, false, 0},
    {32, 64, 8, 4, 32, 4, 570, 2, EIN__MATH_FP32, 2, false, 0},
    // A third fewer words from shared memory for each product, a quarter fewer from the L2 cache.
    {128, 256, 64, 64, 16, 1, 0, 1, EIN__MATH_TF32, 4, false, 0},
    {256, 128, 64, 64, 16, 1, 0, 1, EIN__MATH_TF32, 4, false, 0},
    {128, 256, 64, 64, 32, 1, 0, 1, EIN__MATH_FP16, 4, false, 0},
    {256, 128, 64, 64, 32, 1, 0, 1, EIN__MATH_FP16, 4, false, 0},
    // Numbers of columns that are three times a power of two.
    {64, 192, 4, 12, 16, 1, 670, 2, EIN__MATH_FP32, 2, false, 0},
    {64, 96, 4, 12, 32, 2, 645, 2, EIN__MATH_FP32, 2, false, 0},
    // By warpgroups: all steps that the tile has need room, more than older devices have.
    {128, 256, 16, 256, 64, 1, 0, 1, EIN__MATH_FP16, 4, true, 0},
    {128, 192, 16, 192, 64, 1, 0, 1, EIN__MATH_FP16, 5, true, 0},
    {128, 128, 16, 128, 64, 1, 0, 1, EIN__MATH_FP16, 6, true, 0},
    {128, 128, 16, 128, 64, 1, 0, 2, EIN__MATH_FP16, 3, true, 0},
    {128, 64, 16, 64, 64, 1, 0, 2, EIN__MATH_FP16, 4, true, 0},
    {128, 96, 16, 96, 64, 1, 0, 2, EIN__MATH_FP16, 4, true, 0},
    {128, 256, 16, 256, 32, 1, 0, 1, EIN__MATH_TF32, 4, true, 0},
    {128, 192, 16, 192, 32, 1, 0, 1, EIN__MATH_TF32, 5, true, 0},
    {128, 128, 16, 128, 32, 1, 0, 1, EIN__MATH_TF32, 6, true, 0},
    {128, 128, 16, 128, 32, 1, 0, 2, EIN__MATH_TF32, 3, true, 0},
    {128, 64, 16, 64, 32, 1, 0, 2, EIN__MATH_TF32, 4, true, 0},
    {128, 96, 16, 96, 32, 1, 0, 2, EIN__MATH_TF32, 4, true, 0},
    // By patches, for results whose channels lie side by side, and for those whose pixels do.
    {256, 64, 64, 32, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 1},
    {128, 64, 32, 32, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 1},
    {64, 64, 32, 16, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 1},
    {256, 32, 32, 32, 32, 1, 0, 2, EIN__MATH_TF32, 2, false, 1},
    {128, 32, 16, 32, 32, 1, 0, 2, EIN__MATH_TF32, 2, false, 1},
    {64, 256, 32, 64, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 2},
    {64, 128, 32, 32, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 2},
    {64, 64, 16, 32, 16, 1, 0, 2, EIN__MATH_TF32, 2, false, 2},
    {32, 256, 32, 32, 32, 1, 0, 2, EIN__MATH_TF32, 2, false, 2},
    {32, 128, 16, 32, 32, 1, 0, 2, EIN__MATH_TF32, 2, false, 2},
};

// Whether both factors are copied to the tensor cores' tile as they lie. Zeros behind the last term
// that are shifted are none, so there loads compute what is.
static bool ein__product_copies(const ein__tiled *p, const ein__product_tile *t) {
    ein__dtype holds = t->math == EIN__MATH_FP16 ? EIN__F16 : EIN__F32;
    return p->held == holds && !(p->shifted && p->depth % t->terms);
}

// Whether the sums of a tile leave a thread few registers for anything else.
static bool ein__product_is_large(const ein__product_tile *t) {
    return t->rm * t->rn > EIN__PRODUCT_SUMS;
}

// Whether both factors are copied in 16 bytes at a time, which takes few registers.
static bool ein__product_streams(const ein__tiled *p, const ein__product_tile *t) {
    int whole = p->held == EIN__F16 ? 8 : 4;
    bool vectors = p->load[0].words == whole && p->load[1].words == whole;
    return vectors && !p->computed && ein__product_copies(p, t);
}

// Of a patch's tile: the box of its lines, the lines of the other factor, and bytes of shared
// memory, as templates/tiles_patch.cu has them.
static const ein__box *ein__patch_box(const ein__tiled *p, const ein__product_tile *t) {
    int lines = t->patch == 1 ? t->rows : t->cols;
    return &p->patch.box[lines / EIN__BOX_LINES / 2];
}
static int ein__patch_others(const ein__product_tile *t) {
    return t->patch == 1 ? t->cols : t->rows;
}
static int64_t ein__patch_bytes(const ein__tiled *p, const ein__product_tile *t) {
    int64_t terms = ein__times(ein__ceil(p->depth, t->terms), t->terms);
    int64_t bytes = terms * (4 * ein__patch_others(t) + 4) + ein__patch_box(p, t)->elements * 4;
    return ein__ceil(bytes + 8, 128) * 128;
}

// Tiles that may compute product `p`, from the first on.
static int ein__product_tiles(const ein__tiled *p) {
    if (p->math == EIN__MATH_FP32) return EIN__PRODUCT_FMA;
    return p->patch.side ? EIN__PRODUCT_TILES : EIN__PRODUCT_PLAIN;
}

// Whether tiles that hold f32 on tensor cores may compute product `p`.
static bool ein__holds_floats(const ein__tiled *p) {
    return p->held == EIN__F32 &&
           (p->math == EIN__MATH_TF32 || (p->math == EIN__MATH_FP16 && p->floats));
}

static bool ein__patch_fits(const ein__tiled *p, const ein__product_tile *t) {
    if (p->patch.side != t->patch || p->computed || p->each || p->addend) return false;
    if (!ein__holds_floats(p)) return false;
    return ein__patch_box(p, t)->boxes > 0 && ein__patch_bytes(p, t) <= EIN__PATCH_BYTES;
}

enum {
    EIN__SHARED_FREE = 48 << 10,     // bytes of shared memory that a block gets without asking
    EIN__SHARED_RESERVED = 1 << 10,  // bytes of an SM's that each block takes beside its own
};

// Shared memory for one of `resident` blocks of an SM, bytes.
static int64_t ein__shared_room(const ein__gpu *g, int resident) {
    int64_t most = (int64_t)g->block_kb << 10,
            share = ((int64_t)g->sm_kb << 10) / resident - EIN__SHARED_RESERVED;
    return ein__most(ein__least(most, share), EIN__SHARED_FREE);
}

static int64_t ein__product_step_bytes(const ein__product_tile *t) {
    return (t->rows + t->cols) * t->terms * (t->math == EIN__MATH_FP16 ? 2 : 4);
}

// Steps of a tensor cores' tile that have room in `bytes` of shared memory: two or more, or the one
// that the tile has.
static int ein__product_stages(const ein__product_tile *t, int64_t bytes) {
    int64_t room = bytes / ein__product_step_bytes(t);
    if (t->stages == 1 || t->warpgroups) return t->stages;
    return room < 2 ? 2 : room < t->stages ? (int)room : t->stages;
}

// The same of a tile to which both factors are copied, beside `taken` bytes; of products of `terms`
// no more than can be on their way at once, where a block has to ask for room.
static int ein__product_copied_stages(const ein__gpu *g, const ein__product_tile *t, int64_t terms,
                                      int64_t taken) {
    int most = ein__product_stages(t, ein__shared_room(g, t->resident) - taken);
    int least = ein__product_stages(t, EIN__SHARED_FREE - taken);
    return (int)ein__most(least, ein__least(most, ein__ceil(terms, t->terms) + 1));
}

// Bytes of a tensor cores' tile: its steps, or the sums of the groups that share the terms.
static int ein__product_bytes(const ein__product_tile *t, int stages) {
    int64_t sums = t->parts > 1 ? 4 * t->parts * t->rows * (t->cols + 8) : 0;
    return (int)ein__most(stages * ein__product_step_bytes(t), sums);
}

// The least bytes of a tile.
static int64_t ein__product_least_bytes(const ein__product_tile *t) {
    if (t->math != EIN__MATH_FP32) return ein__product_bytes(t, ein__product_stages(t, 0));
    int64_t step = t->terms * (t->rows + t->cols + 8) * 4,
            sums = t->parts > 1 ? EIN__PRODUCT_THREADS * t->rm * 16 : 0;
    return ein__most(2 * step, sums);
}

// Bytes of shared memory that second values of a step's terms take.
static int64_t ein__cross_bytes(const ein__tiled *p, const ein__product_tile *t) {
    int64_t rows = p->values[0] > 1 ? t->rows + 4 : 0, cols = p->values[1] > 1 ? t->cols + 4 : 0;
    return 2 * 4 * t->terms * (rows + cols);
}

// Whether a tile's threads have so many sums that with what terms take they leave no registers for
// another block: by bench/issue.py (sm_90) the SM is as busy with one, where two spill.
static bool ein__cross_alone(const ein__tiled *p, const ein__product_tile *t) {
    return t->rm * t->rn * p->crosses >= EIN__CROSS_SUMS;
}

// Whether a tile may have terms that are no products: groups of threads add theirs up.
static bool ein__cross_fits(const ein__tiled *p, const ein__product_tile *t) {
    if (!p->crosses) return true;
    if (p->crosses > 1 && t->rm * t->rn * p->crosses > EIN__CROSS_MOST) return false;
    return (p->added || t->parts == 1) &&
           ein__product_least_bytes(t) + ein__cross_bytes(p, t) <= EIN__SHARED_FREE;
}

// Whether a tile may compute product `p`. Factors that are f32 in FP16 mode may stay as they are in
// TF32's tiles, which round them to as many bits.
static bool ein__product_fits(const ein__tiled *p, const ein__product_tile *t) {
    if (p->math == EIN__MATH_FP32 && t->math != EIN__MATH_FP32) return false;
    if (!ein__cross_fits(p, t)) return false;
    if (t->patch) return ein__patch_fits(p, t);
    if (p->addend && !ein__product_fits(p->addend, t)) return false;
    bool copies = t->math != EIN__MATH_FP32 && ein__product_copies(p, t);
    if (copies && t->stages == 1) return false;
    if (t->warpgroups && (!p->warpgroups || !ein__product_streams(p, t))) return false;
    // Of TF32 the instruction takes the second factor as lines of terms, and rounds nothing.
    bool rounded = t->warpgroups && t->math == EIN__MATH_TF32;
    if (rounded && (!p->rounded || !p->load[1].along || p->math != t->math)) return false;
    bool stored = t->warpgroups && !rounded;  // no thread has the first factor in registers
    if (stored && (p->shifted || (p->each && !p->load[0].along))) return false;
    if (ein__product_is_large(t) && !ein__product_streams(p, t)) return false;
    if (t->math == EIN__MATH_TF32 && p->math == EIN__MATH_FP16) return p->floats;
    return t->math == EIN__MATH_FP32 || t->math == p->math;
}

// Whether a tile that fits is worth a look: where no other block is beside a warpgroups' one what
// comes before and behind the steps would be most of the time.
static bool ein__product_pays(const ein__tiled *p, const ein__product_tile *t) {
    return !t->warpgroups || t->resident > 1 || p->depth >= 4 * t->terms;
}

enum { EIN__TAPS = 512 };  // terms of which a table in shared memory may have the places

// Bytes of a table of `words` for each of `depth` terms, in whole steps, beside tile `t`; 0: there
// is none.
static int64_t ein__tap_bytes(const ein__product_tile *t, int64_t depth, int words) {
    if (!words || depth > EIN__TAPS) return 0;
    int64_t bytes = ein__ceil(depth, t->terms) * t->terms * words * 4;
    return bytes + ein__product_least_bytes(t) <= EIN__SHARED_FREE ? bytes : 0;
}

// The tile's name in tables of costs: rows, columns, terms; groups of threads; what a thread or a
// warp has; the type that tensor cores multiply; steps that have room, where there are two such.
static void ein__product_tile_name(const ein__product_tile *t, char name[32]) {
    static const char *const type[] = {"", ".tf32", ".f16"};
    int n = snprintf(name, 32, "%dx%dx%d.%d.%dx%d%s", t->rows, t->cols, t->terms, t->parts, t->rm,
                     t->rn, type[t->math]);
    if (t->warpgroups) snprintf(name + n, 32 - n, ".w%d", t->stages);
    if (t->patch) snprintf(name + n, 32 - n, ".patch");
}

// Of the cycles in which an SM's schedulers may issue, in 1/1000, those in which they do: assumed.
// Instructions of a thread for a step of the loop beside what the step is about.
enum { EIN__ISSUED_SHARE = 850, EIN__PRODUCT_LOOP = 14 };

// What one step of a tile's loop takes at least, from load to load, ps: assumed. What a block takes
// beside its steps, until its first terms are there and when it stores; the same once more for each
// turn of blocks that an SM takes when others have ended; and what each step takes more where an SM
// has no other block that computes while this one meets at the step's barrier and gets its first
// factors. What an SM takes for each element of a tensor cores' tile when its sums leave registers,
// meet in shared memory and are stored (of a warpgroups' one: ten products); and for the sums along
// rows in each of a block's steps, more than their instructions. Chosen by 2200 products measured
// on an H200.
enum {
    EIN__PRODUCT_STEP_PS = 300000,
    EIN__PRODUCT_START_PS = 450000,
    EIN__PRODUCT_TURN_PS = 1000000,
    EIN__PRODUCT_ALONE_PS = 95000,
    EIN__TENSOR_ALONE_PS = 40000,
    EIN__PRODUCT_ELEMENT_PS = 240,
    EIN__WARPGROUP_ELEMENT_PS = 110,
    EIN__PRODUCT_ROWS_PS = 45000
};

static uint32_t ein__read_slots(const ein_ctx *ctx, const ein__expr *read) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < read->nix; k++) used |= ein__ix_uses(ctx, read->ix[k]);
    return used;
}

// Of a product of `read`: with tensor cores, where the mode has a use for them. mma.sync as we use
// it (m16n8k8 of TF32, m16n8k16 of halves) came with compute capability 8.0. A sum of squares is a
// statistic and stays FP32. What halves have too few exponents for is multiplied as TF32, which has
// all bits of a bf16. What the model stores as halves is multiplied as that in every mode.
static ein__math ein__tensor_math(ein_ctx *ctx, const ein__expr *const *read) {
    ein__val a = {read[0]->val}, b = {read[1]->val};
    const ein__gpu *g = ein__gpu_of(ctx);
    if (g->cc < 80 || a.i == b.i) return EIN__MATH_FP32;
    if (ein__are_halves(ctx, a, b)) return EIN__MATH_FP16;
    if (ctx->desc.math == EIN_MATH_FP32) return EIN__MATH_FP32;
    if (ein__stays_wide(ctx, a) || ein__stays_wide(ctx, b))
        return g->tf32 ? EIN__MATH_TF32 : EIN__MATH_FP32;
    return ctx->desc.math == EIN_MATH_TF32 ? EIN__MATH_TF32 : EIN__MATH_FP16;
}

// Factor `ex` as a read of x less what x has at the first of its terms (iterators `terms` of `ex`):
// the two reads, or false.
EIN__FN bool ein__product_shift(const ein_ctx *ctx, ein__ex ex, uint32_t terms, ein__ex *x,
                                ein__ex *first) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_BINARY || e->fn != EIN__SUB) return false;
    const ein__expr *a = ein__ex_get(ctx, e->kid[0]), *b = ein__ex_get(ctx, e->kid[1]);
    bool reads = a->op == EIN__X_READ && b->op == EIN__X_READ && a->val == b->val;
    if (!reads || a->bits || b->bits || (ein__ex_uses(ctx, e->kid[1]) & terms)) return false;
    *x = e->kid[0];
    *first = e->kid[1];
    return true;
}

// What tensor cores' tiles may do with the factors as they are in memory.
static void ein__tensor_held(ein_ctx *ctx, const ein__expr *const *read, ein__tiled *p) {
    ein__dtype t[2];
    for (int k = 0; k < 2; k++) {
        ein__val v = {read[k]->val};
        t[k] = ctx->value[v.i].dtype;
        if (t[k] == EIN__F32 && ein__element_size(ctx, v) == 2) t[k] = EIN__F16;
    }
    p->held = t[0] == t[1] ? t[0] : EIN__NDTYPE;
    p->floats = p->held == EIN__F32 && ctx->typed && ein__gpu_of(ctx)->tf32 > 0;
    p->warpgroups = ein__gpu_of(ctx)->cc == 90;
}

enum { EIN__PRODUCT_INNER = 8 };  // terms whose multiple the innermost iterator's extent is

// The summation iterator that should count the terms innermost, so that a step of the loop stays
// within one tap of a window: guards and the tap's digits are then known once a step. False: the
// order does not matter, or no iterator fits.
EIN__FN bool ein__product_inner(ein_ctx *ctx, const ein__scope *s, const ein__tiled *p,
                                uint32_t *slot) {
    uint32_t guarded = ein__guarded_slots(ctx, p->read[0]) | ein__guarded_slots(ctx, p->read[1]);
    int64_t most = 0;
    if (!(guarded >> s->nt)) return false;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if ((guarded >> i & 1) || s->n[i] % EIN__PRODUCT_INNER || s->n[i] <= most) continue;
        most = s->n[i];
        *slot = i;
    }
    return most > 0;
}

// The summation iterator that counts the terms of product `s` innermost: as above, or that of the
// least steps, of both factors, unless a factor whose lines do not lie side by side has terms that
// do along another one: then its loads are vectors along that. -1: there is none. `alone`: none of
// the others counts terms with it.
EIN__FN int ein__product_last(ein_ctx *ctx, const ein__scope *s, const ein__tiled *p, bool *alone) {
    uint32_t inner, all = s->nt + s->ns;
    int64_t step[2][EIN__MAX_ITERS], least = INT64_MAX;
    int last = -1;
    *alone = ein__product_inner(ctx, s, p, &inner);
    if (*alone) return (int)inner;
    for (int k = 0; k < 2; k++) ein__read_steps(ctx, p->read[k], all, step[k]);
    for (uint32_t i = s->nt; i < all; i++) {
        int64_t longer = ein__most(step[0][i], step[1][i]);
        if (s->n[i] <= 1 || longer > least) continue;
        last = (int)i;
        least = longer;
    }
    for (int k = 0; k < 2 && last >= 0; k++) {
        bool lies = step[k][last] == 1;
        for (uint32_t i = 0; i < s->nt; i++)
            lies |= (p->group[k] >> i & 1) && s->n[i] > 1 && step[k][i] == 1;
        for (uint32_t i = s->nt; i < all && !lies; i++)
            if (step[k][i] == 1 && s->n[i] > 1 && s->n[i] % EIN__PRODUCT_INNER == 0) {
                *alone = true;
                return (int)i;
            }
    }
    return last;
}

// The factor that may be a patch. On tensor cores alone, and of products without a batch.
static void ein__match_patch(ein_ctx *ctx, const ein__scope *s, ein__tiled *p) {
    ein__patch *h = &p->patch;
    if (!ein__holds_floats(p) || p->extent[2] > 1 || p->depth > EIN__PATCH_TERMS) return;
    for (int k = 0; k < 2 && !h->side; k++)
        if (ein__patch_of(ctx, s, p->read[k], p->group[k], p->depth, h->box)) h->side = k + 1;
}

// The iterator along which a result with strides `out` has its neighbours; -1: it is one element.
static int ein__innermost_of(const ein__scope *s, const int64_t *out) {
    int lane = -1;
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1 && (lane < 0 || out[i] < out[lane])) lane = (int)i;
    return lane;
}

// Contraction `s` as a product whose result has strides `out`. False: it is no contraction, or
// has more terms than an unsigned counts.
EIN__FN bool ein__match_tiles(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                              ein__tiled *p) {
    const ein__expr *read[2];
    *p = (ein__tiled){.extent = {1, 1, 1}, .depth = 1};
    if (!ein__two_factors(ctx, s, read, &p->alpha)) return false;
    uint32_t in[2] = {ein__read_slots(ctx, read[0]), ein__read_slots(ctx, read[1])};
    int lane = ein__innermost_of(s, out);
    p->math = ein__tensor_math(ctx, read);
    ein__tensor_held(ctx, read, p);
    int col = lane >= 0 && (in[0] >> lane & 1) && !(in[1] >> lane & 1) ? 0 : 1;
    p->scattered = lane >= 0 && (in[0] >> lane & 1) == (in[1] >> lane & 1);
    p->read[0] = read[1 - col];
    p->read[1] = read[col];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool row = in[1 - col] >> i & 1, column = in[col] >> i & 1;
        int group = row == column ? 2 : column;
        if (i >= s->nt) {
            p->depth = ein__times(p->depth, s->n[i]);
            continue;
        }
        p->group[group] |= 1u << i;
        p->extent[group] = ein__times(p->extent[group], s->n[i]);
    }
    bool alone;
    int last = ein__product_last(ctx, s, p, &alone);
    for (int k = 0; k < 2; k++)
        p->load[k] = ein__factor_load_of(ctx, s, p->read[k], p->group[k], k ? out : NULL, last,
                                         alone, p->math);
    p->rounded = ein__may_round(ctx, (ein__val){p->read[1]->val});
    ein__match_patch(ctx, s, p);
    return p->depth <= EIN__PRODUCT_DEPTH;
}

static int64_t ein__product_blocks(const ein__tiled *p, const ein__product_tile *t) {
    int64_t down = (p->extent[0] + t->rows - 1) / t->rows,
            across = (p->extent[1] + t->cols - 1) / t->cols;
    if (t->patch == 1) down = ein__patch_box(p, t)->boxes;
    if (t->patch == 2) across = ein__patch_box(p, t)->boxes;
    return ein__times(ein__times(down, across), p->extent[2]);
}

// Share of the tensor cores' peak, in 1/1000, that mma.sync reaches in our tiles, assumed at 0.7 of
// its own limit: 60 % of the peak where that is wgmma's (compute capability 9.0 and up), 95 % of a
// library's before. What warpgroups do by wgmma is measured on an H200.
static int64_t ein__tensor_share(const ein__gpu *g, const ein__product_tile *t) {
    if (t->warpgroups) return 900;
    return g->cc >= 90 ? 480 : 660;
}

// What `ops` instructions of threads in each step take on one SM, ps: each counts as two
// operations.
static int64_t ein__issued_ps(const ein__gpu *g, int64_t ops, int64_t steps) {
    return ein__muldiv(2 * ops * steps, 1000 * 1000 * g->sms, g->fp32 * EIN__ISSUED_SHARE);
}

// Whether tile `t` has the elements of load `l` as they are in memory.
static bool ein__load_copies(const ein__factor_load *l, const ein__product_tile *t) {
    if (t->math == EIN__MATH_FP32) return false;
    return l->half == (t->math == EIN__MATH_FP16) && (l->words > 1 || !l->half);
}

// Lines of a tile that threads load side by side: all of them, or the largest power of two that
// divides their number.
EIN__FN int ein__tile_side(int lines) { return lines & -lines; }

// Bytes of the table that has the places of load `l` of a product, or 0.
static int64_t ein__load_taps(const ein__tiled *p, const ein__factor_load *l,
                              const ein__product_tile *t) {
    bool turns = l->steps % t->terms != 0 && !p->computed;
    bool packs = l->packs && t->math != EIN__MATH_FP32;
    return turns ? ein__tap_bytes(t, p->depth, packs ? 2 : l->taps) : 0;
}

// Instructions of a load of four neighbours without tensor cores, as they are below.
enum { EIN__LOAD_TERMS = 6, EIN__LOAD_LINES = 3 };

// What an SM could issue of a warp while it looks up one more line of 128 bytes for a load. Loads
// of f32 elements fewer lines apart are part of what constants were chosen by.
enum { EIN__LOAD_LINE = 4, EIN__LOAD_FEW = 16 };

// Lines that a warp's load of an element each finds.
static int64_t ein__load_lines(const ein__factor_load *l) {
    int64_t bytes = ein__times(l->apart, l->half ? 2 : 4);
    int64_t lines = ein__most(ein__least(ein__times(bytes, 32) / 128, 32), 1);
    return l->half || lines >= EIN__LOAD_FEW ? lines : 1;
}

// Instructions of a load, with their addresses and what stores the elements, counted in what nvcc
// 13 makes of products and convolutions for sm_90. Tiles without tensor cores store four terms of a
// line one by one. Taps of a window that change with every term come from a table, or are counted
// out each time.
static int64_t ein__load_each(const ein__tiled *p, const ein__factor_load *l,
                              const ein__product_tile *t) {
    bool plain = t->math == EIN__MATH_FP32, turns = l->steps % t->terms != 0;
    int64_t each = plain ? 3 : 5;
    if (l->words > 1)
        each = plain                    ? l->along ? EIN__LOAD_TERMS : EIN__LOAD_LINES
               : ein__load_copies(l, t) ? 2
                                        : 8;
    if (l->guarded && (plain || !l->half)) each += plain ? 2 : 4;
    if (l->words == 1) each += EIN__LOAD_LINE * (ein__load_lines(l) - 1);
    if (ein__load_taps(p, l, t)) return each + (plain ? 5 : l->half ? 8 : 0);
    return each + (turns ? plain ? 26 : 20 : 0);
}

// Instructions of all threads of a block for the loads of one step.
static int64_t ein__load_ops(const ein__tiled *p, const ein__product_tile *t) {
    int64_t ops = 0;
    for (int k = 0; k < 4; k++) {
        const ein__factor_load *l = k < 2 ? &p->load[k] : &p->second[k % 2];
        if (k >= 2 && p->values[k % 2] < 2) continue;
        int64_t each = ein__load_each(p, l, t) + l->each * l->words;
        ops += (k % 2 ? t->cols : t->rows) * t->terms * each / l->words;
    }
    return ops;
}

// The same of terms that are no products, beside one for each, and of second values.
static int64_t ein__cross_ops(const ein__tiled *p, const ein__product_tile *t) {
    if (!p->crosses) return 0;
    int64_t values = (p->values[0] - 1) * (t->rm / 4) + (p->values[1] - 1) * (t->rn / 4);
    int64_t each = values * EIN__PRODUCT_THREADS / t->parts;
    return t->terms * (t->rows * t->cols * (p->term_each - 1) + each);
}

// The same of a step of a tensor cores' tile: products and loads of their operands from shared
// memory (of f32 lines side by side, word by word), which are rounded if they were copied there as
// they are: by one instruction on compute capability 9.0, by two before. With the loop itself these
// numbers are within a tenth of what nvcc 13 makes of the tiles for sm_90.
static int64_t ein__tensor_ops(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t) {
    bool half = t->math == EIN__MATH_FP16;
    int64_t own = EIN__PRODUCT_LOOP * EIN__PRODUCT_THREADS;
    if (t->warpgroups) return 2 * own + ein__load_ops(p, t);
    int64_t rows = t->rm / 16, cols = t->rn / 16, steps = t->terms / t->parts / (half ? 16 : 8);
    int64_t each = rows * cols * 2, fragments[2] = {rows, cols};
    for (int k = 0; k < 2; k++) {
        each += fragments[k] * (half || p->load[k].along ? 1 : 4);
        if (!half && ein__load_copies(&p->load[k], t))
            each += 4 * fragments[k] * (g->cc >= 90 ? 1 : 2);
    }
    return each * steps * EIN__PRODUCT_THREADS + own + ein__load_ops(p, t);
}

// Lines that a tensor cores' tile moves for each term: to shared memory, from there to its warps or
// warpgroups.
static int64_t ein__tensor_lines(const ein__product_tile *t) {
    if (t->warpgroups) return t->rows + t->cols + t->rows / 64 * (64 + t->cols);
    return t->rows + t->cols + EIN__PRODUCT_THREADS / 32 * (t->rm + t->rn) / t->parts;
}

// What so many bytes to or from the shared memory of an SM take, at 128 a clock.
static int64_t ein__shared_ps(const ein__gpu *g, int64_t bytes) {
    return ein__muldiv(bytes, ein__sm_lanes(g) * 1000 * g->sms, 64 * g->fp32);
}

// What a block of a tensor cores' tile takes for `terms` of its product, ps: arithmetic at the rate
// of one SM, or the words that its warps store to and load from shared memory.
static int64_t ein__product_tensor_ps(const ein__gpu *g, const ein__product_tile *t,
                                      int64_t terms) {
    int64_t peak = t->math == EIN__MATH_TF32 ? g->tf32 : g->fp16;
    int64_t flop = ein__times(2 * t->rows * t->cols, terms);
    int64_t bytes = ein__times(ein__tensor_lines(t) * ein__math_bytes(t->math), terms);
    int64_t math = ein__muldiv(flop, 1000 * 1000 * g->sms, peak * ein__tensor_share(g, t)),
            shared = ein__shared_ps(g, bytes);
    return math > shared ? math : shared;
}

// Instructions of a block for the sums along its rows, for each term. On tensor cores warps that
// have the same rows share the sums: each of them shifts all words of its fragments and takes some
// to add up.
static int64_t ein__rows_ops(const ein__tiled *p, const ein__product_tile *t) {
    if (!p->each) return 0;
    int64_t words = t->rows / (t->math == EIN__MATH_FP16 ? 2 : 1), warps = t->cols / t->rn;
    bool tensor = t->math != EIN__MATH_FP32, copies = tensor && ein__product_copies(p, t);
    int64_t ops = t->rows * (p->each + (p->shifted && !copies));
    if (tensor) ops += words * (warps - 1 + (p->shifted && copies ? warps : 0));
    return ops;
}

// Whether no load of a tile's steps goes through registers.
static bool ein__product_is_async(const ein__tiled *p, const ein__product_tile *t) {
    bool copies = t->math != EIN__MATH_FP32 && ein__product_copies(p, t) && !p->computed;
    return copies && ein__load_copies(&p->load[0], t) && ein__load_copies(&p->load[1], t);
}

// Steps of a tile's loop that are on their way while one is multiplied.
static int64_t ein__product_ahead(const ein__gpu *g, const ein__tiled *p,
                                  const ein__product_tile *t) {
    if (!ein__product_is_async(p, t)) return 1;
    int64_t taps = ein__load_taps(p, &p->load[0], t) + ein__load_taps(p, &p->load[1], t);
    return ein__product_stages(t, ein__shared_room(g, t->resident) - taps) - 1;
}

// Blocks that the GPU's SMs hold at once.
static int64_t ein__product_slots(const ein__gpu *g, const ein__tiled *p,
                                  const ein__product_tile *t) {
    bool tensor = t->math != EIN__MATH_FP32;
    if (t->patch) {
        bool beside = ein__patch_bytes(p, t) <= ein__shared_room(g, t->resident);
        return g->sms * (beside ? t->resident : 1);
    }
    if (ein__cross_alone(p, t)) return g->sms;
    return g->sms * (tensor && !ein__product_copies(p, t) ? 1 : t->resident);
}

// What a tile without tensor cores takes for `waves` of blocks: its share of the peak, of which
// factors are a part that are loaded four words at a time, the first's terms, the second's columns;
// other loads, and `rows` instructions of a step; what the groups that share terms leave in shared
// memory and take from it.
static int64_t ein__product_plain_ps(const ein__gpu *g, const ein__tiled *p,
                                     const ein__product_tile *t, int64_t waves, int64_t rows) {
    int64_t steps = (p->depth + t->terms - 1) / t->terms, size = t->rows * t->cols;
    int64_t flop = ein__times(ein__times(waves, g->sms), ein__times(2 * size, steps * t->terms));
    int64_t more = ein__load_ops(p, t) -
                   (t->rows * EIN__LOAD_TERMS + t->cols * EIN__LOAD_LINES) * t->terms / 4,
            sums = t->parts > 1 ? 2 * t->parts * size * 4 : 0;
    int64_t ps = ein__muldiv(flop, 1000 * 1000, g->fp32 * t->share);
    int64_t each = ein__shared_ps(g, sums);
    if (more > 0 || rows) each += ein__issued_ps(g, (more > 0 ? more : 0) + rows, steps);
    return ps + ein__times(waves, each);
}

// What ends a tile, and sums along its rows, for so many waves of blocks, beside what is counted in
// instructions.
static int64_t ein__product_ends_ps(const ein__tiled *p, const ein__product_tile *t,
                                    int64_t waves) {
    bool tensor = t->math != EIN__MATH_FP32;
    int64_t rows = ein__least(t->rows, p->extent[0]), cols = ein__least(t->cols, p->extent[1]);
    int64_t each = t->warpgroups ? EIN__WARPGROUP_ELEMENT_PS : EIN__PRODUCT_ELEMENT_PS;
    int64_t ps = tensor ? rows * cols * each : 0;
    if (p->each)
        ps = ein__plus(ps, ein__times(ein__ceil(p->depth, t->terms), EIN__PRODUCT_ROWS_PS));
    return ein__times(ps, waves);
}

// Of an SM's or the GPU's room for blocks what clusters of `together` find room in: of three or
// more not all that a group of SMs has is theirs (measured on an H200: 15 clusters of eight and 30
// of four where 132 blocks lie).
static int64_t ein__clustered(int64_t blocks, int together) {
    return together > 2 ? ein__most(blocks - blocks / 11, 1) : blocks;
}

// Time of a tile's loop: the slowest of arithmetic, in `waves` of blocks; what the blocks fetch
// from the L2 cache; and one block's steps, when those of others do not hide their latency.
static int64_t ein__product_loop_ps(const ein__gpu *g, const ein__tiled *p,
                                    const ein__product_tile *t, int64_t waves, int64_t again) {
    int64_t blocks = ein__product_blocks(p, t), steps = ein__ceil(p->depth, t->terms);
    int64_t terms = ein__times(steps, t->terms), each = EIN__PRODUCT_STEP_PS, ps;
    int64_t turns = steps / ein__product_ahead(g, p, t);
    int64_t rows = ein__rows_ops(p, t) * t->terms + ein__cross_ops(p, t);
    int64_t alone = t->math == EIN__MATH_FP32 ? EIN__PRODUCT_ALONE_PS : EIN__TENSOR_ALONE_PS;
    if (t->math == EIN__MATH_FP32) {
        ps = ein__product_plain_ps(g, p, t, waves, rows);
    } else {
        int64_t issued = ein__issued_ps(g, ein__tensor_ops(g, p, t) + rows, steps),
                one = ein__product_tensor_ps(g, t, terms);
        ps = ein__times(waves, issued > one ? issued : one);
        // What goes through registers is waited for, stored and read before the next step: by
        // bench/issue.py such steps take 2.5 to 3 times as long as those that are copied.
        if (!ein__product_is_async(p, t)) each += (issued > one ? issued : one) / steps;
    }
    int64_t bytes =
        ein__times(ein__times(ein__math_bytes(t->math) * (t->rows + t->cols), terms), blocks);
    int64_t l2 = g->bandwidth * (g->l2_rate > 100 ? g->l2_rate : 100) / 100;
    // The steps of a product of 4096 x 4096 by warpgroups get four thirds of that.
    if (t->warpgroups) l2 += l2 / 3;
    int64_t fetch = ein__muldiv(bytes, 1000 * 1000, l2);
    // Steps that are not on their way together, and the first loads; blocks beside each other take
    // their turns together.
    int64_t chain = ein__times(ein__times(turns + 1, each), again);
    if (waves == 1) ps = ein__plus(ps, ein__times(steps, alone));
    ps = fetch > ps ? fetch : ps;
    return ein__plus(chain > ps ? chain : ps, EIN__PRODUCT_START_PS);
}

// What the blocks of a patch's tile take until they store. Instructions of an element of the patch,
// and of a warp for eight terms beside those that are counted, are counted in what nvcc 13 makes of
// them; how long a block waits for its factors, and from eight terms to the next, is assumed.
static int64_t ein__patch_loop_ps(const ein__gpu *g, const ein__tiled *p,
                                  const ein__product_tile *t, int64_t waves, int64_t again) {
    enum { ELEMENT = 28, AROUND = 8, WAIT_PS = 1200000, EIGHT_PS = 50000 };
    int64_t elements = ein__patch_box(p, t)->elements, others = ein__patch_others(t);
    int64_t eights = ein__ceil(p->depth, 8), terms = ein__ceil(p->depth, t->terms) * t->terms;
    const ein__factor_load *l = &p->load[2 - t->patch];
    int64_t seen = t->patch == 1 ? t->rm : t->rn, fixed = t->patch == 1 ? t->rn : t->rm;
    int64_t each = t->rm / 16 * (t->rn / 8) + seen / 4 + fixed / 16 * (l->along ? 5 : 8) + AROUND;
    int64_t ops = elements * ELEMENT + others * terms * ein__load_each(p, l, t) / l->words +
                  eights * each * EIN__PRODUCT_THREADS;
    // Words of warps that lie in neighbouring rows of a patch conflict now and then.
    int64_t lines = EIN__PRODUCT_THREADS / 32 * eights * (seen / 4 * 5 / 4 + fixed / 4);
    int64_t bytes = 128 * lines + 8 * (elements + others * terms);
    int64_t flop = ein__times(2 * t->rows * t->cols, 8 * eights);
    int64_t one = ein__muldiv(flop, 1000 * 1000 * g->sms, g->tf32 * ein__tensor_share(g, t));
    one = ein__most(one, ein__muldiv(bytes, 2 * 1000 * g->sms, g->fp32));
    one = ein__most(one, ein__issued_ps(g, ops, 1));
    int64_t l2 = g->bandwidth * (g->l2_rate > 100 ? g->l2_rate : 100) / 100;
    int64_t fetch = ein__muldiv(
        ein__times(ein__product_blocks(p, t), 4 * (elements + others * terms)), 1000 * 1000, l2);
    int64_t ps = ein__most(ein__times(one, waves), fetch);
    int64_t chain = ein__times(WAIT_PS + eights * EIGHT_PS, again);
    return ein__plus(ein__most(ps, chain), EIN__PRODUCT_START_PS);
}

// Time of a tile's loops, one behind the other where there is a second product, and of its end.
static int64_t ein__product_tile_ps(const ein__gpu *g, const ein__tiled *p,
                                    const ein__product_tile *t) {
    int64_t blocks = ein__product_blocks(p, t), slots = ein__product_slots(g, p, t);
    int64_t waves = ein__ceil(blocks, ein__clustered(g->sms, p->together)),
            again = ein__ceil(blocks, ein__clustered(slots, p->together));
    int64_t ps = t->patch ? ein__patch_loop_ps(g, p, t, waves, again)
                          : ein__product_loop_ps(g, p, t, waves, again);
    if (p->addend) ps = ein__plus(ps, ein__product_loop_ps(g, p->addend, t, waves, again));
    // Of warpgroups' tiles and patches' on one SM one ends while the other's products go on.
    bool beside = t->warpgroups || t->patch;
    ps = ein__plus(ps, ein__product_ends_ps(p, t, beside ? again : waves));
    return ein__plus(ps, ein__times(again - 1, EIN__PRODUCT_TURN_PS));
}

// A little less than what so many waves of a tile's blocks take for their arithmetic and to start,
// ps: one that loses by that needs no closer look.
static double ein__product_floor(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                                 double waves) {
    double rate = t->math == EIN__MATH_FP32   ? (double)g->fp32 * (double)t->share
                  : t->math == EIN__MATH_TF32 ? (double)g->tf32 * (double)ein__tensor_share(g, t)
                                              : (double)g->fp16 * (double)ein__tensor_share(g, t);
    double flop = 2.0 * t->rows * t->cols * (double)p->depth * (double)g->sms;
    return 0.999 * (1e6 * waves * flop / rate + EIN__PRODUCT_START_PS);
}

// Whether an SM moves less through shared memory by tile `t` of a product than by tile `than`,
// which is like it, and no more to there, where there are blocks enough for that to bind.
static bool ein__moves_less(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                            const ein__product_tile *than) {
    if (t->math == EIN__MATH_FP32 || t->math != than->math || t->parts != than->parts) return false;
    int64_t waves = ein__ceil(ein__product_blocks(p, t), g->sms),
            others = ein__ceil(ein__product_blocks(p, than), g->sms);
    int64_t to = ein__times(waves, t->rows + t->cols),
            other_to = ein__times(others, than->rows + than->cols);
    return others > 1 && to <= other_to &&
           ein__times(waves, ein__tensor_lines(t)) < ein__times(others, ein__tensor_lines(than));
}

// The tile that is estimated to be fastest on the context's GPU, and its time; of equals on tensor
// cores the one that leaves shared memory most room: those that arithmetic binds come less close to
// its rate where shared memory is about as busy (bench/issue.py, sm_90: 0.64 of what mma.sync does
// with two blocks of 128 x 128, 0.76 to 0.84 with one of 128 x 256).
EIN__FN const ein__product_tile *ein__product_tile_of(const ein_ctx *ctx, const ein__tiled *p,
                                                      int64_t *ps) {
    const ein__gpu *g = ein__gpu_of(ctx);
    const ein__product_tile *best = NULL;
    *ps = INT64_MAX;
    for (int i = 0; i < ein__product_tiles(p); i++) {
        const ein__product_tile *t = &ein__product_table[i];
        if (!ein__product_fits(p, t) || !ein__product_pays(p, t)) continue;
        int64_t waves = ein__ceil(ein__product_blocks(p, t), g->sms);
        if (best && ein__product_floor(g, p, t, (double)waves) > (double)*ps) continue;
        int64_t other = ein__product_tile_ps(g, p, t);
        if (best && other > *ps) continue;
        if (best && other == *ps && !ein__moves_less(g, p, t, best)) continue;
        best = t;
        *ps = other;
    }
    return best;
}
