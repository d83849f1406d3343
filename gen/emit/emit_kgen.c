// The state of a kernel while its text is generated, and hashes of what it computes that do not
// depend on the rest of the model.

enum {
    EIN__NAMED,
    EIN__PRIMARY,
    EIN__PREFIX,
    EIN__PRODUCT,
    EIN__TERM,
    EIN__COMPARE,
    EIN__AND,
    EIN__COND
};
enum {
    EIN__IRREGULAR = 1 << 20,
    EIN__NO_PLACE = 1 << 30,  // what a table of terms has behind the last one
    EIN__KLIN = 144,
    EIN__KLEVELS = EIN__MAX_ITERS + 2,
    EIN__KLANES = 8,
    EIN__KOVER = 8
};

typedef enum { EIN__NUM_FLOAT, EIN__NUM_DOUBLE, EIN__NUM_INT } ein__knum;

typedef struct ein__ktext {
    const char *s;  // interned: equal texts are equal pointers
    int prec, level;
} ein__ktext;

typedef struct ein__kterm {
    int64_t k;
    ein__ktext text;
    int64_t step, div, max;  // max: of the absolute value
} ein__kterm;

// c + sum k * text
typedef struct ein__klin {
    int64_t c;
    int n;
    bool uneven;  // c is of one lane only, the others have other constants ...
    bool apart;   // ... and maybe other terms
    ein__kterm t[EIN__KLIN];
} ein__klin;

// c + sum k * atom, over several index forms
typedef struct ein__kform {
    int64_t c;
    int n;
    ein__term t[EIN__KLIN];
} ein__kform;

typedef enum {
    EIN__N_ATOM,
    EIN__N_IX,
    EIN__N_AT,
    EIN__N_EX,
    EIN__N_INTEGER,
    EIN__N_VECTOR
} ein__kkind;
typedef struct ein__kname {
    ein__kkind kind;
    uint32_t id;
    int lane;
    ein__kterm t;
} ein__kname;

typedef struct ein__kslot {
    const char *name;
    int64_t n;
    int level;
    bool gone;  // extent 1, part of the slot it was merged with, or all in one vector
    const char *from, *until;  // where its loop begins and ends, where terms are left out; NULL
} ein__kslot;

// Values of the step that later ones read: text by lane, or none: their definition is put in place.
typedef struct ein__kinner {
    ein__val v;
    const char *text[EIN__KLANES];
    bool put;
    bool whole;  // the texts are of integers, whatever reads them is computed in
    int level;   // from which the texts are valid
} ein__kinner;

// What is known of an expression; 0 is "not yet".
typedef struct ein__kmemo {
    uint64_t key;      // hash of the structure
    uint32_t mask;     // slots that occur, and bit 31
    unsigned uses;     // by other expressions
    unsigned scanned;  // the last scan that saw it
    int integer;       // 1: computed in integers, 2: not
} ein__kmemo;

// What a kernel's text asks of the emitted file: headers and helpers, by the number of their bit in
// an ein__needs. Files with kernels to be measured hold such numbers, so new ones go to the end.
typedef enum ein__need {
    EIN__NEED_HALF,
    EIN__NEED_BF16,
    EIN__NEED_WARP,  // and, behind it, by the ein__red but for R_NONE
    EIN__NEED_CROSS = EIN__NEED_WARP + 5,
    EIN__NEED_BLOCK,  // likewise
    EIN__NEED_CROSS_TWO = EIN__NEED_BLOCK,
    EIN__NEED_TILES = EIN__NEED_BLOCK + 5,
    EIN__NEED_LOAD4,
    EIN__NEED_STORE4,
    EIN__NEED_AWAIT,  // it can be launched before the kernel before it is over
    EIN__NEED_PARTS,
    EIN__NEED_LAST,
    EIN__NEED_RANKED,
    EIN__NEED_ATTEND_TF32,
    EIN__NEED_ATTEND_HALF,
    EIN__NEED_ATTEND_ACROSS,
    EIN__NEED_TENSOR_TF32,
    EIN__NEED_TENSOR_HALF,
    EIN__NEED_LOAD8,
    EIN__NEED_STORE8,
    EIN__NEED_FILL8,
    EIN__NEED_FLOAT8,
    EIN__NEED_ROWS,
    EIN__NEED_INTEGER,
    EIN__NEED_RELU,
    EIN__NEED_TENSOR_ROWS,
    EIN__NEED_WARP_PAIR,
    EIN__NEED_BLOCK_PAIR,
    EIN__NEED_SOFTMAX,
    EIN__NEED_KEY_PARTS,
    EIN__NEED_KEYS_FEW,
    EIN__NEED_KEYS_HALF,
    EIN__NEED_SCORE_UNIT,
    EIN__NEED_COMPUTED,
    EIN__NEED_HALF4,
    EIN__NEED_TAPS,
    EIN__NEED_MOVED,
    EIN__NEED_SPACED,
    EIN__NEED_MOVING,
    EIN__NEED_TURNING,
    EIN__NEED_PART_ROWS,
    EIN__NEED_WARP_THREE,
    EIN__NEED_WARP_FOUR,
    EIN__NEED_BLOCK_THREE,
    EIN__NEED_BLOCK_FOUR,
    EIN__NEED_BFLOAT_LOAD4,
    EIN__NEED_BFLOAT_STORE4,
    EIN__NEED_BFLOAT4,
    EIN__NEED_CLUSTERS,
    EIN__NEED_COLUMN,  // and, behind it, by the ein__red
    EIN__NEED_WARPGROUPS = EIN__NEED_COLUMN + 5,
    EIN__NEED_HALF_ERF,
    EIN__NEED_PATCHES,
    EIN__NEEDS
} ein__need;
typedef uint64_t ein__needs;
_Static_assert(EIN__NEEDS <= 64, "a set of needs has a bit for each");

static bool ein__is_needed(ein__needs set, ein__need what) { return set >> what & 1; }

typedef struct ein__kgen {
    ein_ctx *ctx;
    bool naive;                           // dense layouts
    bool wide;                            // 64-bit index arithmetic
    bool narrow;                          // 32 bits hold all of its integers
    bool too_wide;                        // 32 bits turned out not to be enough
    bool overflow;                        // nor 64
    bool part;                            // of a kernel that has several (stitch.c, siblings.c)
    uint32_t sliced;                      // slots that number slices ...
    int nslice, slice_at[EIN__MAX_RANK];  // ... the outermost one first
    bool shared;                          // blocks share the terms of a sum, see ein__launch
    bool ordered;                         // loads stay where they are, ahead of what hides them
    bool halves;                          // functions need no more digits than halves have
    // Of loads that compute what they give: where, beside their own guards, what they read may be
    // read, "" everywhere. NULL: other loads.
    const char *inside;
    // Where loads of a tile find anything, a position held in a tensor too: at `reached_level` and
    // deeper. NULL: everywhere.
    const char *reached;
    int reached_level;
    // Slots of terms, or none, of which a table has what they add to the read's address and to its
    // guarded positions (emit_factor.c); these texts, and whether the first position has a lower
    // end ...
    uint32_t taps;
    int ntap;
    const char *tap[4];
    bool tap_low, tap_packed;  // ... and whether two positions are one word
    ein__val also;             // stored as well, through a parameter of its own; or none
    const ein__step *peer;     // what is one with it and stored, too, or none (siblings.c, chain.c)
    int npeer;
    const char *to;  // that parameter while it is stored; NULL: the result's
    ein__knum num;
    int narg;
    ein__val arg[EIN__MAX_PARAMS];
    ein__kslot slot[EIN__MAX_ITERS];
    int vec, vec_slot;
    bool whole;     // vectors are stored by their number
    int64_t plane;  // how far behind its place the result is stored
    int ninner, nover;
    ein__kinner inner[EIN__CHAINED];
    struct {
        ein__ex ex;
        ein__ktext text;
        const char *lane[EIN__KLANES];  // instead, by lane; or none
        ein__ex as;                     // instead of text, what is computed; or none
    } over[EIN__KOVER];                 // reads replaced by registers or tiles
    ein__kname *name;                   // stb_ds array
    ein__table known;                   // expressions of which something is known ...
    ein__kmemo **memo;                  // ... and what; by number there, stb_ds array
    unsigned passes;                    // scans made so far
    int nindex, nvalue, scattered;
    ein__buf code[EIN__KLEVELS];
    ein__buf *post;  // where statements go once the loops are over
    ein__needs needs;
} ein__kgen;

static void ein__kneed(ein__kgen *g, ein__need what) { g->needs |= (ein__needs)1 << what; }

// A kernel has few of the context's expressions.
static ein__kmemo *ein__kmemo_of(ein__kgen *g, ein__ex ex) {
    uint32_t id = ein__intern(&g->ctx->arena, &g->known, &ex, sizeof ex);
    while (arrlen(g->memo) <= (ptrdiff_t)id)
        arrput(g->memo, EIN__NEW(&g->ctx->arena, ein__kmemo, 1));
    return g->memo[id];
}

// ------------------------------------------------------------------------------- structure

// Ids of atoms and expressions depend on the rest of the model; what is printed must not. These
// keys hash the structure alone: operands that differ only in which tensor they read have equal
// keys.
static uint64_t ein__kkey_ex(ein__kgen *g, ein__ex ex);

static uint64_t ein__kkey_join(uint64_t h, uint64_t v) {
    return ein__splitmix(h ^ ein__splitmix(v));
}

static uint64_t ein__kkey_ix(ein__kgen *g, ein__ix ix);

static uint64_t ein__kkey_atom(ein__kgen *g, uint32_t id) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    uint64_t h = ein__kkey_join(a->kind, (uint64_t)a->n);
    if (a->kind == EIN__ITER) return ein__kkey_join(h, a->slot);
    if (a->kind == EIN__GATHER) return ein__kkey_join(h, ein__kkey_ex(g, (ein__ex){a->ex}));
    return ein__kkey_join(h, ein__kkey_ix(g, (ein__ix){a->ix}));
}

static uint64_t ein__kkey_ix(ein__kgen *g, ein__ix ix) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    uint64_t h = ein__kkey_join((uint64_t)x->c, (uint64_t)x->q), terms = 0;
    for (uint32_t i = 0; i < x->n; i++)
        terms += ein__kkey_join(ein__kkey_atom(g, x->t[i].atom), (uint64_t)x->t[i].k);
    return ein__kkey_join(h, terms);
}

// Between neighbours along a dimension; of a value of which blocks have a slice each in shared
// memory, 0 along what numbers the slices.
static int64_t ein__kstride(const ein__kgen *g, ein__val v, int dim) {
    const ein__shape *s = &ein__val_get(g->ctx, v)->shape;
    const ein__slice *slice = &g->ctx->slice;
    int64_t stride = 1;
    if (v.i == slice->v.i && slice->dims >> dim & 1u) return 0;
    if (!g->naive) return g->ctx->plan.layout[v.i].stride[dim];
    for (int i = s->rank - 1; i > dim; i--) stride *= s->d[i];
    return stride;
}

static const ein__kinner *ein__kinner_of(const ein__kgen *g, uint32_t val) {
    for (int i = 0; i < g->ninner; i++)
        if (g->inner[i].v.i == val) return &g->inner[i];
    return NULL;
}

// The value of the step that is put in the place of `read`; NULL: none.
static const ein__kinner *ein__kput_of(const ein__kgen *g, ein__ex read) {
    const ein__kinner *in = ein__kinner_of(g, ein__ex_get(g->ctx, read)->val);
    return in && in->put ? in : NULL;
}

// Slots that occur in an expression.
static uint32_t ein__kmask(ein__kgen *g, ein__ex ex) {
    uint32_t *mask = &ein__kmemo_of(g, ex)->mask;
    if (*mask) return *mask;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    *mask = 1u << 31;
    for (uint32_t i = 0; i < x->nix; i++) *mask |= ein__ix_uses(g->ctx, x->ix[i]);
    for (uint32_t i = 0; i < x->nkid; i++) *mask |= ein__kmask(g, x->kid[i]);
    return *mask;
}

static bool ein__kcommutes(const ein__expr *x) {
    return x->op == EIN__X_BINARY &&
           (x->fn == EIN__ADD || x->fn == EIN__MUL || x->fn == EIN__MIN || x->fn == EIN__MAX);
}

static uint64_t ein__kkey_ex(ein__kgen *g, ein__ex ex) {
    ein__kmemo *memo = ein__kmemo_of(g, ex);
    if (memo->key) return memo->key;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    uint64_t h = ein__kkey_join((uint64_t)x->op << 32 | x->fn, x->bits), kids = 0;
    h = ein__kkey_join(h, (uint64_t)x->n * 2 + x->negate);
    for (uint32_t i = 0; i < x->nix; i++) h = ein__kkey_join(h, ein__kkey_ix(g, x->ix[i]));
    for (uint32_t i = 0; i < x->nkid; i++) {
        uint64_t k = ein__kkey_ex(g, x->kid[i]);
        kids = ein__kcommutes(x) ? kids + ein__splitmix(k) : ein__kkey_join(kids, k);
    }
    if (x->op == EIN__X_READ) {
        const ein__value *v = ein__val_get(g->ctx, (ein__val){x->val});
        const ein__kinner *in = ein__kinner_of(g, x->val);
        h = ein__kkey_join(h, in ? (uint64_t)(in - g->inner) + 100 : (uint64_t)v->dtype);
        for (int d = 0; d < v->shape.rank && !in; d++)
            h = ein__kkey_join(ein__kkey_join(h, (uint64_t)v->shape.d[d]),
                               (uint64_t)ein__kstride(g, (ein__val){x->val}, d));
    }
    h = ein__kkey_join(h, kids);
    return memo->key = h ? h : 1;
}

// Rank of an operand in a commutative pair: what the step computed first, constants last.
static int ein__kplace(ein__kgen *g, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (x->op == EIN__X_CONST) return 40;
    if (x->op == EIN__X_READ && ein__kinner_of(g, x->val)) return 0;
    int used = 0;
    for (uint32_t m = ein__kmask(g, ex); m; m &= m - 1) used++;
    return 32 - used;
}

// The children in the order in which they are printed.
static void ein__kkids(ein__kgen *g, const ein__expr *x, ein__ex *kid) {
    memcpy(kid, x->kid, sizeof x->kid);
    if (!ein__kcommutes(x)) return;
    int a = ein__kplace(g, kid[0]), b = ein__kplace(g, kid[1]);
    if (a < b || (a == b && ein__kkey_ex(g, kid[0]) <= ein__kkey_ex(g, kid[1]))) return;
    kid[0] = x->kid[1];
    kid[1] = x->kid[0];
}
