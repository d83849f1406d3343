//@key model  prefix of the program's symbols
//@key MODEL  the same in upper case
//@key arena  bytes of the arena
//@key weights  bytes of the weight blob
#define $MODEL_ARENA_BYTES $arena
#define $MODEL_WEIGHT_BYTES $weights

#ifdef __cplusplus
extern "C" {
#endif

typedef struct $model $model;

typedef struct $model_options {
    // Device memory of $MODEL_ARENA_BYTES, 256-byte aligned. NULL: create allocates it.
    void *arena;
    // Called after the launch of each step: for events between steps, NVTX ranges, logs. Not called
    // when run replays a recorded graph. NULL: no calls.
    void (*step)(void *user, const char *name, cudaStream_t stream);
    void *user;  // handed to `step`
    // Nonzero: no kernel begins before the one in front of it has ended. Else, on sm_90 and later,
    // some are launched earlier and wait for its results (programmatic dependent launch).
    int no_early_launch;
} $model_options;

typedef struct $model_tensor {
    const char *name;    // in the model
    const char *dtype;   // of an element: "f32", "f16", "bf16", "i8", "u8", "i32", "i64", "bool"
    int rank;            // 0: one element
    long long dims[10];  // elements along each of `rank` dimensions, the last one contiguous
    size_t bytes;        // of all elements, dense and row-major
    size_t offset;       // weights: bytes from the blob's start on; else 0
} $model_tensor;

typedef struct $model_info {
    const char *model;  // its name
    int inputs, outputs, weights;
    const $model_tensor *input, *output, *weight;  // so many of each, in declared order
    size_t arena_bytes;   // device memory that runs write: values between steps, workspaces
    size_t weight_bytes;  // of the blob, in host memory
    size_t const_bytes;   // device memory that create fills and the handle keeps: weights, tables
    size_t peak_bytes;    // device memory while create runs, the most there is: both of these and
                          // what constants are made of, but not inputs, outputs, libraries' own
    unsigned long long manifest;  // hash of the weights' names, types and shapes
} $model_info;

// Functions that return an int return 0, or another number; then $model_error says why.
// One thread at a time uses a handle, with the device current that was current at create.
// `weights` is the blob written by `einnet pack`, in host memory, and is not kept; `o` may be NULL.
// A failed create leaves a handle that only error and destroy accept (NULL: no host memory).
int $model_create($model **m, const void *weights, size_t bytes, const $model_options *o);
// `in` and `out` are host arrays of device pointers, in declared order and 16-byte aligned. An
// output may not overlap an input or another output. run enqueues its work on `stream`, allocates
// nothing and never synchronises. All runs of a handle use one arena: when the stream changes, the
// run before must have ended, as all must have before capture and destroy. To record run into a
// graph of your own, call it once before: libraries load code at their first call, which may not be
// captured.
int $model_run($model *m, const void *const *in, void *const *out, cudaStream_t stream);
// Runs once, which writes `out`, and records a CUDA graph, which later runs with the same addresses
// replay. It replaces the graph of an earlier call. Waits until that run is over.
int $model_capture($model *m, const void *const *in, void *const *out);
// Frees all that create made; NULL is fine.
void $model_destroy($model *m);
// Why the handle's last call failed, in one line, else "". The handle owns the text.
const char *$model_error(const $model *m);
// What the program is: the same for every handle, never freed.
const $model_info *$model_describe(void);

#ifdef __cplusplus
}
#endif
