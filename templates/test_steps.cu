// --steps: what each step takes, from events between the launches of a plain run.
enum { STEP_RUNS = 20 };

static int run_steps(test *t, step_clock *c) {
    c->at = 0;
    if (network_run(t->model, t->in, t->out, t->stream))
        return fail(FAILED, "run", network_error(t->model));
    return 0;
}

// Learns how many steps there are, what they are called, and how long the host takes to launch.
static int open_steps(test *t, step_clock *c, double *host_ms) {
    TRY(run_steps(t, c));
    c->count = c->at;
    c->names = (const char **)calloc((size_t)c->count + 1, sizeof *c->names);
    c->event = (cudaEvent_t *)calloc((size_t)c->count + 1, sizeof *c->event);
    c->ms = (double *)calloc((size_t)c->count + 1, STEP_RUNS * sizeof *c->ms);
    if (!c->names || !c->event || !c->ms) return fail(FAILED, "steps", "host memory is exhausted");
    double begin = now_ms();
    TRY(run_steps(t, c));
    *host_ms = now_ms() - begin;
    CALL(cudaStreamSynchronize(t->stream));
    for (int i = 0; i <= c->count; i++) CALL(cudaEventCreate(&c->event[i]));
    return 0;
}

// One timed run. The device is kept busy with fills until the host has launched everything, so that
// a short step is not charged for the launch of the next one.
static int time_steps(test *t, step_clock *c, void *flush, int fills, int run) {
    for (int i = 0; i < fills; i++) CALL(cudaMemsetAsync(flush, i & 255, FLUSH, t->stream));
    CALL(cudaEventRecord(c->event[0], t->stream));
#ifdef NVTX
    if (c->count) nvtxRangePushA(c->names[0]);
#endif
    c->recording = true;
    int code = run_steps(t, c);
    c->recording = false;
    if (code) return code;
    CALL(c->error);
    CALL(cudaStreamSynchronize(t->stream));
    for (int i = 0; i < c->count; i++) {
        float ms = 0;
        CALL(cudaEventElapsedTime(&ms, c->event[i], c->event[i + 1]));
        c->ms[i * c->runs + run] = ms;
    }
    return 0;
}

static void report_steps(const test *t, const step_clock *c) {
    double total = 0;
    for (int i = 0; i < c->count; i++) {
        double *ms = c->ms + i * c->runs;
        qsort(ms, (size_t)c->runs, sizeof *ms, by_size);
        total += (ms[(c->runs - 1) / 2] + ms[c->runs / 2]) / 2;
    }
    for (int i = 0; i < c->count; i++) {
        const double *ms = c->ms + i * c->runs;
        double median = (ms[(c->runs - 1) / 2] + ms[c->runs / 2]) / 2;
        fprintf(t->report, "step %9.2f us %5.1f %%  %s\n", median * 1e3,
                total > 0 ? 100 * median / total : 0, c->names[i]);
    }
    fprintf(t->report, "steps: %d, %.2f us together, medians of %d plain runs\n", c->count,
            total * 1e3, c->runs);
}

static int run_step_clock(test *t) {
    step_clock *c = &t->clock;
    double host_ms = 0;
    c->runs = t->bench_ms >= 20 ? STEP_RUNS : 1 + (int)(t->bench_ms * (STEP_RUNS - 1) / 20);
    void *flush = NULL;
    int code = open_steps(t, c, &host_ms);
    if (!code) code = device_alloc(&flush, FLUSH);
    // A fill takes 30 us at the least on what there is today.
    double busy_ms = host_ms < t->bench_ms ? host_ms : t->bench_ms;
    int fills = (int)(busy_ms / 0.03) + 1;
    for (int run = 0; run < c->runs && !code; run++) code = time_steps(t, c, flush, fills, run);
    if (!code) report_steps(t, c);
    for (int i = 0; c->event && i <= c->count; i++)
        if (c->event[i]) cudaEventDestroy(c->event[i]);
    free(c->names);
    free(c->event);
    free(c->ms);
    if (device_free(&flush) && !code) code = FAILED;
    return code;
}
