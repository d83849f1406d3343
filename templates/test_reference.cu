// A computed value lives in a buffer of its own from the kernel that makes it to the last reader;
// kernels take the buffer as a pointer of the type they want.
struct buffer {
    void *p;
    template <typename T>
    operator T *() const {
        return (T *)p;
    }
};

struct reference {
    const test *t;
    buffer value[VALUES];
    bool lent[VALUES];  // an input: not the reference's to free

    int make(int v, size_t bytes) { return device_alloc(&value[v].p, bytes); }
    // After a launch: its error, then the buffers that nobody reads any more.
    int done() {
        CALL(cudaGetLastError());
        return 0;
    }
    template <typename... More>
    int done(int v, More... more) {
        TRY(done(more...));
        CALL(cudaStreamSynchronize(t->stream));
        return device_free(&value[v].p);
    }
};

static int reference_open(reference *r) {
    const test *t = r->t;
    for (int i = 0; reference_inputs[i].value < VALUES; i++) {
        int v = reference_inputs[i].value, j = reference_inputs[i].input;
        if (t->info->input[j].bytes != reference_inputs[i].bytes)
            return fail(FAILED, t->info->input[j].name, "the input has another size");
        r->value[v].p = t->in[j];
        r->lent[v] = true;
    }
    for (int i = 0; reference_weights[i].value < VALUES; i++) {
        int v = reference_weights[i].value;
        size_t offset = reference_weights[i].offset, bytes = reference_weights[i].bytes;
        if (offset > t->weight_bytes || bytes > t->weight_bytes - offset)
            return fail(BAD_FILE, t->weights_file, "the blob is too short");
        TRY(r->make(v, bytes));
        TRY(to_device(t, r->value[v].p, t->weights + offset, bytes));
    }
    return 0;
}
