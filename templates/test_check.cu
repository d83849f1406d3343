//@key errors  the program reports the error of every value it stores
// One output against the reference's, which is f32 where the output is f16 or bf16. `error` is the
// relative L2 error over the finite elements, or the share of unequal integers; `misplaced` counts
// NaN and infinities that the other side does not have.
struct difference {
    double error;
    size_t misplaced, worst;
};

static difference compare(dtype type, const void *data, dtype ref_type, const void *ref, size_t n) {
    difference d = {0, 0, 0};
    double norm = 0, largest = -1;
    for (size_t i = 0; i < n; i++) {
        if (!is_float(type)) {
            bool same = get_int(type, data, i) == get_int(ref_type, ref, i);
            if (!same && d.error == 0) d.worst = i;
            d.error += !same;
            continue;
        }
        double x = get_float(type, data, i), y = get_float(ref_type, ref, i);
        if (x - x != 0 || y - y != 0) {
            if (!(x == y || (x != x && y != y)) && !d.misplaced++) d.worst = i;
            continue;
        }
        norm += y * y;
        d.error += (x - y) * (x - y);
        if (!d.misplaced && fabs(x - y) > largest) {
            largest = fabs(x - y);
            d.worst = i;
        }
    }
    if (!is_float(type)) d.error /= (double)n;
    else d.error = norm > 0 ? sqrt(d.error / norm) : sqrt(d.error);
    return d;
}

static int compare_output(test *t, const reference *r, int i) {
    const tensor *o = &t->info->output[i];
    dtype type = dtype_of(o->dtype), ref_type = (dtype)reference_outputs[i].type;
    size_t n = count_of(o);
    void *ref;
    if (n != reference_outputs[i].count || is_float(type) != is_float(ref_type))
        return fail(FAILED, o->name, "the two files are of different models");
    TRY(host_alloc(&ref, n * dtypes[ref_type].size));
    int code = to_host(t, ref, r->value[reference_outputs[i].value].p, n * dtypes[ref_type].size);
    if (!code) {
        difference d = compare(type, t->result[i], ref_type, ref, n);
        double allowed = is_float(type) ? t->tolerance : 0;
        bool good = !d.misplaced && d.error <= allowed;
        fprintf(t->report, "check %s: error %.3g, allowed %.3g", o->name, d.error, allowed);
        if (d.misplaced) fprintf(t->report, ", %zu misplaced NaN or infinity", d.misplaced);
        if (!good) fprintf(t->report, ", worst at element %zu", d.worst);
        fprintf(t->report, ": %s\n", good ? "ok" : "WRONG");
        if (!(d.error <= t->error)) t->error = d.error;
        if (!good) code = DIFFERS;
    }
    free(ref);
    return code;
}

// Runs the model's equations and compares every output of the first run with what they give.
static int check_values(test *t) {
    reference r;
    memset(&r, 0, sizeof r);
    r.t = t;
    int code = reference_open(&r);
    if (!code) code = reference_run(&r);
    cudaError_t e = code ? cudaSuccess : cudaStreamSynchronize(t->stream);
    if (e != cudaSuccess) code = fail(FAILED, "reference", cudaGetErrorString(e));
    bool differs = false;
    for (int i = 0; i < OUTPUTS && !code; i++) {
        code = compare_output(t, &r, i);
        differs = differs || code == DIFFERS;
        if (code == DIFFERS) code = 0;
    }
    //@if errors
    if (t->errors && !code) code = report_errors(t, &r);
    //@end
    for (int i = 0; i < VALUES; i++)
        if (!r.lent[i] && device_free(&r.value[i].p) && !code) code = FAILED;
    return code ? code : differs ? DIFFERS : 0;
}

// ---- runs

// Outputs and arena are filled with `poison` first: nothing may depend on what they held.
static int run_once(test *t, int poison) {
    if (t->arena) CALL(cudaMemsetAsync(t->arena, poison, t->info->arena_bytes, t->stream));
    for (int i = 0; i < OUTPUTS; i++)
        CALL(cudaMemsetAsync(t->out[i], poison, t->info->output[i].bytes, t->stream));
    if (network_run(t->model, t->in, t->out, t->stream))
        return fail(FAILED, "run", network_error(t->model));
    CALL(cudaStreamSynchronize(t->stream));
    return 0;
}

static int first_run(test *t) {
    int code = run_once(t, 0xff);
    for (int i = 0; i < OUTPUTS && !code; i++) {
        size_t bytes = t->info->output[i].bytes;
        code = host_alloc(&t->result[i], bytes);
        if (!code) code = to_host(t, t->result[i], t->out[i], bytes);
    }
    return code;
}

// One more run must give the same bits.
static int same_again(test *t, const char *how, int poison) {
    bool differs = false;
    int code = run_once(t, poison);
    for (int i = 0; i < OUTPUTS && !code; i++) {
        const tensor *o = &t->info->output[i];
        void *again;
        TRY(host_alloc(&again, o->bytes));
        code = to_host(t, again, t->out[i], o->bytes);
        if (!code && memcmp(again, t->result[i], o->bytes)) {
            fprintf(t->report, "check %s: %s gives other bits: WRONG\n", o->name, how);
            differs = true;
        }
        free(again);
    }
    return code ? code : differs ? DIFFERS : 0;
}

static int check_repeats(test *t) {
    int again = same_again(t, "a second run", 0x3e);
    if (again > DIFFERS) return again;
    if (network_capture(t->model, t->in, t->out))
        return fail(FAILED, "capture", network_error(t->model));
    int replay = same_again(t, "a replayed graph", 0xc1);
    if (!again && !replay) fprintf(t->report, "check: two runs and a replayed graph agree: ok\n");
    return replay > again ? replay : again;
}
