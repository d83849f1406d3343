// Writes one .cu with a kernel per case and its launches (standard output), and the buffers before
// and after, as bytes (the file named by the argument). Expected values come from a direct
// evaluation of the scopes in double, index by index; positions the kernel must not touch hold a
// mark.
#define EINNET_IMPLEMENTATION
#include "all.h"

#include "cases.h"
#include "eval.h"

static FILE *data;
static int ncase;
static ein__buf launches, table;
static ein__needs needs;

// Compiling is most of the work, and kernels of one structure differ in sizes alone: the first case
// of each goes into all programs that are made of this file, the race checker's (USE 1), the
// sanitizers' (USE 2) and the one that is interpreted as nvcc translates it (USE 4), others turn by
// turn into one of the first two, and few into the third. A short run has half of these others, and
// of other tiles and arithmetic the first case in two programs.
// What warpgroups multiply is in a fourth one besides (USE 8), translated for sm_90a.
enum { RACE = 1, SANITIZERS = 2, INTERPRETED = 4, ALL = 7, GROUPS = 8 };
static int use;  // of the case

// A kernel or a function that kernels call.
typedef struct piece {
    const char *key, *text;
    int use;
} piece;
static piece *pieces;  // stb_ds array, in the order in which they are needed

// ------------------------------------------------------------------------------- values

// Small integers and halves: sums stay exact, signs and zeros occur.
static double element(uint32_t seed, int64_t i, ein__dtype t) {
    uint64_t z = ein__splitmix(seed * 0x9E3779B97F4A7C15ull + (uint64_t)i);
    int64_t v = (int64_t)(z % 17) - 8;
    if (t == EIN__BOOL) return (double)(v & 1);
    if (t == EIN__U8) return (double)(v + 8);
    return t <= EIN__BF16 ? (double)v / 4 : (double)v;
}

// ------------------------------------------------------------------------------- layouts

// Strides for an order of dimensions, outermost first (NULL: row-major), each dimension widened by
// `gap` elements, the whole shifted by `offset`.
static void layout(ein_ctx *ctx, ein__val v, const char *order, int gap, int offset) {
    const ein__shape *s = &ctx->value[v.i].shape;
    ein__layout *l = &ctx->plan.layout[v.i];
    int64_t stride = 1;
    l->offset = offset;
    for (int k = s->rank - 1; k >= 0; k--) {
        int d = order ? order[k] - '0' : k;
        l->stride[d] = stride;
        stride *= s->d[d] + gap;
    }
}

static void ensure_layouts(ein_ctx *ctx) {
    while (arrlen(ctx->plan.layout) < arrlen(ctx->value))
        arrput(ctx->plan.layout, (ein__layout){0});
    while (arrlen(ctx->plan.placed) < arrlen(ctx->value)) arrput(ctx->plan.placed, true);
}

static ein__val input(ein_ctx *ctx, ein__dtype t, int rank, const int64_t *dims) {
    ein__shape s = {.rank = rank};
    for (int i = 0; i < rank; i++) s.d[i] = dims[i];
    ein__val v = ein__val_new(ctx, "in", EIN__V_INPUT, -1, (ein__sc){0}, &s, t, -1);
    int64_t n = ein__elements(&s);
    content[v.i] = EIN__NEW(&ctx->arena, double, n);
    for (int64_t i = 0; i < n; i++) content[v.i][i] = element(v.i * 31 + 7, i, t);
    ensure_layouts(ctx);
    layout(ctx, v, NULL, 0, 0);
    return v;
}

static double *contents(ein__val v) { return content[v.i]; }

static ein__val define(ein_ctx *ctx, ein__dtype t, ein__red reduce, int nt, int ns,
                       const int64_t *n, ein__ex body) {
    ein__scope s = {.reduce = reduce, .nt = (uint32_t)nt, .ns = (uint32_t)ns, .body = body};
    ein__shape shape = {.rank = nt};
    for (int i = 0; i < nt + ns; i++) s.n[i] = n[i];
    for (int i = 0; i < nt; i++) shape.d[i] = n[i];
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) {
        fprintf(stderr, "case %d: bad scope\n%s", ncase, ctx->errors.s);
        exit(1);
    }
    ein__val v = ein__val_new(ctx, "v", EIN__V_SCOPE, -1, sc, &shape, t, -1);
    ensure_layouts(ctx);
    layout(ctx, v, NULL, 0, 0);
    compute(ctx, v);
    return v;
}

// What later kernels read of values that a rule has made, those from `first` on.
static void compute_made(ein_ctx *ctx, uint32_t first) {
    ensure_layouts(ctx);
    for (uint32_t i = first; i < (uint32_t)arrlen(ctx->value); i++) {
        layout(ctx, (ein__val){i}, NULL, 0, 0);
        compute(ctx, (ein__val){i});
    }
}

// ------------------------------------------------------------------------------- files

static void put_element(unsigned char *p, ein__dtype t, double v) {
    switch (t) {
    case EIN__F32: {
        float f = (float)v;
        memcpy(p, &f, 4);
        break;
    }
    case EIN__F16: {  // exact for most values of the cases
        uint16_t h = 0;
        if (v != 0) {
            int e;
            double m = frexp(fabs(v), &e);
            h = (uint16_t)(e < -13 ? (int)ldexp(fabs(v), 24)
                                   : (e + 14) << 10 | ((int)ldexp(m, 11) & 0x3ff));
            h |= v < 0 ? 0x8000 : 0;
        }
        memcpy(p, &h, 2);
        break;
    }
    case EIN__BF16: {
        float f = (float)v;
        memcpy(p, (char *)&f + 2, 2);
        break;
    }
    case EIN__I8:
    case EIN__U8: *p = (unsigned char)(int)v; break;
    case EIN__BOOL: *p = (unsigned char)(v != 0); break;
    case EIN__I32: {
        int32_t i = (int32_t)v;
        memcpy(p, &i, 4);
        break;
    }
    case EIN__I64: {
        int64_t i = (int64_t)v;
        memcpy(p, &i, 8);
        break;
    }
    case EIN__NDTYPE: break;
    }
}

static double mark(ein__dtype t) {
    return t == EIN__BOOL ? 1 : ein__dtype_size(t) == 1 ? 99 : 1024;
}

// Bytes from the value's first element on to the last one (and a vector's rest), marks in between.
static unsigned char *image(ein_ctx *ctx, ein__val v, bool dense, bool filled, ein__dtype t,
                            size_t *bytes) {
    const ein__shape *s = &ctx->value[v.i].shape;
    int64_t stride[EIN__MAX_RANK], n = 1, at[EIN__MAX_RANK] = {0}, run = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = dense ? run : ctx->plan.layout[v.i].stride[d];
        run *= s->d[d];
        n += stride[d] * (s->d[d] - 1);
    }
    size_t size = (size_t)ein__dtype_size(t);
    *bytes = (size_t)n * size;
    unsigned char *p = calloc((size_t)n, size);
    for (int64_t i = 0; i < n; i++) put_element(p + (size_t)i * size, t, mark(t));
    int64_t i = 0;
    if (filled) do {
            int64_t to = 0;
            for (int d = 0; d < s->rank; d++) to += stride[d] * at[d];
            put_element(p + (size_t)to * size, t, content[v.i][i++]);
        } while (step_box(s->d, 0, s->rank, at));
    return p;
}

static void put_image(ein_ctx *ctx, ein__val v, bool dense, bool filled, ein__dtype t,
                      uint64_t offset) {
    size_t bytes;
    unsigned char *p = image(ctx, v, dense, filled, t, &bytes);
    uint64_t head[2] = {bytes, offset * (uint64_t)ein__dtype_size(t)};
    fwrite(head, sizeof head, 1, data);
    fwrite(p, 1, bytes, data);
    free(p);
}

static void put_case(ein_ctx *ctx, const char *name, bool naive, const ein__launch *l) {
    ein__val out = l->arg[l->narg - 1];
    ein__kgen g = {.ctx = ctx, .naive = naive};
    ein__putf(&launches, "#if USE & %d\nstatic void run%d(char **b, cudaStream_t stream) {\n", use,
              ncase);
    ein__putf(&launches, "    const dim3 grid(%u, %u, %u), block(%u, %u, %u);\n", l->grid[0],
              l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
    // Where that fails the launch does.
    if (l->smem)
        ein__putf(&launches,
                  "    cudaFuncSetAttribute((const void *)%s, "
                  "cudaFuncAttributeMaxDynamicSharedMemorySize, %d);\n",
                  l->name, l->smem);
    ein__putf(&launches, "    %s<<<grid, block, %d, stream>>>(", l->name, l->smem);
    for (int i = 0; i < l->narg; i++)
        ein__putf(&launches, "%s(%s *)b[%d]", i ? ", " : "",
                  ein__kctype(ein__kdtype(&g, l->arg[i])), i);
    if (l->shared) ein__put(&launches, ", scratch, counters");
    ein__put(&launches, naive ? ");\n}\n" : ", false);\n}\n");
    ein__putf(&launches, "#else\n#define run%d NULL\n#endif\n", ncase);
    ein__dtype t = ein__kdtype(&g, out);
    ein__putf(&table, "    {\"%s%s %s\", run%d, %d, %d, %d},\n", name, naive ? " naive" : "",
              l->name, ncase++, l->narg, (int)t, l->shared ? 2 : 1);
    for (int i = 0; i < l->narg; i++) {
        bool last = i + 1 == l->narg;
        uint64_t offset = naive ? 0 : (uint64_t)ctx->plan.layout[l->arg[i].i].offset;
        put_image(ctx, l->arg[i], naive, !last, ein__kdtype(&g, l->arg[i]), offset);
        if (last) put_image(ctx, l->arg[i], naive, true, ein__kdtype(&g, l->arg[i]), offset);
    }
}

static void put_piece(ein_ctx *ctx, const char *key, const char *text) {
    for (ptrdiff_t i = 0; i < arrlen(pieces); i++)
        if (!strcmp(pieces[i].key, key)) {
            pieces[i].use |= use;
            return;
        }
    arrput(pieces, ((piece){ein__name(ctx, key), ein__name(ctx, text), use}));
}

static void emit_once(ein_ctx *ctx, const ein__buf *text, const ein__launch *l) {
    needs |= l->needs;
    for (int k = 0; k < l->ndevice; k++) put_piece(ctx, l->device[k], l->device[k]);
    put_piece(ctx, l->name, text->s);
}

// The same kernel with 64-bit indices, as for tensors beyond 2^31 elements.
static void check_wide(ein_ctx *ctx, const char *name, const ein__step *step) {
    for (int vec = 4; vec > 0; vec -= 3) {
        ein__buf text = {0};
        ein__launch l = {0};
        ein__kgen g = ein__kgen_of(ctx, step, true, vec);
        if (ein__kfamily_of(ctx, step)(&g, step, ein__namef(ctx, "%s_wide", name), &text, &l)) {
            emit_once(ctx, &text, &l);
            put_case(ctx, name, false, &l);
            vec = 0;
        }
        ein__kgen_free(&g);
        ein__buf_free(&text);
    }
}

// The forced number of parts, or one where the product has too few terms for them; in a cluster
// where they may be one.
static void possible_parts(ein_ctx *ctx, ein__step *step) {
    ein__tiled p;
    const ein__scope *s = ein__sc_get(ctx, ctx->value[step->val[0].i].scope);
    const int64_t *out = ctx->plan.layout[step->out.i].stride;
    if (!forced_parts || step->joint) return;
    if (!ein__match_tiles(ctx, s, out, &p) && !ein__match_cross(ctx, &s, 1, out, &p)) return;
    const ein__product_tile *t = &ein__product_table[forced_tile - 1];
    ein__kernel k = ein__step_kernel(ctx, step);
    ein__rows_work(ctx, &k, &p);
    if (!ein__product_fits(&p, t) || !ein__tail_share(&p, t, forced_parts)) return;
    step->parts = forced_parts;
    step->cluster = ein__clusters(ein__gpu_of(ctx), &p, t, forced_parts);
}

// Whether no case before had this name and variant.
static bool first_of(const char *name, const char *variant) {
    static const char **known;
    for (ptrdiff_t i = 0; i < arrlen(known); i += 2)
        if (!strcmp(known[i], name) && !strcmp(known[i + 1], variant)) return false;
    arrput(known, name);
    arrput(known, variant);
    return true;
}

// RACE or SANITIZERS, as often the one as the other whatever a number of cases repeats.
static int one_of(unsigned n) {
    unsigned ones = 0;
    for (; n; n /= 2) ones += n % 2;
    return ones % 2 ? RACE : SANITIZERS;
}

// How many cases before had this name.
static unsigned count_of(const char *name) {
    static struct {
        const char *key;
        unsigned value;
    } * known;
    unsigned n = shget(known, name);
    shput(known, name, n + 1);
    return n;
}

// What has a text of its own: the arithmetic of products, and with `tiles` their tile.
static const char *variant_of(ein_ctx *ctx, const ein__step *step, bool tiles) {
    bool product = step->kind == EIN__K_PRODUCT;
    return ein__namef(ctx, "%d.%d", product && tiles ? step->tile : -1,
                      product ? (int)ctx->desc.math : -1);
}

static void check(ein_ctx *ctx, const char *name, ein__kind kind, int nval, const ein__val *val) {
    ein__step step = {
        .kind = kind, .name = name, .nval = nval, .out = val[nval - 1], .tile = forced_tile};
    memcpy(step.val, val, (size_t)nval * sizeof *val);
    if (kind == EIN__K_REDUCE || kind == EIN__K_PLACE) step.parts = forced_parts;
    step.sums = forced_sums;
    step.joint = forced_joint;
    if (forced_peer) step.peer = forced_peer, step.npeer = 1, step.chained = true;
    if (taken) ein__norm_step(ctx, taken, &step);
    if (forced_load.i) {
        const ein__expr *read[2];
        double alpha;
        if (!ein__two_factors(ctx, ein__scope_of(ctx, val[0]), read, &alpha)) exit(1);
        step.load[0] = forced_load;
        step.loaded[0] = ein__load_of(ctx, read[read[0]->val != forced_load.i], forced_load);
    }
    if (kind == EIN__K_PRODUCT) possible_parts(ctx, &step);
    // Cases of several names often come in turn, too. What products have beside factors that lie in
    // memory enters the text of each tile in the same places.
    bool first = first_of(name, "");
    bool other = first_of(name, variant_of(ctx, &step, strcmp(name, "product") == 0));
    unsigned before = count_of(name) + (unsigned)strlen(name);
    const char *set = getenv("LONG");
    bool all = set && *set;
    // A fifth of the cases in a short run.
    if (!all && !first && !other && before % 5) return;
    before /= 5;
    use = first || (other && all) ? ALL : one_of(before) | (other ? INTERPRETED : 0);
    if (use == RACE && before % 8 < 3) use |= INTERPRETED;
    ein__buf text = {0};
    ein__launch l;
    ein__emit_kernel(ctx, &step, name, &text, &l);
    if (ein__is_needed(l.needs, EIN__NEED_WARPGROUPS)) use |= GROUPS;
    if (ctx->status) {
        fprintf(stderr, "%s: %s", name, ctx->errors.s);
        exit(1);
    }
    emit_once(ctx, &text, &l);
    put_case(ctx, name, false, &l);
    ein__buf_free(&text);
    static unsigned turn;
    use = one_of(++turn);
    bool wide = first_of(ein__namef(ctx, "%s_wide", name), variant_of(ctx, &step, false));
    if (wide && (all || turn % 2)) use |= INTERPRETED;
    if (wide || turn % 36 == 0) check_wide(ctx, name, &step);
    use = SANITIZERS;  // no thread of a naive kernel has to do with another
    // A short run has one value of a case.
    for (int i = 0; i < nval && !taken && (first || turn % 24 == 3); i++) {
        if (!all && i != (int)turn % nval) continue;
        ein__emit_naive(ctx, val[i], ein__namef(ctx, "%s_naive", name), &text, &l);
        emit_once(ctx, &text, &l);
        put_case(ctx, name, true, &l);
        ein__buf_free(&text);
    }
}

int main(int argc, char **argv) {
    ein_ctx *ctx = calloc(1, sizeof *ctx);
    data = argc == 2 ? fopen(argv[1], "wb") : NULL;
    if (!data || !ctx) return 2;
    all_cases(ctx);
    ein__buf head = {0};
    ein__emit_includes(&head, needs);
    ein__put(&head,
             "#include <cuda_runtime.h>\n#include <math.h>\n#include <stdio.h>\n#include "
             "<stdlib.h>\n#include <string.h>\n\n");
    ein__emit_helpers(ctx, &head, needs);
    fputs(head.s, stdout);
    printf("#ifndef USE\n#define USE %d\n#endif\n\n", ALL);
    for (ptrdiff_t i = 0; i < arrlen(pieces); i++)
        printf("#if USE & %d\n%s\n#endif\n", pieces[i].use, pieces[i].text);
    puts("static float4 *scratch;\nstatic unsigned *counters;\n");
    fputs(launches.s, stdout);
    printf("#define CASES %d\n", ncase);
    puts(
        "struct test { const char *name; void (*run)(char **, cudaStream_t); int narg, dtype, "
        "runs; };");
    printf("static const struct test tests[] = {\n%s};\n", table.s);
    puts("#include \"run.inc\"");
    return fclose(data) != 0;
}
