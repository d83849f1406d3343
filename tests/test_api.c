// The rules of the API: what breaks one is EIN_USAGE with a message, whatever else was called, and
// calls in a cost_row stay harmless without a context.

static void says(bool good, const char *what) { CHECK(good, "%s", what); }

// The context's first error is of status `status` and its messages hold `text`. Closes it.
static void ends(ein_ctx *ctx, ein_status status, const char *text, const char *what) {
    bool good = ein_get_status(ctx) == status && strstr(ein_error(ctx), text);
    says(good, what);
    if (!good) printf("    status %d: %s\n", (int)ein_get_status(ctx), ein_error(ctx));
    ein_close(ctx);
}

static const char model[] =
    "ein 1\ndim N = 4\ninput x: f32[N,N]\nweight w: f32[N,N] = randn(seed=1)\noutput y\n"
    "t = MatMul(x, w)\ny = Relu(t)\n";
static const char cost_row[] = "h200\tgemm f32 fma b=1 m=4 n=4 k=4 lda=4 ldb=4 ldc=4\t1000\t\t\n";

static ein_ctx *with_model(const ein_desc *desc) {
    ein_ctx *ctx = ein_open(desc);
    ein_add_model(ctx, "m", model, sizeof model - 1);
    return ctx;
}

static ein_ctx *with_plan(void) {
    ein_ctx *ctx = with_model(NULL);
    says(!ein_plan(ctx), "the model is planned");
    return ctx;
}

static bool count(void *user, const char *text, size_t length) {
    (void)text;
    *(size_t *)user += length;
    return true;
}

// ---------------------------------------------------------------------------------- descriptions

static void check_desc(void) {
    static const struct {
        ein_desc desc;
        const char *name;
    } wrong[] = {
        {{.math = (ein_math)9}, "ein_desc.math"}, {{.math = (ein_math)-1}, "ein_desc.math"},
        {{.libs = (ein_libs)3}, "ein_desc.libs"}, {{.depth = -1}, "ein_desc.depth"},
        {{.states = -5}, "ein_desc.states"},      {{.branches = 5}, "ein_desc.branches"},
        {{.branches = -1}, "ein_desc.branches"},  {{.intensity = -1}, "ein_desc.intensity"},
        {{.form = -1}, "ein_desc.form"},          {{.part = 3, .parts = 2}, "ein_desc.part"},
        {{.parts = 3}, "ein_desc.part is 0"},     {{.parts = -1}, "ein_desc.parts"},
        {{.kernels = -2}, "ein_desc.kernels"},    {{.prefer = "newest"}, "ein_desc.prefer is"},
        {{.gpu = "h20"}, "unknown GPU"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ein_ctx *ctx = with_model(&wrong[i].desc);
        ein_plan(ctx);
        ends(ctx, EIN_USAGE, wrong[i].name, wrong[i].name);
    }
    ein_desc most = {.math = EIN_MATH_FP16,
                     .libs = EIN_LIBS_NONE,
                     .branches = 4,
                     .prefer = "last",
                     .part = 2,
                     .parts = 2,
                     .kernels = -1};
    ein_ctx *ctx = with_model(&most);
    ein_plan(ctx);
    ends(ctx, EIN_OK, "", "the last value of every field");
}

// ---------------------------------------------------------------------------------- orders

static void check_orders(void) {
    ein_ctx *ctx = with_model(NULL);
    ein_set_dim(ctx, "N", 8);
    ends(ctx, EIN_USAGE, "before the model", "a dim after the model");
    ctx = with_plan();
    ein_add_costs(ctx, "table", cost_row, sizeof cost_row - 1);
    ends(ctx, EIN_USAGE, "before anything is planned", "costs after the plan");
    ctx = with_plan();
    ein_keep_fp32(ctx, "t");
    ends(ctx, EIN_USAGE, "before anything is planned", "what keeps FP32 after the plan");
    ctx = with_model(NULL);
    size_t n = 0;
    says(!ein_emit(ctx, EIN_EXPLAIN, (ein_writer){count, &n}) && n, "a derivation");
    ein_add_costs(ctx, "table", cost_row, sizeof cost_row - 1);
    ends(ctx, EIN_USAGE, "before anything is planned", "costs after a derivation");
    ctx = with_model(NULL);
    n = 0;
    ein_emit(ctx, EIN_EQUATIONS, (ein_writer){count, &n});
    ein_keep_fp32(ctx, "t");
    ein_add_costs(ctx, NULL, cost_row, sizeof cost_row - 1);
    ein_plan(ctx);
    ends(ctx, EIN_OK, "", "both after the equations");
    ctx = ein_open(NULL);
    ein_plan(ctx);
    ends(ctx, EIN_USAGE, "no model", "a plan without a model");
    for (int samples = -1; samples < 2; samples++) {
        ctx = with_model(NULL);
        ein_verify(ctx, samples);
        ends(ctx, samples < 1 ? EIN_USAGE : EIN_OK, samples < 1 ? "sample" : "", "a proof");
        ctx = with_model(NULL);
        ein_verify_candidate(ctx, NULL, 0, samples);
        ends(ctx, samples < 1 ? EIN_USAGE : EIN_OK, samples < 1 ? "sample" : "", "a candidate's");
    }
}

static bool told(void *user, const ein_stats *stats) {
    if (stats->proved) ++*(int *)user;
    return !stats->proved;
}

// A long proof says how far it is, and ends when it is told to.
static void check_progress(void) {
    static const char text[] =
        "ein 1\ninput x: f32[9,400000]\nweight w: f32[400000,2]\noutput y\n"
        "y[i,j] = sum(k) x[i,k] * w[k,j]\n";
    int calls = 0;
    ein_desc desc = {.progress = told, .progress_user = &calls};
    ein_ctx *ctx = ein_open(&desc);
    ein_add_model(ctx, NULL, text, sizeof text - 1);
    ein_verify(ctx, 4);
    ends(ctx, EIN_RESOURCES, "the proof was cancelled", "a proof that is told to end");
    says(calls == 1, "it asks once");
}

// Whatever was planned last, nothing is left behind: the sanitizers tell.
static void check_close(void) {
    static const char text[] =
        "ein 1\ninput q: f32[2,64,32]\ninput k: f32[2,32,64]\ninput v: f32[2,64,32]\noutput y\n"
        "s = MatMul(q, k)\np = Softmax(s; axis=-1)\ny = MatMul(p, v)\n";
    ein_desc desc = {.math = EIN_MATH_FP16, .baseline = true};
    ein_ctx *ctx = ein_open(&desc);
    ein_add_model(ctx, "m", text, sizeof text - 1);
    ein_plan(ctx);
    ends(ctx, EIN_OK, "", "a plan without derivation");
}

// What is emitted changes nothing that is asked for later: a row is compared with the one for the
// same call, wherever that stands in the sorted table.
static void check_costs_twice(void) {
    static const char later[] = "h200\tgemm f32 fma b=1 m=1 n=1 k=1 lda=1 ldb=1 ldc=1\t9\t\t\n";
    ein_ctx *ctx = ein_open(NULL);
    size_t n = 0;
    ein_add_costs(ctx, "one", cost_row, sizeof cost_row - 1);
    ein_add_costs(ctx, "two", later, sizeof later - 1);
    says(!ein_emit(ctx, EIN_COSTS, (ein_writer){count, &n}) && n, "two tables as one");
    ein_add_costs(ctx, "three", later, sizeof later - 1);
    ends(ctx, EIN_OK, "", "a row that is there already");
}

// ---------------------------------------------------------------------------------- hash seeds

static bool append(void *user, const char *text, size_t length) {
    ein__put_n(user, text, length);
    return true;
}

// The one thing that contexts share, stb_ds's seed, decides nothing: not what is printed, nor what
// two contexts whose calls alternate print.
static void check_seeds(void) {
    static const ein_output what[] = {EIN_CUDA, EIN_EXPLAIN, EIN_CALLS, EIN_GRAPH_JSON};
    enum { OUTPUTS = sizeof what / sizeof *what };
    ein__buf first[OUTPUTS] = {{0}};
    for (size_t seed = 1; seed <= 3; seed++) {
        ein_ctx *pair[2] = {NULL};
        for (int i = 0; i < 2; i++) {
            stbds_rand_seed(seed * 0x9E3779B97F4A7C15u + (size_t)i);
            pair[i] = with_model(&(ein_desc){.probe = true});
        }
        for (int k = 0; k < OUTPUTS; k++)
            for (int i = 0; i < 2; i++) {
                ein__buf text = {0};
                bool ok = !ein_emit(pair[i], what[k], (ein_writer){append, &text});
                if (!first[k].s) ein__put(&first[k], text.s);
                says(ok && !strcmp(first[k].s, text.s), "the same text from any seed");
                ein__buf_free(&text);
            }
        for (int i = 0; i < 2; i++) ein_close(pair[i]);
    }
    for (int k = 0; k < OUTPUTS; k++) ein__buf_free(&first[k]);
}

// ---------------------------------------------------------------------------------- NULL

static void check_null(void) {
    ein_ctx *ctx = ein_open(NULL);
    ein_add_model(ctx, NULL, "ein 2\n", 6);
    ends(ctx, EIN_BAD_INPUT, "model:1:5:", "a model without a name");
    ctx = ein_open(NULL);
    ein_add_model(ctx, "m", NULL, 10);
    ends(ctx, EIN_USAGE, "text is NULL", "a model without text");
    ctx = ein_open(NULL);
    ein_set_dim(ctx, NULL, 3);
    ends(ctx, EIN_USAGE, "name is NULL", "a dim without a name");
    ctx = ein_open(NULL);
    ein_add_costs(ctx, NULL, NULL, 0);
    ends(ctx, EIN_USAGE, "text is NULL", "costs without text");
    ctx = ein_open(NULL);
    ein_add_costs(ctx, NULL, "h200\n", 5);
    ends(ctx, EIN_BAD_INPUT, "costs:1:", "costs without a name");
    ctx = ein_open(NULL);
    ein_add_calls(ctx, NULL, 1);
    ends(ctx, EIN_USAGE, "text is NULL", "calls without text");
    ctx = with_model(NULL);
    ein_keep_fp32(ctx, NULL);
    ends(ctx, EIN_USAGE, "name is NULL", "keeping FP32 without a name");
    ctx = with_model(NULL);
    ein_emit(ctx, EIN_CUDA, (ein_writer){NULL, NULL});
    ends(ctx, EIN_USAGE, "no function", "a writer without a function");
    ctx = with_model(NULL);
    ein_eval(ctx, NULL, NULL, NULL);
    ends(ctx, EIN_USAGE, "is NULL", "evaluation without arrays");
    float x[16] = {0}, w[16];
    double y[16];
    const void *in[] = {x}, *weights[] = {NULL};
    double *out[] = {y};
    ctx = with_model(NULL);
    ein_eval(ctx, in, weights, out);
    ends(ctx, EIN_USAGE, "is NULL", "evaluation without a weight");
    weights[0] = w;
    ctx = with_model(NULL);
    says(ein_fill(ctx, 'w', 0, NULL) == EIN_USAGE && !ein_fill(ctx, 'w', 0, w), "values");
    says(!ein_shape(ctx, NULL, NULL, NULL), "the shape of nothing");
    ein_eval(ctx, in, weights, out);
    ends(ctx, EIN_OK, "", "evaluation");
    says(y[0] == 0 && y[15] == 0, "its values");
}

// What the manual says of NaN and of rows whose maximum is infinite.
static void check_special(void) {
    static const char text[] =
        "ein 1\ninput x: f32[3,2]\noutput c, a, i, h, r, m, l\none[] = 1\n"
        "c = Clip(x; min=-1, max=2)\na = Max(x, one)\ni = Min(x, one)\nh = HardSigmoid(x)\n"
        "r = Relu(x)\nm = ReduceMax(x; axes=[1], keepdims=0)\n"
        "l = ReduceLogSumExp(x; axes=[1], keepdims=0)\n";
    const float x[6] = {NAN, -4, -INFINITY, -INFINITY, INFINITY, 0};
    const void *in[] = {x};
    double y[7][6] = {{0}};
    double *out[] = {y[0], y[1], y[2], y[3], y[4], y[5], y[6]};
    ein_ctx *ctx = ein_open(NULL);
    ein_add_model(ctx, "special", text, sizeof text - 1);
    ein_eval(ctx, in, NULL, out);
    ends(ctx, EIN_OK, "", "special values");
    says(y[0][0] == -1 && y[1][0] == 1 && y[2][0] == 1 && y[3][0] == 1, "functions skip NaN");
    says(isnan(y[4][0]) && y[4][1] == 0, "relu keeps it");
    says(y[5][0] == -4 && y[5][1] == (double)-INFINITY, "reductions skip it");
    says(isnan(y[6][0]) && isnan(y[6][1]) && isnan(y[6][2]), "a maximum that is infinite");
}

// Calls in a cost_row on the NULL of an ein_open without memory.
static void check_no_context(void) {
    size_t n = 0;
    int rank;
    int64_t dims[10];
    double y;
    ein_tensor_info info = {.rank = 3};
    ein_stats stats = {.problems = 3};
    allocations_left = 0;
    ein_ctx *ctx = ein_open(NULL);
    allocations_left = -1;
    says(!ctx, "no memory, no context");
    ein_status status[] = {ein_set_dim(ctx, "N", 2),
                           ein_add_model(ctx, "m", model, sizeof model - 1),
                           ein_add_costs(ctx, "t", cost_row, sizeof cost_row - 1),
                           ein_add_calls(ctx, "", 0),
                           ein_keep_fp32(ctx, "t"),
                           ein_plan(ctx),
                           ein_emit(ctx, EIN_CUDA, (ein_writer){count, &n}),
                           ein_fill(ctx, 'i', 0, &y),
                           ein_eval(ctx, NULL, NULL, NULL),
                           ein_verify(ctx, 4),
                           ein_verify_candidate(ctx, NULL, 0, 4),
                           ein_get_status(ctx)};
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        says(status[i] == EIN_RESOURCES, "the status of no memory");
    says(!n && strstr(ein_error(ctx), "out of memory"), "no output, a message");
    says(!ein_describe(ctx, 'i', 0, &info) && !info.rank, "no tensor");
    says(!ein_shape(ctx, "x", &rank, dims) && !ein_manifest_hash(ctx), "no shape, no manifest");
    ein_get_stats(ctx, &stats);
    says(!stats.problems, "no statistics");
    ein_close(ctx);
}

static void test_api(void) {
    check_desc();
    check_orders();
    check_progress();
    check_costs_twice();
    check_close();
    check_seeds();
    check_null();
    check_special();
    check_no_context();
}
