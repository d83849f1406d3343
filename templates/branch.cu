//@key model  prefix of the program's symbols
//@key branches  of a recorded graph
//@key libraries  calls of libraries on other branches than the first
// Branches: while a graph is recorded, each has a stream of its own, ordered by events. A plain run
// is on one stream, where nothing is to be recorded or awaited.
static int record_event($model *m, int branch, int event) {
    if (m->forked) CUDA_CALL(m, "branches", cudaEventRecord(m->event[event], m->on[branch]));
    return 0;
}

static int await_event($model *m, int branch, int event) {
    if (m->forked) CUDA_CALL(m, "branches", cudaStreamWaitEvent(m->on[branch], m->event[event], 0));
    return 0;
}

//@if libraries
// In a plain run too: a workspace's place is somebody else's while its branch needs none.
static int calls_on($model *m, int branch) { return libraries_on(m, branch, m->on[branch]); }

//@end
static int fork_streams($model *m, cudaStream_t stream) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    CUDA_CALL(m, "run", cudaStreamIsCapturing(stream, &capturing));
    m->forked = capturing != cudaStreamCaptureStatusNone && !m->step;
    for (int i = 0; i < $branches; i++) m->on[i] = i && m->forked ? m->side[i] : stream;
    return record_event(m, 0, 0);
}
