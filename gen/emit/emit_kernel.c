// A step of a plan as one __global__ function with its launch, and the naive form of any value.

typedef bool ein__kfamily(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                          ein__launch *l);

static ein__kfamily *ein__kfamily_of(ein_ctx *ctx, const ein__step *step) {
    bool reduce = ein__sc_get(ctx, ein__val_get(ctx, step->val[0])->scope)->reduce != EIN__R_NONE;
    if (step->sums) return ein__kreduce;
    switch (step->kind) {
    case EIN__K_TRANSPOSE: return ein__ktranspose_kernel;
    case EIN__K_PLACE: return ein__kplaces_kernel;
    case EIN__K_ROW: return ein__krow_kernel;
    case EIN__K_BAND: return ein__kband;
    case EIN__K_BASIS: return ein__kbasis;
    case EIN__K_ATTENTION: return ein__kattention;
    case EIN__K_PRODUCT: return ein__kproduct;
    case EIN__K_REDUCE:
    case EIN__K_MAP: break;
    case EIN__K_CONV:
    case EIN__K_CONV_DATA:
    case EIN__K_GEMM: EIN_ASSERT(0 && "a library call");
    }
    return reduce ? ein__kreduction : ein__kmap_kernel;
}

static uint64_t ein__hash_template(uint64_t h, const char *const *line) {
    for (; *line; line++) h = ein__fnv(h, *line, strlen(*line) + 1);
    return h;
}

enum { EIN__SEEDED = 12 };  // templates of a kind, at most

// Hashes of the templates that kernels of each kind may be made of, for the keys of their rows in
// tables of costs.
EIN__FN void ein__seed_kernels(ein_ctx *ctx) {
    static const struct {
        ein__kind kind;
        const char *const *lines[EIN__SEEDED];
    } of[] = {
        {EIN__K_MAP, {ein__tmpl_map, ein__tmpl_half4}},
        {EIN__K_TRANSPOSE, {ein__tmpl_transpose, ein__tmpl_transpose_half}},
        {EIN__K_REDUCE,
         {ein__tmpl_reduce_block, ein__tmpl_reduce_column, ein__tmpl_reduce_warp, ein__tmpl_warp,
          ein__tmpl_integer, ein__tmpl_window, ein__tmpl_skinny, ein__tmpl_tail,
          ein__tmpl_warp_sums, ein__tmpl_window_last, ein__tmpl_running, ein__tmpl_picks}},
        {EIN__K_PLACE,
         {ein__tmpl_place, ein__tmpl_place_block, ein__tmpl_place_column, ein__tmpl_place_warp,
          ein__tmpl_tail}},
        {EIN__K_ROW,
         {ein__tmpl_row_block, ein__tmpl_row_column, ein__tmpl_row_warp, ein__tmpl_warp}},
        {EIN__K_BAND, {ein__tmpl_band, ein__tmpl_half4}},
        {EIN__K_BASIS, {ein__tmpl_basis, ein__tmpl_half4}},
        {EIN__K_ATTENTION,
         {ein__tmpl_attention, ein__tmpl_attention_mma, ein__tmpl_mma, ein__tmpl_tiles_async,
          ein__tmpl_tiles_loads, ein__tmpl_attend, ein__tmpl_softmax, ein__tmpl_attention_few,
          ein__tmpl_attention_parts, ein__tmpl_tail}},
        {EIN__K_PRODUCT,
         {ein__tmpl_product, ein__tmpl_tiles, ein__tmpl_mma, ein__tmpl_tiles_async,
          ein__tmpl_tiles_loads, ein__tmpl_tiles_mma, ein__tmpl_tiles_patch,
          ein__tmpl_tiles_warpgroup, ein__tmpl_tail, ein__tmpl_tiles_rows}}};
    if (ctx->kernel_seed[EIN__K_MAP]) return;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint64_t h = EIN__FNV_START;
        for (int k = 0; k < EIN__SEEDED && of[i].lines[k]; k++)
            h = ein__hash_template(h, of[i].lines[k]);
        ctx->kernel_seed[of[i].kind] = h;
    }
    ctx->kernel_seed[EIN__SEED_STITCH] = ein__hash_template(EIN__FNV_START, ein__tmpl_stitch);
    ctx->kernel_seed[EIN__SEED_SIBLINGS] = ein__hash_template(EIN__FNV_START, ein__tmpl_siblings);
    ctx->kernel_seed[EIN__SEED_CROSS] = ein__hash_template(EIN__FNV_START, ein__tmpl_tiles_cross);
    ctx->kernel_seed[EIN__SEED_CHAIN] = ein__mix(ctx->kernel_seed[EIN__K_MAP], EIN__SEED_CHAIN);
}

enum { EIN__EIGHT_THREADS = 256 };  // of an SM that maps of eight halves a thread leave at least

// Lanes to try first: eight for halves, where enough threads are left.
static int ein__kwidest(const ein_ctx *ctx, const ein__step *step, ein__kfamily *family) {
    const ein__value *v = &ctx->value[step->out.i];
    int64_t least = (int64_t)ein__gpu_of(ctx)->sms * EIN__EIGHT_THREADS * 8;
    bool rows = family == ein__krow_kernel;
    if (v->dtype != EIN__F16 || (family != ein__kmap_kernel && !rows)) return 4;
    return rows || ein__elements(&v->shape) >= least ? 8 : 4;
}

// Whether halves are all that a step of a program in FP16 mode stores.
static bool ein__stores_halves(const ein_ctx *ctx, const ein__step *step) {
    bool halves = ctx->desc.math == EIN_MATH_FP16 && ctx->value[step->out.i].dtype == EIN__F16;
    if (step->also.i) halves &= ctx->value[step->also.i].dtype == EIN__F16;
    for (int i = 0; i < step->npeer; i++)
        halves &= ctx->value[step->peer[i].out.i].dtype == EIN__F16;
    return halves;
}

// Starts a step's kernel, which has the iterators of its first value; places have some of their
// own, and maps that finish sums theirs.
static ein__kgen ein__kgen_of(ein_ctx *ctx, const ein__step *step, bool wide, int vec) {
    ein__val v = step->sums ? step->out : step->val[step->kind == EIN__K_PLACE];
    ein__kgen g = ein__kgen_make(ctx, v, wide, vec);
    g.halves = ein__stores_halves(ctx, step);
    return g;
}

// The widest form of the family that applies.
static void ein__emit_family(ein_ctx *ctx, const ein__step *step, ein__kfamily *family,
                             const char *hint, ein__buf *out, ein__launch *launch) {
    for (int wide = 0; wide < 2; wide++) {
        for (int vec = ein__kwidest(ctx, step, family); vec > 0; vec = vec == 8 ? 4 : vec - 3) {
            ein__kgen g = ein__kgen_of(ctx, step, wide, vec);
            size_t start = out->n;
            *launch = (ein__launch){.of = step->name};
            bool done = family(&g, step, hint, out, launch);
            bool too_wide = g.too_wide, overflow = g.overflow;
            ein__kgen_free(&g);
            if (overflow) {
                ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "%s: addresses exceed 64 bits",
                           step->name);
                return;
            }
            if (done) return;
            if (out->s) out->s[out->n = start] = 0;
            if (too_wide) break;
        }
    }
    EIN_ASSERT(0 && "no form of a kernel applies");
}

// See emit_stitch.c.
static void ein__emit_stitch(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l);
// See emit_siblings.c.
static void ein__emit_siblings(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l);

// Appends the kernel's text and says how to launch it. Equal shapes, layouts and expressions give
// equal text whatever the tensors are called: equal names mean the same kernel.
EIN__FN void ein__emit_kernel(ein_ctx *ctx, const ein__step *step, const char *hint, ein__buf *out,
                              ein__launch *launch) {
    launch->of = step->name;
    if (ein__emit_relay(ctx, step, out, launch) || ctx->status) return;
    if (step->ahead) ein__emit_stitch(ctx, step, out, launch);
    else if (step->chained && !step->sums)
        ein__emit_family(ctx, step, ein__kmap, hint, out, launch);
    else if (step->npeer && !step->sums) ein__emit_siblings(ctx, step, out, launch);
    else ein__emit_family(ctx, step, ein__kfamily_of(ctx, step), hint, out, launch);
}

// One thread an output element, plain loops, double accumulators; operands and result dense. Inputs
// and weights have their own types; what was computed is float unless it is integer.
static bool ein__knaive(ein_ctx *ctx, ein__val v, const char *hint, bool wide, ein__buf *out,
                        ein__launch *launch) {
    const ein__scope *s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope);
    ein__kgen g = ein__kgen_make(ctx, v, wide, 1);
    ein__kscan scan = ein__kscan_make(&g);
    ein__buf index = {0}, body = {0}, store = {0}, core = {0};
    int order[EIN__MAX_ITERS], sums[EIN__MAX_ITERS], n = 0, ns = 0;
    g.naive = true;
    g.num = EIN__NUM_DOUBLE;
    if (ein__kdtype(&g, v) > EIN__BF16 && ein__kinteger(&g, s->body)) g.num = EIN__NUM_INT;
    ein__kscan_expr(&g, &scan, s->body);
    ein__kscan_out(&g, &scan, v);
    scan.pinned = ~0u;
    for (uint32_t i = 0; i < s->nt; i++) order[n++] = (int)i;
    for (uint32_t i = 0; i < s->ns; i++) sums[ns++] = (int)(s->nt + i);
    n = ein__kmerge(&g, &scan, order, n);
    ns = ein__kmerge(&g, &scan, sums, ns);
    for (int i = 0; i < ns; i++) g.slot[sums[i]].level = i + 1;
    ein__kcount(&g, s->body);
    ein__ktext value = ein__kvalue(&g, s->body, 0);
    *launch = (ein__launch){.of = ein__val_get(ctx, v)->name};
    // What is free of the terms is named in front of their loops.
    if (s->reduce != EIN__R_NONE && g.num == EIN__NUM_INT)
        value = ein__kname_value(&g, s->body, 0, value);
    ein__put(&body, g.code[0].s);
    if (s->reduce != EIN__R_NONE) {
        ein__red r = (ein__red)s->reduce;
        ein__buf_free(&g.code[0]);
        ein__put(&g.code[0], "");
        ein__putf(&body, "%s acc = %s;\n", ein__knum_type(&g), ein__kidentity(&g, r));
        ein__put(&core, ein__kcombine(&g, r, "acc", value.s));
        ein__kloops(&g, &body, sums, ns, 1, core.s);
        value = (ein__ktext){"acc", EIN__PRIMARY, 0};
    }
    ein__kstore(&g, &store, v, &scan, &value);
    ein__put(&body, store.s);
    int64_t threads = ein__kcount_slots(&g, order, n);
    bool fits = wide || (!g.too_wide && threads <= INT32_MAX);
    if (fits && !g.overflow && ein__kgrid(ctx, launch, (threads + 255) / 256, 256)) {
        ein__kdecompose(&g, &index, order, n, scan.used, "id");
        ein__put(&index, "");
        ein__key keys[] = {{0},
                           {0},
                           {"number", ein__kunsigned(&g)},
                           {"thread", ein__kthread_id(&g, 256)},
                           {"threads", ein__knumber(&g, threads)},
                           {"index", index.s},
                           {"body", body.s}};
        ein__kfinish(&g, v, hint, ein__tmpl_naive, keys, EIN__COUNT(keys), out, launch);
    }
    ein__buf_free(&index);
    ein__buf_free(&body);
    ein__buf_free(&store);
    ein__buf_free(&core);
    ein__kscan_free(&scan);
    ein__kgen_free(&g);
    return fits;
}

EIN__FN void ein__emit_naive(ein_ctx *ctx, ein__val v, const char *hint, ein__buf *out,
                             ein__launch *launch) {
    if (!ein__knaive(ctx, v, hint, false, out, launch))
        ein__knaive(ctx, v, hint, true, out, launch);
}

// Headers that the kernels' texts rely on; `needs` is the union over the launches.
EIN__FN void ein__emit_includes(ein__buf *out, ein__needs needs) {
    if (ein__is_needed(needs, EIN__NEED_HALF)) ein__put(out, "#include <cuda_fp16.h>\n");
    if (ein__is_needed(needs, EIN__NEED_BF16)) ein__put(out, "#include <cuda_bf16.h>\n");
    if (ein__is_needed(needs, EIN__NEED_TENSOR_TF32) ||
        ein__is_needed(needs, EIN__NEED_TENSOR_HALF) ||
        ein__is_needed(needs, EIN__NEED_ATTEND_TF32) ||
        ein__is_needed(needs, EIN__NEED_ATTEND_HALF))
        ein__put(out,
                 "#if CUDART_VERSION >= 11000\n"
                 "#include <cuda_pipeline_primitives.h>\n#endif\n");
}

static void ein__put_helper(ein__buf *out, bool needed, const char *const *lines,
                            const ein__key *keys, int nkey) {
    if (!needed) return;
    ein__tmpl_put(out, lines, keys, nkey);
    ein__put(out, "\n");
}

// "1", which keeps a template's lines, where the helper is needed.
static const char *ein__need_text(ein__needs needs, ein__need what) {
    return ein__is_needed(needs, what) ? "1" : "";
}

// The same where one of its keys says that it is.
static void ein__put_asked_for(ein__buf *out, const char *const *lines, const ein__key *keys,
                               int nkey) {
    bool needed = false;
    for (int i = 0; i < nkey; i++) needed |= *keys[i].text != 0;
    ein__put_helper(out, needed, lines, keys, nkey);
}

// What kernels of products have in common, and attention with them.
static void ein__put_product_helpers(const ein_ctx *ctx, ein__buf *out, ein__needs needs) {
    const char *tf32 = ein__need_text(needs, EIN__NEED_TENSOR_TF32),
               *fp16 = ein__need_text(needs, EIN__NEED_TENSOR_HALF),
               *threads = ein__need_text(needs, EIN__NEED_ROWS),
               *warps = ein__need_text(needs, EIN__NEED_TENSOR_ROWS);
    bool plain = ein__is_needed(needs, EIN__NEED_TILES), tensor = *tf32 || *fp16,
         attend_tf32 = ein__is_needed(needs, EIN__NEED_ATTEND_TF32),
         attend_half = ein__is_needed(needs, EIN__NEED_ATTEND_HALF),
         attends = attend_tf32 || attend_half;
    ein__key row[] = {{"threads", threads}, {"warps", warps}}, tile[] = {{"rows", threads}},
             sums[] = {{"rows", warps}};
    ein__key tail[] = {{"parts", ein__need_text(needs, EIN__NEED_PARTS)},
                       {"rows", ein__need_text(needs, EIN__NEED_PART_ROWS)},
                       {"together", ein__need_text(needs, EIN__NEED_CLUSTERS)}};
    ein__key mma[] = {{"tf32", attend_tf32 ? "1" : tf32},
                      {"half", attend_half ? "1" : fp16},
                      {"rows", warps},
                      {"older", ctx->desc.math == EIN_MATH_FP16 ? "1" : ""}};
    ein__key loads[] = {{"tiles", plain || tensor ? "1" : ""},
                        {"computed", ein__need_text(needs, EIN__NEED_COMPUTED)},
                        {"moved", ein__need_text(needs, EIN__NEED_MOVED)},
                        {"spaced", ein__need_text(needs, EIN__NEED_SPACED)},
                        {"moving", ein__need_text(needs, EIN__NEED_MOVING)},
                        {"turning", ein__need_text(needs, EIN__NEED_TURNING)},
                        {"taps", ein__need_text(needs, EIN__NEED_TAPS)}};
    ein__put_helper(out, plain || tensor || attends, ein__tmpl_tiles_loads, loads,
                    EIN__COUNT(loads));
    ein__put_asked_for(out, ein__tmpl_tiles_rows, row, EIN__COUNT(row));
    ein__put_helper(out, plain, ein__tmpl_tiles, tile, EIN__COUNT(tile));
    ein__key cross[] = {{"second", ein__need_text(needs, EIN__NEED_CROSS_TWO)}};
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_CROSS), ein__tmpl_tiles_cross, cross,
                    EIN__COUNT(cross));
    ein__put_helper(out, *tail[0].text || ein__is_needed(needs, EIN__NEED_LAST), ein__tmpl_tail,
                    tail, EIN__COUNT(tail));
    ein__put_helper(out, tensor || attends, ein__tmpl_mma, mma, EIN__COUNT(mma));
    ein__put_helper(out, tensor || attends, ein__tmpl_tiles_async, NULL, 0);
    ein__put_helper(out, tensor, ein__tmpl_tiles_mma, sums, EIN__COUNT(sums));
    // In FP16 mode warpgroups leave f32 values to warps.
    ein__key groups[] = {
        {"rows", warps}, {"half", fp16}, {"tf32", ctx->desc.math == EIN_MATH_FP16 ? "" : tf32}};
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_WARPGROUPS), ein__tmpl_tiles_warpgroup,
                    groups, EIN__COUNT(groups));
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_PATCHES), ein__tmpl_tiles_patch, NULL, 0);
}

static void ein__put_attention_helpers(ein__buf *out, ein__needs needs) {
    ein__key attend[] = {{"tf32", ein__need_text(needs, EIN__NEED_ATTEND_TF32)},
                         {"half", ein__need_text(needs, EIN__NEED_ATTEND_HALF)},
                         {"across", ein__need_text(needs, EIN__NEED_ATTEND_ACROSS)}};
    bool soft = ein__is_needed(needs, EIN__NEED_SOFTMAX),
         parts = ein__is_needed(needs, EIN__NEED_KEY_PARTS);
    ein__key score[] = {{"whole", ein__need_text(needs, EIN__NEED_SCORE_UNIT)},
                        {"soft", soft ? "1" : ""}};
    ein__key spread[] = {{"few", ein__need_text(needs, EIN__NEED_KEYS_FEW)},
                         {"half", ein__need_text(needs, EIN__NEED_KEYS_HALF)}};
    ein__put_helper(out, *attend[0].text || *attend[1].text, ein__tmpl_attend, attend,
                    EIN__COUNT(attend));
    ein__put_helper(out, soft || parts, ein__tmpl_softmax, score, EIN__COUNT(score));
    ein__put_helper(out, parts, ein__tmpl_attention_parts, spread, EIN__COUNT(spread));
}

// Results of several threads as one: of each reduction, and of several sums at once.
static void ein__put_sum_helpers(ein_ctx *ctx, ein__buf *out, ein__needs needs) {
    ein__kgen g = {.ctx = ctx};
    for (int r = EIN__R_SUM; r <= EIN__R_MIN; r++) {
        const char *warp = ein__need_text(needs, (ein__need)(EIN__NEED_WARP + r)),
                   *column = ein__need_text(needs, (ein__need)(EIN__NEED_COLUMN + r));
        ein__key keys[] = {{"op", ein__kred_name((ein__red)r)},
                           {"join", ein__kcombine(&g, (ein__red)r, "v", "other")},
                           {"warp", warp},
                           {"block", ein__need_text(needs, (ein__need)(EIN__NEED_BLOCK + r))},
                           {"column", column}};
        ein__put_helper(out, *warp || *column, ein__tmpl_warp, keys, EIN__COUNT(keys));
    }
    for (int n = 2; n <= EIN__SUMS; n++) {
        bool warp = ein__is_needed(needs, (ein__need)ein__kwarp_sums[n - 2]),
             block = ein__is_needed(needs, (ein__need)ein__kblock_sums[n - 2]);
        ein__key keys[] = {{"word", ein__ksums_word[n - 2]},
                           {"type", ein__ksums_type(&g, n)},
                           {"each", ein__ksums_each(&g, n, "v", "warp_sum(", ")")},
                           {"add", ein__kcombine_sums(&g, n, EIN__R_SUM, "v", "part[j]")},
                           {"all", n > 2 ? "all" : "both"},
                           {"block", block ? "1" : ""}};
        ein__put_helper(out, warp || block, ein__tmpl_warp_sums, keys, EIN__COUNT(keys));
    }
}

// Device functions that they call; to stand before the first kernel.
EIN__FN void ein__emit_helpers(ein_ctx *ctx, ein__buf *out, ein__needs needs) {
    ein__key four[] = {{"load", ein__need_text(needs, EIN__NEED_LOAD4)},
                       {"store", ein__need_text(needs, EIN__NEED_STORE4)},
                       {"value", ein__need_text(needs, EIN__NEED_HALF4)}};
    ein__key bfloat[] = {{"load", ein__need_text(needs, EIN__NEED_BFLOAT_LOAD4)},
                         {"store", ein__need_text(needs, EIN__NEED_BFLOAT_STORE4)},
                         {"value", ein__need_text(needs, EIN__NEED_BFLOAT4)}};
    ein__key eight[] = {{"half", ein__need_text(needs, EIN__NEED_LOAD8)},
                        {"float", ein__need_text(needs, EIN__NEED_FLOAT8)},
                        {"fill", ein__need_text(needs, EIN__NEED_FILL8)},
                        {"store", ein__need_text(needs, EIN__NEED_STORE8)}};
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_AWAIT), ein__tmpl_await, NULL, 0);
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_RELU), ein__tmpl_relu, NULL, 0);
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_HALF_ERF), ein__tmpl_half_erf, NULL, 0);
    ein__put_product_helpers(ctx, out, needs);
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_INTEGER), ein__tmpl_integer, NULL, 0);
    ein__put_helper(out, ein__is_needed(needs, EIN__NEED_RANKED), ein__tmpl_place, NULL, 0);
    ein__put_asked_for(out, ein__tmpl_half4, four, EIN__COUNT(four));
    ein__put_asked_for(out, ein__tmpl_bfloat4, bfloat, EIN__COUNT(bfloat));
    ein__put_attention_helpers(out, needs);
    ein__put_asked_for(out, ein__tmpl_half8, eight, EIN__COUNT(eight));
    ein__put_sum_helpers(ctx, out, needs);
}
