//@key settings  room for settings of an engine
// An engine of cuDNN's graph API, by its number for a convolution of this form, and its settings:
// type and choice. -1: none.
typedef struct engine_choice {
    int engine, settings, setting[$settings][2];
} engine_choice;

enum { ENGINE_DESCRIPTORS = 128, ENGINE_OFFERS = 64 };
enum { ENGINE_X = 1, ENGINE_W, ENGINE_BIAS, ENGINE_Z, ENGINE_Y, ENGINE_INNER };

typedef struct engine_call {
    cudnnBackendDescriptor_t own[ENGINE_DESCRIPTORS];  // all that the call has, as it was made
    int n;
    cudnnBackendDescriptor_t graph,
        plan;                       // two of them; plan: NULL where another API makes the call
    cudnnBackendDescriptor_t pack;  // addresses `at` for the plan
    const void *at[6];
} engine_call;
