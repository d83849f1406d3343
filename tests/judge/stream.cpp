// Streams, events and graphs of the judge. Work runs at once, in issue order; with JUDGE_ORDER=rand
// the work of non-blocking streams waits in queues and runs as late as the program's
// synchronisation allows, the streams interleaved at random. A replayed graph keeps the order that
// streams and events gave it and no other: JUDGE_ORDER=rev runs the youngest work that may run
// first, JUDGE_ORDER=rand any. Kernels that were launched early begin before the work before them
// in their stream, where that work has had to wait, and in every replay. What a kernel lets in
// early has to be such a kernel: others may touch memory before they wait.
#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "judge.h"

namespace {

// Records are numbered; `done` is the last one that has run. Shared with the queues, so an event
// may be destroyed early.
struct event_state {
    long issued = 0, done = 0;
    double time = 0;
};

struct task {
    std::function<void()> work;
    std::shared_ptr<event_state> wait;  // when set, the task is a wait for record `ticket`
    long ticket = 0;
    std::function<void()> ahead;  // the part that may run before the task before this one
};

double seconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

}  // namespace

// Work of a graph and the nodes it comes after.
struct graph_node {
    std::function<void()> work;
    std::set<size_t> after;
    std::function<void()> ahead;  // the part that may run before the one node it comes after
};

// Work under capture, in issue order.
struct CUgraph_st {
    std::vector<graph_node> node;
    CUstream_st *origin = nullptr;
    bool relaxed = false, broken = false;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<graph_node>> node;
};

// `captured`: the nodes that the next one of this stream comes after.
struct CUstream_st {
    bool deferred = false;
    CUgraph_st *capture = nullptr;
    std::set<size_t> captured;
    std::deque<task> queue;
    const char *let_in = nullptr;  // the kernel, run last, that lets in what comes next
};

// The last two say where in a capture the event was last recorded.
struct CUevent_st {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
    bool timing = true;
    CUgraph_st *capture = nullptr;
    std::set<size_t> captured;
};

namespace {

CUstream_st null_stream;
std::vector<CUstream_st *> streams;  // in order of creation, so that random orders can be repeated
std::set<CUevent_st *> events;
std::set<CUgraph_st *> captures;

CUstream_st *resolve(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread
               ? &null_stream
               : stream;
}

bool is_stream(cudaStream_t stream) {
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

bool runnable(const CUstream_st *stream) {
    return !stream->queue.empty() &&
           (!stream->queue.front().wait ||
            stream->queue.front().wait->done >= stream->queue.front().ticket);
}

[[noreturn]] void fault_let_in(const char *kernel, const char *next) {
    judge_fault("kernel %s lets the next one in early, and %s", kernel, next);
}

void run_front(CUstream_st *stream) {
    task next = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (stream->let_in && !next.ahead) {
        fault_let_in(stream->let_in, "what comes next was not launched so");
    }
    stream->let_in = nullptr;
    if (next.work) {
        judge_open_memory();
        if (!stream->queue.empty() && stream->queue.front().ahead) {
            stream->queue.front().ahead();
        }
        next.work();
        judge_close_memory();
        std::swap(stream->let_in, judge_let_in);
    }
}

// Runs one task of a random stream that can go on; false when none can.
bool run_any() {
    std::vector<CUstream_st *> ready;
    for (CUstream_st *stream : streams) {
        if (runnable(stream)) {
            ready.push_back(stream);
        }
    }
    if (ready.empty()) {
        return false;
    }
    run_front(ready[judge_random() % ready.size()]);
    return true;
}

template <class Done>
void run_until(Done done) {
    while (!done()) {
        if (!run_any()) {
            judge_fault("streams wait for each other");
        }
    }
}

cudaError_t capture_error(CUgraph_st *graph) {
    graph->broken = true;
    return cudaErrorStreamCaptureInvalidated;
}

}  // namespace

bool judge_stream_ok(cudaStream_t stream) {
    return resolve(stream) == &null_stream || is_stream(stream);
}

bool judge_is_capturing(cudaStream_t stream) { return resolve(stream)->capture != nullptr; }

cudaError_t judge_forbid_capture() {
    bool forbidden = false;
    for (CUgraph_st *graph : captures) {
        if (!graph->relaxed) {
            graph->broken = forbidden = true;
        }
    }
    return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t judge_enqueue(cudaStream_t handle, std::function<void()> work,
                          std::function<void()> ahead) {
    CUstream_st *stream = resolve(handle);
    if (stream->capture) {
        if (stream->capture->broken) {
            return cudaErrorStreamCaptureInvalidated;
        }
        std::vector<graph_node> &node = stream->capture->node;
        if (stream->captured.size() != 1) {
            ahead = nullptr;
        }
        node.push_back({std::move(work), stream->captured, std::move(ahead)});
        stream->captured = {node.size() - 1};
        return cudaSuccess;
    }
    if (stream == &null_stream && judge_forbid_capture() != cudaSuccess) {
        return cudaErrorStreamCaptureImplicit;  // the null stream would have to wait for the
                                                // captured ones
    }
    stream->queue.push_back({std::move(work), nullptr, 0, std::move(ahead)});
    if (!stream->deferred) {
        run_front(stream);
    } else if (judge_random() % 4 == 0) {
        run_any();
    }
    return cudaSuccess;
}

void judge_drain(cudaStream_t handle) {
    CUstream_st *stream = resolve(handle);
    run_until([=] { return stream->queue.empty(); });
    // After a failed launch nothing may come next.
    if (stream->let_in && !judge_env().fail_at) {
        fault_let_in(stream->let_in, "nothing comes next");
    }
}

void judge_drain_all() {
    for (CUstream_st *stream : streams) {
        judge_drain(stream);
    }
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    JUDGE_CALL(cudaErrorMemoryAllocation);
    *stream = new CUstream_st;
    (*stream)->deferred =
        (flags & cudaStreamNonBlocking) && judge_env().order == judge_settings::random;
    streams.push_back(*stream);
    judge_ledger("stream", 1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    bool fails = judge_entry(__func__);
    if (!is_stream(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    judge_drain(stream);
    if (stream->capture) {
        capture_error(stream->capture);
    }
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    judge_ledger("stream", -1);
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (judge_is_capturing(stream)) {
        capture_error(resolve(stream)->capture);
        return judge_error(cudaErrorStreamCaptureUnsupported);
    }
    judge_drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    run_any();
    return resolve(stream)->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
    JUDGE_CALL(cudaErrorUnknown);
    if (cudaError_t error = judge_forbid_capture()) {
        return judge_error(error);
    }
    judge_drain_all();
    return cudaSuccess;
}

// Joins `stream` to the capture in which `event` was recorded: its next work comes after the event.
static cudaError_t wait_in_capture(CUstream_st *stream, CUevent_st *event) {
    CUgraph_st *graph = event->capture;
    if (stream->capture && stream->capture != graph) {
        return judge_error(capture_error(stream->capture));
    }
    stream->capture = graph;
    stream->captured.insert(event->captured.begin(), event->captured.end());
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!judge_stream_ok(handle) || !events.count(event)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    CUstream_st *stream = resolve(handle);
    if (event->capture) {
        return wait_in_capture(stream, event);
    }
    if (stream->capture) {
        capture_error(stream->capture);
        return judge_error(cudaErrorStreamCaptureIsolation);
    }
    stream->queue.push_back({nullptr, event->state, event->state->issued, nullptr});
    if (!stream->deferred) {
        run_until([=] { return runnable(stream); });
        run_front(stream);
    }
    return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    JUDGE_CALL(cudaErrorMemoryAllocation);
    *event = new CUevent_st;
    (*event)->timing = !(flags & cudaEventDisableTiming);
    events.insert(*event);
    judge_ledger("event", 1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    bool fails = judge_entry(__func__);
    if (!events.erase(event)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    delete event;
    judge_ledger("event", -1);
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!events.count(event) || !judge_stream_ok(handle)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    CUstream_st *stream = resolve(handle);
    event->capture = stream->capture;
    if (stream->capture) {
        event->captured = stream->captured;
        return cudaSuccess;
    }
    std::shared_ptr<event_state> state = event->state;
    long ticket = ++state->issued;
    return judge_error(judge_enqueue(handle, [=] {
        state->done = ticket;
        state->time = seconds_now();
    }));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!events.count(event)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (event->capture) {
        return judge_error(cudaErrorCapturedEvent);
    }
    long ticket = event->state->issued;
    run_until([=] { return event->state->done >= ticket; });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!events.count(event)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    run_any();
    return event->state->done >= event->state->issued ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!events.count(start) || !events.count(end) || !start->timing || !end->timing ||
        !start->state->issued || !end->state->issued) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (start->state->done < start->state->issued || end->state->done < end->state->issued) {
        return judge_error(cudaErrorNotReady);
    }
    *milliseconds = (float)((end->state->time - start->state->time) * 1e3);
    return cudaSuccess;
}

// ---- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!is_stream(stream)) {
        return judge_error(
            cudaErrorStreamCaptureUnsupported);  // the null stream cannot be captured
    }
    if (stream->capture) {
        return judge_error(cudaErrorIllegalState);
    }
    stream->capture = new CUgraph_st;
    stream->captured.clear();
    stream->capture->origin = stream;
    stream->capture->relaxed = mode == cudaStreamCaptureModeRelaxed;
    captures.insert(stream->capture);
    return cudaSuccess;
}

// Whether the origin has waited for all work, directly or not.
static bool joined(const CUgraph_st *graph) {
    std::vector<bool> reached(graph->node.size(), false);
    for (size_t i : graph->origin->captured) {
        reached[i] = true;
    }
    bool all = true;
    for (size_t i = reached.size(); i-- > 0;) {
        all = all && reached[i];
        for (size_t j : graph->node[i].after) {
            reached[j] = reached[j] || reached[i];
        }
    }
    return all;
}

// Ends the capture whatever the result; only success leaves a graph behind.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *result) {
    bool fails = judge_entry(__func__);
    *result = nullptr;
    if (!is_stream(stream) || !stream->capture) {
        return judge_error(fails ? judge_injected(cudaErrorUnknown) : cudaErrorIllegalState);
    }
    CUgraph_st *graph = stream->capture;
    if (graph->origin != stream) {
        return judge_error(cudaErrorStreamCaptureUnmatched);
    }
    cudaError_t error = fails            ? judge_injected(cudaErrorUnknown)
                        : graph->broken  ? cudaErrorStreamCaptureInvalidated
                        : !joined(graph) ? cudaErrorStreamCaptureUnjoined
                                         : cudaSuccess;
    for (CUstream_st *each : streams) {
        if (each->capture == graph) {
            each->capture = nullptr;
            each->captured.clear();
        }
    }
    for (CUevent_st *each : events) {
        each->capture = each->capture == graph ? nullptr : each->capture;
    }
    captures.erase(graph);
    if (error != cudaSuccess) {
        delete graph;
        return judge_error(error);
    }
    judge_ledger("graph", 1);
    *result = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    CUgraph_st *graph = resolve(stream)->capture;
    *status = !graph          ? cudaStreamCaptureStatusNone
              : graph->broken ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t *executable, cudaGraph_t graph) {
    *executable = new CUgraphExec_st{std::make_shared<std::vector<graph_node>>(graph->node)};
    judge_ledger("graph executable", 1);
    return cudaSuccess;
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long) {
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, cudaGraphNode_t *,
                                 char *, size_t) {
#endif
    JUDGE_CALL(cudaErrorMemoryAllocation);
    return instantiate(executable, graph);
}

#if CUDART_VERSION >= 11040
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long) {
    JUDGE_CALL(cudaErrorMemoryAllocation);
    return instantiate(executable, graph);
}
#endif

static void replay(const std::vector<graph_node> &node) {
    std::vector<size_t> left(node.size());
    std::vector<std::vector<size_t>> before(node.size());
    std::set<size_t> ready;
    for (size_t i = 0; i < node.size(); i++) {
        left[i] = node[i].after.size();
        for (size_t j : node[i].after) {
            before[j].push_back(i);
        }
        if (!left[i]) {
            ready.insert(i);
        }
    }
    auto order = judge_env().order;
    while (!ready.empty()) {
        auto next = order == judge_settings::reversed ? std::prev(ready.end()) : ready.begin();
        if (order == judge_settings::random) {
            next = std::next(ready.begin(), (long)(judge_random() % ready.size()));
        }
        size_t i = *next;
        ready.erase(next);
        for (size_t j : before[i]) {
            if (node[j].ahead) {
                node[j].ahead();
            }
        }
        node[i].work();
        bool met = !judge_let_in;
        for (size_t j : before[i]) {
            met = met || node[j].ahead;
        }
        if (!met) {
            fault_let_in(judge_let_in, "no node behind it was launched so");
        }
        judge_let_in = nullptr;
        for (size_t j : before[i]) {
            if (!--left[j]) {
                ready.insert(j);
            }
        }
    }
}

#if CUDART_VERSION >= 11010
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    bool good = executable && judge_stream_ok(stream) && !judge_is_capturing(stream);
    return good ? cudaSuccess : judge_error(cudaErrorInvalidResourceHandle);
}
#endif

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!executable || !judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    return judge_error(judge_enqueue(stream, [node = executable->node] { replay(*node); }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    bool fails = judge_entry(__func__);
    delete graph;
    judge_ledger("graph", graph ? -1 : 0);
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    bool fails = judge_entry(__func__);
    delete executable;
    judge_ledger("graph executable", executable ? -1 : 0);
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}
