//@key model  prefix of the program's symbols
//@key nin    inputs
//@key nout   outputs
//@key branches   of a recorded graph; empty: one
//@key libraries  the program calls libraries
//@key early      some kernels may be launched before the one before is over
static int check_run($model *m, const void *const *in, void *const *out) {
    if (!m) return BAD_ARGUMENT;
    if (!m->ready) return fail(m, BAD_ARGUMENT, "run", "create did not succeed");
    m->error[0] = 0;
    if (!in || !out) return fail(m, BAD_ARGUMENT, "run", "no list of tensors was given");
    for (int i = 0; i < $nin; i++)
        if (!in[i] || (size_t)in[i] % 16)
            return fail(m, BAD_ARGUMENT, $model_describe()->input[i].name,
                        "the pointer is NULL or not 16-byte aligned");
    for (int i = 0; i < $nout; i++)
        if (!out[i] || (size_t)out[i] % 16)
            return fail(m, BAD_ARGUMENT, $model_describe()->output[i].name,
                        "the pointer is NULL or not 16-byte aligned");
    return 0;
}

static int run_on($model *m, const void *const *in, void *const *out, cudaStream_t stream) {
    m->stream = stream;
    //@if early
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    CUDA_CALL(m, "run", cudaStreamIsCapturing(stream, &capturing));
    m->early = m->can_early[capturing != cudaStreamCaptureStatusNone];
    //@end
    //@if branches
    CALL(fork_streams(m, stream));
    //@end
    //@if libraries
    CALL(libraries_on(m, 0, stream));
    //@end
    return steps(m, in, out, stream);
}

static int same_addresses(const $model *m, const void *const *in, void *const *out) {
    for (int i = 0; i < $nin; i++)
        if (m->graph_in[i] != in[i]) return 0;
    for (int i = 0; i < $nout; i++)
        if (m->graph_out[i] != out[i]) return 0;
    return 1;
}

int $model_run($model *m, const void *const *in, void *const *out, cudaStream_t stream) {
    int r = check_run(m, in, out);
    if (r) return r;
    if (m->graph && same_addresses(m, in, out)) {
        cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
        CUDA_CALL(m, "run", cudaStreamIsCapturing(stream, &capturing));
        if (capturing == cudaStreamCaptureStatusNone) {
            CUDA_CALL(m, "run", cudaGraphLaunch(m->graph, stream));
            return 0;
        }
    }
    return run_on(m, in, out, stream);
}

static int record($model *m, const void *const *in, void *const *out, cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    // Once before recording: libraries load their code at the first call.
    int r = run_on(m, in, out, stream);
    if (r) return r;
    CUDA_CALL(m, "capture", cudaStreamSynchronize(stream));
    CUDA_CALL(m, "capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    r = run_on(m, in, out, stream);
    cudaError_t e = cudaStreamEndCapture(stream, &graph);
    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, "capture", cudaGetErrorString(e));
    if (!r) {
#if CUDART_VERSION >= 12000
        e = cudaGraphInstantiate(&m->graph, graph, 0);
#else
        e = cudaGraphInstantiate(&m->graph, graph, NULL, NULL, 0);
#endif
        if (e != cudaSuccess) m->graph = NULL;
#if CUDART_VERSION >= 11010
        // Else the first replay would bring it to the device.
        if (e == cudaSuccess) e = cudaGraphUpload(m->graph, stream);
#endif
        if (e != cudaSuccess) r = fail(m, BAD_CALL, "capture", cudaGetErrorString(e));
    }
    if (graph) cudaGraphDestroy(graph);
    return r;
}

int $model_capture($model *m, const void *const *in, void *const *out) {
    cudaStream_t stream = NULL;
    int r = check_run(m, in, out);
    if (r) return r;
    if (m->graph) {
        cudaGraphExec_t old = m->graph;
        m->graph = NULL;
        CUDA_CALL(m, "capture", cudaGraphExecDestroy(old));
    }
    CUDA_CALL(m, "capture", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    r = record(m, in, out, stream);
    cudaError_t e = cudaStreamDestroy(stream);
    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, "capture", cudaGetErrorString(e));
    for (int i = 0; i < $nin; i++) m->graph_in[i] = in[i];
    for (int i = 0; i < $nout; i++) m->graph_out[i] = out[i];
    return r;
}
