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
    // Told of every step that a plain run has launched: for events between steps, NVTX ranges,
    // logs. A recorded graph is replayed without it. NULL: nobody asks.
    void (*step)(void *user, const char *name, cudaStream_t stream);
    void *user;
    // Nonzero: every kernel is launched when the one before it is over. Else, on sm_90 and later,
    // some are launched before and wait (programmatic dependent launch).
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

// All return 0, or another number with the reason in $model_error.
// Calls for a handle come one at a time, with the device current that was so at create.
// `weights` is the blob written by `einnet pack`, in host memory, and is not kept; `o` may be NULL.
// A failed create leaves a handle that only error and destroy accept (NULL: no host memory).
int $model_create($model **m, const void *weights, size_t bytes, const $model_options *o);
// `in` and `out`: device pointers in declared order, 16-byte aligned. Runs on `stream`, allocates
// nothing, never synchronises. Before a caller's own capture the handle has to have run once:
// libraries load code in their first calls, which a capture may not allow. All runs of a handle use
// its arena: what an earlier one has put on another stream must be over, as all must before capture
// and destroy.
int $model_run($model *m, const void *const *in, void *const *out, cudaStream_t stream);
// Records a CUDA graph; run replays it whenever it is given the same addresses. Writes to `out`.
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
