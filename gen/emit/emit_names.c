// Names in the emitted files, and the kernels that a plan needs, each distinct text once.

// ------------------------------------------------------------------------------------ names

// Whether the n bytes at `name` are one of `words`, which have a space on both sides.
static bool ein__is_listed(const char *words, const char *name, size_t n) {
    for (const char *at = words; n && (at = strstr(at, name)) != NULL; at++)
        if (at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

// Functions and types of the C library that a model may be called after; those of math.h have two
// more names each, with `f` and `l` behind.
static bool ein__is_of_library(ein_ctx *ctx, const char *name) {
    static const char words[] =
        " acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp"
        " exp10 exp2 expm1 fabs fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb"
        " isfinite isinf isnan isnormal j0 j1 jn ldexp lgamma llrint llround log log10 log1p"
        " log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round"
        " roundeven scalb scalbn signbit signgam significand sin sincos sinh sqrt tan tanh"
        " tgamma trunc y0 y1 yn alloca atexit atof atoi atol basename bsearch canonicalize"
        " daylight div errno fclose ffs fgets fopen fputs fread fwrite getc getenv getline"
        " index labs ldiv llabs lldiv mktime nanosleep nv obstack pclose perror popen putc"
        " putenv qsort rand random realpath rewind rindex scanf select setenv sprintf srand"
        " srandom system timespec timeval timezone tm tzname tzset uint ulong ushort BUFSIZ"
        " EOF HUGE_VAL INFINITY NAN RAND_MAX ";
    size_t n = strlen(name);
    if (ein__is_listed(words, name, n)) return true;
    bool variant = n > 1 && (name[n - 1] == 'f' || name[n - 1] == 'l');
    return variant && ein__is_listed(words, ein__name_n(ctx, name, n - 1), n - 1);
}

// Names that a C, C++ or CUDA source cannot use for a type of its own, and those that the emitted
// file declares beside it or uses inside of create.
static bool ein__is_taken(const char *name) {
    static const char language[] =
        " abort abs alignas alignof and asm auto blockDim blockIdx bool break calloc case catch"
        " char class clock close const const_cast constexpr continue decltype default delete"
        " dim3 div_t do double dynamic_cast else enum exit explicit export extern false FILE"
        " float for free friend goto gridDim half half2 if inline int int16_t int32_t int64_t"
        " int8_t ldiv_t linux lldiv_t long main malloc max min mutable namespace new noexcept"
        " not NULL nullptr nv_bfloat16 nv_bfloat162 open operator or printf private protected"
        " ptrdiff_t public puts read realloc register reinterpret_cast remove rename restrict"
        " return short signal signed size_t sizeof ssize_t static static_assert static_cast"
        " stderr stdin stdout struct switch template this thread_local threadIdx throw time"
        " true try typedef typeid typename uint16_t uint32_t uint64_t uint8_t union unix"
        " unsigned using virtual void volatile warpSize wchar_t while write xor ";
    static const char own[] =
        " add_parts add_row ALONE ARENA ARENA_OF arrange arrives_last ask_shared ASYNC_COPIES"
        " atomicInc attend attend_put await_event await_previous await_products await_steps"
        " begin_products begin_rows bfloat4 bfloat4_value both bytes CALL calls_on"
        " check_device check_run check_weights CLUSTER computed computed_load CONST"
        " CONST_BYTES CONST_OF conv copy_async COUNT create_all cross_tile crossed"
        " crossed_loads dynamic_shared E einnet_test element_a element_b element_bytes"
        " end_products end_step engine fail feed fetch fetched fetched_feed fetched_value"
        " FIRST first_like float8 fmaxf fork_streams found_a found_b found_c found_d found_row"
        " found_y fragment_columns fragment_rows half4 half4_value half8 half_erf IN info"
        " info_inputs info_outputs info_weights INIT INIT_BYTES INIT_OF join_keys joined_keys"
        " KC kept kernel_size key_part KEY_TURNS KS lane_places LAST launch launch_now"
        " LAUNCHED leave_part libraries_on lies_whole load_bfloat4 load_float8 load_half4"
        " load_half8 load_places loaded m made matmul memcmp memcpy memset MIDDLE moved moving"
        " moving_load multiply_add_words NAMES_128 NAMES_192 NAMES_256 NAMES_64 NAMES_96"
        " network next_early NO_CLUSTERS NO_KEY norm nth_load o open_branches open_libraries"
        " OUT out OWN own_sums PAD parts_in_cluster parts_in_memory patch patch_load"
        " patch_tile pitched_fragment product_tile publish_copies ranked record record_event"
        " relay relu round_weights rounded_places ROUNDS_TF32 row_fragment row_sums ROWS"
        " run_on SAME same_addresses score_unit settle SHARE shared_address shared_of shared_words"
        " snprintf some spaced spaced_load spread spread_keys std STEP step_places step_rows"
        " stepped steps store_bfloat4 store_half4 store_half8 strlen summed_load summing"
        " SUMS_128 SUMS_32 SUMS_64 SUMS_8 SUMS_96 take_rows take_step tap tapped tapped_load"
        " taps TENSOR_CORES tensor_feed tensor_sums tensor_tile tensor_type tile_place"
        " tile_products tile_type total TURN turning turning_load TURNS two_loads unshifted"
        " upload value_of VALUE_TURNS vector_places VECTORS warpgroup_factor WARPGROUP_PRODUCT"
        " warpgroup_product WARPGROUP_ROUNDED_PRODUCT warpgroup_rounded_product warpgroup_tile"
        " WARPGROUPS weight_of weights word_places words WORKSPACE_AT WORKSPACE_BYTES ";
    const size_t n = strlen(name);
    if (ein__is_listed(language, name, n) || ein__is_listed(own, name, n)) return true;
    // char1, float4, ulonglong2, texture types and the compiler's own names
    static const char *const vector[] = {"char",     "uchar",     "short", "ushort",
                                         "int",      "uint",      "long",  "ulong",
                                         "longlong", "ulonglong", "float", "double"};
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        size_t k = strlen(vector[i]);
        if (!strncmp(name, vector[i], k) && name[k] >= '1' && name[k] <= '4') return true;
    }
    return name[0] == '_';
}

// The prefix of the program's symbols: a C identifier made of the model's name or --prefix.
EIN__FN const char *ein__symbol(ein_ctx *ctx) {
    const char *s = ctx->desc.prefix ? ctx->desc.prefix : ctx->graph.model;
    ein__buf b = {0};
    if (!s || !*s) s = "model";
    if (*s >= '0' && *s <= '9') ein__put(&b, "m");
    for (; *s; s++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word ? *s : '_';
        ein__put_n(&b, &c, 1);
    }
    // The file's own names begin so; a model called `k_x` must not meet kernel `k_x`.
    static const char *const own[] = {
        "_",       "v_",       "k_",      "conv_",    "CONV_",  "gemm_",  "matmul_", "MATMUL_",
        "engine_", "ENGINE_",  "COPIES_", "BAD_",     "steps_", "cuda",   "cudnn",   "cublas",
        "CUDA_",   "CUDNN_",   "CUBLAS_", "prepare_", "basis_", "make_",  "M_",      "part_",
        "group_",  "grouped_", "GROUP_",  "warp_",    "block_", "column_"};
    bool clash = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        clash |= !strncmp(b.s, own[i], strlen(own[i]));
    if (ein__is_taken(b.s) || ein__is_of_library(ctx, b.s)) ein__put(&b, "_model");
    const char *name = ein__name(ctx, clash ? ein__namef(ctx, "m_%s", b.s) : b.s);
    ein__buf_free(&b);
    return name;
}

EIN__FN const char *ein__symbol_upper(ein_ctx *ctx) {
    const char *name = ein__symbol(ctx);
    ein__buf b = {0};
    for (; *name; name++) {
        char c = *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
        ein__put_n(&b, &c, 1);
    }
    const char *upper = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return upper;
}

// Letters, digits and underscores of `name`; what had to be changed is told apart by a hash of the
// full name, and none depends on its neighbours. Points and underscores are one: see
// ein__call_name.
EIN__FN const char *ein__plain_name(ein_ctx *ctx, const char *name) {
    ein__buf b = {0};
    bool exact = true;
    size_t n = 0;
    for (const char *s = name; *s && n < 48; s++, n++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word || *s == '_' ? *s : '_';
        exact &= word || *s == '_' || *s == '.';
        ein__put_n(&b, &c, 1);
    }
    if (name[n]) exact = false;
    if (!exact || !n) {
        uint64_t h = ein__fnv(EIN__FNV_START, name, strlen(name));
        ein__putf(&b, "_%08x", (unsigned)(h ^ h >> 32));
    }
    const char *plain = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return plain;
}

// Comment text: printable ASCII only, nothing that ends a comment or continues a line.
static void ein__put_comment(ein__buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i] >= 32 && s[i] < 127 ? s[i] : '?';
        if (c == '\\' || (c == '/' && i && s[i - 1] == '*')) c = '_';
        ein__put_n(out, &c, 1);
    }
}

static void ein__put_shape(ein__buf *out, const ein__tensor *t) {
    ein__putf(out, "%s[", ein__dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        ein__putf(out, "%s%lld", i ? "," : "", (long long)t->shape.d[i]);
    ein__put(out, "]");
}

// ------------------------------------------------------------------------------------ the emitter

// Equations that a comment has, with numbers for names, and the step that it is of.
typedef struct ein__said {
    const char *form, *name;
} ein__said;

typedef struct ein__emitter {
    ein_ctx *ctx;
    ein__launch *run, *init;  // by step; library calls have an empty entry
    ein__buf kernels;
    ein__buf large;       // the kernels that have to ask for their shared memory, and how much
    const char **buffer;  // by plan buffer: the name of its pointer
    const char *first_kernel;
    ein__needs needs;
    int convs, gemms, matmuls;
    int spatial;   // axes of convolution descriptors
    int calls_on;  // branch of the last library call put
    bool in, out;  // whether the steps put last name an input, an output
    bool pins;     // a table of costs has chosen algorithms
    bool engines;  // and engines of cuDNN's graph API, with no more settings than these
    int settings;
    bool nhwc;        // some convolutions have their channels last
    bool transposed;  // some are transposed
    bool early;       // some kernels may be launched before the one before is over
    bool zeros;       // some fused convolution has no bias
    int64_t zeros_bytes, blob_bytes, const_bytes;
    int64_t counters;     // bytes that count blocks, 0 between runs
    int64_t group_bytes;  // of addresses of grouped products' matrices
    ein__said *said;      // equations that stand above the steps so far
} ein__emitter;

// Bytes of the weight blob, and the offset of weight `index` in it.
EIN__FN int64_t ein__blob_offset(const ein_ctx *ctx, int index, int64_t *total) {
    int64_t at = 256, mine = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        if (i == index) mine = at;
        at = (at + ein__elements(&t->shape) * ein__dtype_size(t->dtype) + 255) & ~(int64_t)255;
    }
    *total = at;
    return mine;
}

EIN__FN uint64_t ein__manifest(const ein_ctx *ctx) {
    ein__buf b = {0};
    ein__put(&b, "");
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        ein__putf(&b, "%s ", t->name);
        ein__put_shape(&b, t);
        ein__put(&b, "\n");
    }
    uint64_t h = ein__fnv(EIN__FNV_START, b.s, b.n);
    ein__buf_free(&b);
    return h;
}

static bool ein__is_library(const ein__step *s) { return ein__is_call(s->kind); }

// Whether the step is one call for several products.
static bool ein__is_group(const ein__step *s) { return s->npeer && ein__is_library(s); }

// A product that is cublasLt's: it has an epilogue, or a table chose one of that library's
// algorithms.
static bool ein__is_lt(const ein__step *s) {
    return s->kind == EIN__K_GEMM && (ein__is_matmul(&s->gemm) || s->algorithm);
}

// Pointer names by buffer: `v_` and the value's name, unique.
static void ein__name_buffers(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    struct {
        char *key;
        int value;
    } *taken = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const char *plain = ein__plain_name(ctx, ctx->plan.buffer[i].name);
        const char *name = ein__namef(ctx, "v_%s", plain);
        for (int k = 2; shgeti(taken, name) >= 0; k++) name = ein__namef(ctx, "v_%s_%d", plain, k);
        shput(taken, name, 1);
        arrput(z->buffer, name);
    }
    shfree(taken);
}

// Whether a comment's line may end before s[at]: not between a name and what it is said to be, nor
// within a range.
static bool ein__may_wrap(const char *s, size_t at) {
    if (s[at] == '\n') return true;
    return s[at] == ' ' && s[at - 1] != ':' && strncmp(s + at, " in ", 4) != 0 &&
           strncmp(s + at - 3, " in ", 4) != 0;
}

// A comment; long ones continue on the next line, broken at spaces.
static void ein__put_wrapped(ein__buf *out, const ein__buf *text, const char *indent) {
    size_t width = 96 - strlen(indent), at = 0, end = text->n;
    while (end && (text->s[end - 1] == '\n' || text->s[end - 1] == ' ')) end--;
    while (at < end) {
        size_t n = end - at, room = at ? width - 4 : width;
        if (n > room) {
            n = room;
            while (n > 20 && !ein__may_wrap(text->s, at + n)) n--;
        }
        ein__putf(out, "%s// %s", indent, at ? "    " : "");
        ein__put_comment(out, text->s + at, n);
        ein__put(out, "\n");
        at += n;
        while (at < end && (text->s[at] == ' ' || text->s[at] == '\n')) at++;
    }
}

static void ein__put_algebra(ein__emitter *z, ein__buf *out, ein__val v, const char *indent) {
    ein__buf text = {0}, by = {0};
    const char *why = z->ctx->value[v.i].why;
    bool table = ein__print_table(z->ctx, v, &text);
    if (why && *why && !table) ein__putf(&by, "by %s", why);
    if (!table) ein__print_brief(z->ctx, v, &text);
    ein__put_wrapped(out, &by, indent);
    ein__put_wrapped(out, &text, indent);
    ein__buf_free(&by);
    ein__buf_free(&text);
}

static bool ein__is_new(const char ***seen, const char *name) {
    for (ptrdiff_t k = 0; k < arrlen(*seen); k++)
        if ((*seen)[k] == name) return false;
    arrput(*seen, name);
    return true;
}

// Which tensors the operands of a kernel are, where it is first launched; NULL: nothing.
static void ein__put_operands(ein__emitter *z, const char *list) {
    ein__buf text = {0};
    if (!list) return;
    ein__put(&text, list);
    ein__put_wrapped(&z->kernels, &text, "");
    ein__buf_free(&text);
}

// The functions that a kernel calls, each under the matrix that it applies or what it computes.
static void ein__put_device(ein__emitter *z, const ein__launch *l, const char ***seen) {
    for (int k = 0; k < l->ndevice; k++) {
        if (!ein__is_new(seen, l->device[k])) continue;
        for (int v = 0; v < EIN__PART_VALUES; v++)
            if (l->about[k][v].i) ein__put_algebra(z, &z->kernels, l->about[k][v], "");
        ein__put_operands(z, l->operands[k]);
        ein__putf(&z->kernels, "%s\n", l->device[k]);
    }
}

static void ein__put_stitched(ein__emitter *z, const ein__step *step) {
    const char *name = z->ctx->value[step->ahead->out.i].name, *then = step->name;
    ein__buf line = {0};
    ein__put(&line, "// ");
    ein__put_comment(&line, name, strlen(name));
    ein__put(&line, " by slices in shared memory");
    ein__put(&line, step->also.i ? " and, as a whole, to `also`, then " : ", then ");
    ein__put_comment(&line, then, strlen(then));
    ein__putf(&z->kernels, "%s\n", line.s);
    ein__buf_free(&line);
}

// What a kernel stores beside its result: of what it computes in front the name says all.
static void ein__put_also(ein__emitter *z, const ein__step *step) {
    const char *name = z->ctx->value[step->also.i].name;
    if (step->also.i != step->load[0].i && step->also.i != step->load[1].i) {
        ein__put_algebra(z, &z->kernels, step->also, "");
        return;
    }
    ein__put(&z->kernels, "// also: ");
    ein__put_comment(&z->kernels, name, strlen(name));
    ein__put(&z->kernels, "\n");
}

static void ein__put_siblings(ein__emitter *z, const ein__step *step) {
    ein__buf line = {0};
    ein__put(&line, "// side by side: ");
    for (int k = 0; k <= step->npeer; k++) {
        const char *name = ein__step_member(step, k)->name;
        if (k) ein__put(&line, ", ");
        ein__put_comment(&line, name, strlen(name));
    }
    ein__putf(&z->kernels, "%s\n", line.s);
    ein__buf_free(&line);
}

// Emits the kernels of `steps`, each distinct text once.
static void ein__collect_kernels(ein__emitter *z, ein__step *steps, ein__launch **launches,
                                 const char ***seen) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(steps) && !ctx->status; i++) {
        ein__launch l = {0};
        ein__step *step = &steps[i];
        if (!ein__is_library(&steps[i])) {
            ein__buf text = {0};
            ein__emit_kernel(ctx, &steps[i], ein__kernel_word(steps[i].kind), &text, &l);
            if (ctx->status) return;
            if (ein__is_new(seen, l.name)) {
                ein__put_device(z, &l, seen);
                bool siblings = step->npeer && !step->chained, parts = step->ahead || siblings;
                if (step->ahead) ein__put_stitched(z, step);
                if (siblings) ein__put_siblings(z, step);
                if (step->kind == EIN__K_ATTENTION)
                    ein__putf(&z->kernels, "// by %s\n", ein__attention_word(ctx, step));
                for (int v = 0; v < 2 && !l.extra; v++)
                    if (step->load[v].i) ein__put_algebra(z, &z->kernels, step->load[v], "");
                for (int v = 0; v < step->nhidden; v++)
                    ein__put_algebra(z, &z->kernels, step->hidden[v], "");
                for (int v = 0; v < steps[i].nval && !l.extra && !parts; v++)
                    ein__put_algebra(z, &z->kernels, steps[i].val[v], "");
                for (int k = 0; step->chained && k < step->npeer; k++)
                    ein__put_algebra(z, &z->kernels, step->peer[k].out, "");
                if (step->also.i && !step->ahead) ein__put_also(z, step);
                int results = 1 + (step->also.i != 0) + step->npeer;
                ein__put_operands(z, ein__operands_text(ctx, &l, results));
                ein__put_n(&z->kernels, text.s, text.n);
                ein__put(&z->kernels, "\n");
                if (!z->first_kernel) z->first_kernel = l.name;
                if (l.smem)
                    ein__putf(&z->large, "    {(const void *)%s, \"%s\", %d, %d},\n", l.name,
                              l.name, l.smem, l.whole);
            }
            z->needs |= l.needs;
            // A row of what the emitter wrote once is none of this kernel.
            step->measured = step->measured && ein__is_row_of(ctx, step->key, l.name);
            ein__buf_free(&text);
        }
        arrput(*launches, l);
    }
}

enum { EIN__EARLY_PS = 4500000, EIN__EARLY_BLOCKS = 3 };  // a kernel's time; blocks an SM

// Whether step `s` may suffer from it. Blocks that begin while some of the kernel before still run
// seem to gather on the SMs that have room: where they have much to multiply and do not fill all
// SMs, some of these are late and others idle. On an H200 the graph of a convolution whose product
// has 72 blocks, behind a basis change, took 18.3 us, its steps one by one 10.9.
static bool ein__gathers(const ein__emitter *z, const ein__step *s, const ein__launch *l) {
    bool tiles = s->kind == EIN__K_PRODUCT || s->kind == EIN__K_ATTENTION || s->kind == EIN__K_BAND;
    int64_t blocks = (int64_t)l->grid[0] * l->grid[1] * l->grid[2];
    return tiles && s->ps > EIN__EARLY_PS && blocks < EIN__EARLY_BLOCKS * ein__gpu_of(z->ctx)->sms;
}

// Whether step `i` of a run may be launched before step i - 1 is over: both are kernels of ours,
// one behind the other on one stream whether branches have streams of their own or not.
static bool ein__is_early(const ein__emitter *z, ptrdiff_t i) {
    const ein__step *s = z->ctx->plan.step + i;
    if (!i || ein__is_library(s) || ein__is_library(s - 1)) return false;
    return s->branch == s[-1].branch && !s->nwait && !ein__gathers(z, s, &z->run[i]) &&
           ein__is_needed(z->run[i].needs, EIN__NEED_AWAIT);
}

// Where step `i` of a run is in a chain of such steps. A kernel lets the next one in only where
// that is one of ours: what a library, or the caller behind the last step, launches in this way may
// touch memory before it waits.
static const char *ein__chain_place(const ein__emitter *z, ptrdiff_t i) {
    bool next = i + 1 < arrlen(z->ctx->plan.step) && ein__is_early(z, i + 1);
    if (ein__is_early(z, i)) return next ? "MIDDLE" : "LAST";
    return next ? "FIRST" : "ALONE";
}

static void ein__collect(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    const char **seen = NULL;
    ein__name_buffers(z);
    ein__put(&z->kernels, "");
    ein__collect_kernels(z, ctx->plan.step, &z->run, &seen);
    const size_t run = z->kernels.n;
    ein__put(&z->kernels, "// Those that only create launches.\n\n");
    const size_t create = z->kernels.n;
    ein__collect_kernels(z, ctx->plan.init, &z->init, &seen);
    if (z->kernels.n == create) z->kernels.s[z->kernels.n = run] = 0;
    arrfree(seen);
    z->spatial = 2;
    for (ptrdiff_t i = 0; !ctx->status && i < arrlen(ctx->plan.step); i++) {
        z->early |= ein__is_early(z, i);
        const ein__step *s = &ctx->plan.step[i];
        if (ein__is_lt(s)) z->matmuls++;
        else if (s->kind == EIN__K_GEMM) z->gemms++;
        for (int k = 0; ein__is_group(s) && k <= s->npeer; k++)
            z->group_bytes += 3 * 8 * ein__step_member(s, k)->gemm.batch;
        z->pins |= s->algorithm != NULL;
        if (s->kind != EIN__K_CONV && s->kind != EIN__K_CONV_DATA) continue;
        z->convs++;
        z->transposed |= s->kind == EIN__K_CONV_DATA;
        ein__engine engine;
        if (ein__is_engine(s->algorithm) && !ein__read_engine(s->algorithm, &engine)) {
            z->engines = true;
            if (engine.settings > z->settings) z->settings = engine.settings;
        }
        z->nhwc |= s->conv.nhwc;
        if (s->conv.spatial > z->spatial) z->spatial = s->conv.spatial;
        bool fused = s->conv.z.i || s->conv.relu;
        if (fused && !s->conv.bias.i) {
            z->zeros = true;
            if (s->conv.f * 4 > z->zeros_bytes) z->zeros_bytes = s->conv.f * 4;
        }
    }
    z->zeros_bytes = (z->zeros_bytes + 255) & ~(int64_t)255;
    z->counters = (ctx->plan.counters * 4 + 255) & ~(int64_t)255;
    z->group_bytes = (z->group_bytes + 255) & ~(int64_t)255;
    z->const_bytes = ctx->plan.const_bytes + z->zeros_bytes + z->counters + z->group_bytes;
    ein__blob_offset(ctx, -1, &z->blob_bytes);
}

static void ein__emitter_free(ein__emitter *z) {
    arrfree(z->run);
    arrfree(z->init);
    arrfree(z->buffer);
    arrfree(z->said);
    ein__buf_free(&z->large);
    ein__buf_free(&z->kernels);
}
