//@key model  prefix of the program's symbols
//@key conv   the program calls cuDNN
//@key convs  how many convolutions
//@key gemm   the program calls cuBLAS
//@key matmuls  how many calls of cublasLt
//@key nin    inputs
//@key nout   outputs
//@key branches  of a recorded graph; empty: one
//@key events    that order them
//@key grouped   some products of different sizes are one call
//@key early     some kernels may be launched before the one before is over
//@key init      some memory is needed by create alone
//@key large     some kernels have to ask for their shared memory
struct $model {
    int ready;  // create went through
    char error[256];
    char *arena;  // activations and workspace
    int own_arena;
    char *constants;  // weights that run reads, and what create made of them
    //@if init
    char *init;  // only while create runs
    //@end
    cudaGraphExec_t graph;  // recorded by capture for these addresses
    const void *graph_in[$nin];
    void *graph_out[$nout];
    void (*step)(void *user, const char *name, cudaStream_t stream);  // or NULL
    void *user;
    cudaStream_t stream;  // that the steps are launched on
    //@if large
    int most_shared;  // bytes of shared memory that kernels have at most
    //@end
    //@if early
    int can_early[2];  // whether kernels can be launched early: in a plain run, in a recorded graph
    int early;         // whether they are, in this run
    //@end
    //@if branches
    int forked;                    // branches are on streams of their own: while recording
    cudaStream_t on[$branches];    // by branch
    cudaStream_t side[$branches];  // ours; side[0] is not used
    cudaEvent_t event[$events];
    //@end
    //@if conv
    cudnnHandle_t cudnn;
    conv_call conv[$convs];
    //@end
    //@if gemm
    cublasHandle_t cublas;
    //@end
    //@if grouped
    group_arrays grouped;
    //@end
    //@if matmuls
    cublasLtHandle_t lt;
    matmul_call matmul[$matmuls];
    cudaStream_t lt_stream;  // that its calls go to
    //@end
};
