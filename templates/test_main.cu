//@key errors  the program reports the error of every value it stores
static const char usage_text[] =
    "usage: %s W.weights [--in X.npy | --in NAME=X.npy ...] [--out DIR] [--check] [--bench]\n"
    "  --in X.npy        values of the next input in declaration order, or of the one named;\n"
    "                    the others get seeded values\n"
    "  --out DIR         write every output to DIR/NAME.npy\n"
    "  --check           compare the outputs with those of naive kernels straight from the\n"
    "                    model's equations, and of a second run and a replayed CUDA graph\n"
    //@if errors
    "  --errors          as --check, and print the relative L2 error of every value that the\n"
    "                    program stores, how much it grows there, and where it grows most\n"
    //@end
    "  --tolerance X     relative L2 error allowed by --check, %g by default\n"
    "  --bench           time it; one JSON object on standard output\n"
    "  --steps           time every step of a plain run; built with -DNVTX, mark it for a "
    "profiler\n"
    "  --bench-ms N      least milliseconds of a timed sample, 20 by default; a smaller N takes\n"
    "                    fewer samples, too, after a shorter warm-up\n"
    "  --no-early-launch  no kernel starts before the one in front of it has ended\n"
    "  --help            print this text\n"
    "exit status: 0 well, 1 wrong results, 2 usage, 3 bad file, 5 failed call, 77 no device\n";

static int usage(const char *program, const char *what, const char *why) {
    if (what) fprintf(stderr, "%s: %s\n", what, why);
    fprintf(stderr, usage_text, program, TOLERANCE);
    return USAGE;
}

// X.npy goes to the first input without a file, NAME=X.npy to that input.
static bool add_input(test *t, const char *arg) {
    const char *path = strchr(arg, '=');
    for (int i = 0; path && i < INPUTS; i++) {
        const char *name = t->info->input[i].name;
        size_t n = (size_t)(path - arg);
        if (strlen(name) != n || memcmp(name, arg, n)) continue;
        if (t->in_file[i]) return false;
        t->in_file[i] = path + 1;
        return true;
    }
    for (int i = 0; i < INPUTS; i++) {
        if (t->in_file[i]) continue;
        t->in_file[i] = arg;
        return true;
    }
    return false;
}

static bool positive(const char *text, double *v) {
    char *end;
    *v = strtod(text, &end);
    return end != text && !*end && *v > 0 && *v < 1e6;
}

static int read_options(test *t, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool in = !strcmp(a, "--in"), out = !strcmp(a, "--out"), ms = !strcmp(a, "--bench-ms");
        bool tolerance = !strcmp(a, "--tolerance");
        if (!strcmp(a, "--check")) t->check = true;
        //@if errors
        else if (!strcmp(a, "--errors")) t->check = t->errors = true;
        //@end
        else if (!strcmp(a, "--bench")) t->bench = true;
        else if (!strcmp(a, "--steps")) t->steps = true;
        else if (!strcmp(a, "--no-early-launch")) t->no_early_launch = true;
        else if (in || out || ms || tolerance) {
            if (!next) return usage(argv[0], a, "a value is missing");
            if (in && !add_input(t, next)) return usage(argv[0], next, "no input is left for this");
            if (out) t->out_dir = next;
            if (ms && !positive(next, &t->bench_ms)) return usage(argv[0], next, "not a number");
            if (tolerance && !positive(next, &t->tolerance))
                return usage(argv[0], next, "not a number");
            i++;
        } else if (a[0] == '-' && a[1]) return usage(argv[0], a, "unknown option");
        else if (t->weights_file) return usage(argv[0], a, "one file of weights is enough");
        else t->weights_file = a;
    }
    return t->weights_file ? 0 : usage(argv[0], NULL, NULL);
}

static int find_device() {
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count > 0) return 0;
    const char *why = e == cudaSuccess ? "none is visible" : cudaGetErrorString(e);
    fprintf(stderr, "no CUDA device: %s\n", why);
    return NO_DEVICE;
}

static int load_input(test *t, int i) {
    const tensor *in = &t->info->input[i];
    unsigned char *file = NULL;
    size_t bytes = 0;
    void *host;
    TRY(host_alloc(&host, in->bytes));
    int code = 0;
    if (!t->in_file[i]) seeded(in, i, 0, host);
    else code = read_file(t->in_file[i], &file, &bytes);
    if (!code && t->in_file[i]) code = parse_npy(t->in_file[i], file, bytes, in, host);
    free(file);
    if (!code) code = device_alloc(&t->in[i], in->bytes);
    if (!code) code = to_device(t, t->in[i], host, in->bytes);
    free(host);
    return code;
}

static int open_all(test *t) {
    int code = read_file(t->weights_file, &t->weights, &t->weight_bytes);
    if (code) return code;
    CALL(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
    for (int i = 0; i < INPUTS && !code; i++) code = load_input(t, i);
    for (int i = 0; i < OUTPUTS && !code; i++)
        code = device_alloc(&t->out[i], t->info->output[i].bytes);
    // An arena of our own can be filled with rubbish between runs.
    if (!code && t->check && t->info->arena_bytes)
        code = device_alloc(&t->arena, t->info->arena_bytes);
    if (code) return code;
    network_options options = {t->arena, t->steps ? on_step : NULL, &t->clock, t->no_early_launch};
    if (!network_create(&t->model, t->weights, t->weight_bytes, &options)) return 0;
    bool ours = t->weight_bytes == t->info->weight_bytes && !memcmp(t->weights, "EINWGHT1", 8);
    return fail(ours ? FAILED : BAD_FILE, "create", network_error(t->model));
}

static int release(test *t) {
    int code = 0;
    network_destroy(t->model);
    for (int i = 0; i < INPUTS; i++)
        if (device_free(&t->in[i])) code = FAILED;
    for (int i = 0; i < OUTPUTS; i++) {
        if (device_free(&t->out[i])) code = FAILED;
        free(t->result[i]);
    }
    if (device_free(&t->arena)) code = FAILED;
    if (t->stream) {
        cudaError_t e = cudaStreamDestroy(t->stream);
        if (e != cudaSuccess) code = fail(FAILED, "release", cudaGetErrorString(e));
    }
    free(t->weights);
    return code;
}

static void report_output(const test *t, int i) {
    const tensor *o = &t->info->output[i];
    dtype type = dtype_of(o->dtype);
    size_t n = count_of(o);
    double sum = 0, squares = 0;
    for (size_t k = 0; k < n; k++) {
        double v = is_float(type) ? get_float(type, t->result[i], k)
                                  : (double)get_int(type, t->result[i], k);
        sum += v;
        squares += v * v;
    }
    fprintf(t->report, "output %s: %s[", o->name, o->dtype);
    for (int k = 0; k < o->rank; k++) fprintf(t->report, "%s%lld", k ? "," : "", o->dims[k]);
    fprintf(t->report, "], mean %.6g, rms %.6g\n", sum / (double)n, sqrt(squares / (double)n));
}

static int run_all(test *t) {
    int code = open_all(t);
    if (!code) code = first_run(t);
    for (int i = 0; i < OUTPUTS && !code; i++) {
        report_output(t, i);
        if (t->out_dir) code = write_npy(t->out_dir, &t->info->output[i], t->result[i]);
    }
    // Before a graph is recorded: its replays have no steps.
    if (!code && t->steps) code = run_step_clock(t);
    if (code) return code;
    int repeats = t->check ? check_repeats(t) : 0;
    if (repeats > DIFFERS) return repeats;
    int values = t->check ? check_values(t) : 0;
    if (values > DIFFERS) return values;
    if (t->bench) code = run_bench(t);
    return code ? code : values ? values : repeats;
}

static int run(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        printf(usage_text, argv[0], TOLERANCE);
        return fflush(stdout) ? FAILED : 0;
    }
    test t;
    memset(&t, 0, sizeof t);
    t.info = network_describe();
    t.tolerance = TOLERANCE;
    t.bench_ms = 20;
    int code = read_options(&t, argc, argv);
    if (!code) code = find_device();
    if (code) return code;
    t.report = t.bench ? stderr : stdout;
    code = run_all(&t);
    int released = release(&t);
    if (fflush(stdout) || ferror(stdout))
        released = fail(FAILED, "standard output", "cannot be written");
    return code > DIFFERS ? code : released ? released : code;
}
