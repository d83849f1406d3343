// Relative L2 error of stored value `v`.
static int value_error(test *t, const reference *r, const stored_value *v, double *error) {
    long long n = 1, last = 0;
    for (int k = 0; k < v->rank; k++) {
        n *= v->size[k];
        last += (v->size[k] - 1) * v->stride[k];
    }
    const dtype type = (dtype)v->type, ref_type = (dtype)v->reference_type;
    const size_t bytes = (size_t)(last + 1) * dtypes[type].size;
    const size_t ref_bytes = (size_t)n * dtypes[ref_type].size;
    const char *from = (const char *)(v->output < 0 ? t->arena : t->out[v->output]) + v->offset;
    void *got, *want;
    TRY(host_alloc(&got, bytes));
    int code = host_alloc(&want, ref_bytes);
    if (code) {
        free(got);
        return code;
    }
    code = to_host(t, got, from, bytes);
    if (!code) code = to_host(t, want, r->value[v->value].p, ref_bytes);
    double difference = 0, norm = 0;
    for (long long i = 0; i < n && !code; i++) {
        long long rest = i, at = 0;
        for (int k = v->rank - 1; k >= 0; rest /= v->size[k], k--)
            at += rest % v->size[k] * v->stride[k];
        double x = get_float(type, got, (size_t)at), y = get_float(ref_type, want, (size_t)i);
        if (x == y || (x != x && y != y)) x = y = y - y == 0 ? y : 0;  // infinities that agree
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    *error = norm > 0 ? sqrt(difference / norm) : sqrt(difference);
    if (!(*error < HUGE_VAL)) *error = HUGE_VAL;
    free(got);
    free(want);
    return code;
}

// A value that others are subtracted from loses nothing itself: its sources are named too.
static void report_growth(const test *t, int i, double growth) {
    const stored_value *v = &stored_values[i];
    fprintf(t->report, "    %s, by %.3g", v->name, growth);
    for (int k = 0; k < v->sources && k < 8; k++)
        fprintf(t->report, "%s%s", k ? ", " : " from ",
                stored_values[error_sources[v->first + k]].name);
    fprintf(t->report, "\n");
}

// Prints the error of every stored value, and where it grows most: what a value's own step and the
// steps since its sources add to the largest error among the sources.
static int report_errors(test *t, const reference *r) {
    const int count = (int)(sizeof stored_values / sizeof *stored_values) - 1, most = 5;
    double *error, *growth;
    void *memory;
    TRY(host_alloc(&memory, 2 * sizeof *error * (size_t)(count + 1)));
    error = (double *)memory;
    growth = error + count + 1;
    int code = 0;
    for (int i = 0; i < count && !code; i++) {
        const stored_value *v = &stored_values[i];
        code = value_error(t, r, v, &error[i]);
        double before = 0;
        for (int k = 0; k < v->sources; k++) {
            double e = error[error_sources[v->first + k]];
            if (!(e <= before)) before = e;
        }
        growth[i] = before < HUGE_VAL ? error[i] - before : 0;
        if (!code) fprintf(t->report, "error %-24s %.3g, %+.3g\n", v->name, error[i], growth[i]);
    }
    for (int n = 0; n < most && !code; n++) {
        int top = 0;
        for (int i = 1; i < count; i++)
            if (growth[i] > growth[top]) top = i;
        if (!count || !(growth[top] > 0)) break;
        if (!n) fprintf(t->report, "for --keep-fp32: errors grow most in\n");
        report_growth(t, top, growth[top]);
        growth[top] = 0;
    }
    free(memory);
    return code;
}
