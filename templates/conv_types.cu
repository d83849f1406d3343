//@key pins     a table of costs has chosen algorithms
//@key spatial  the most spatial axes of any convolution, at least 2
//@key typed    convolutions have types of their own: not all are FP32
//@key engines  some are made by cuDNN's graph API
//@key pinned   a table of costs has chosen its engines
//@key nhwc     some have their channels last
//@key copied   and these are copied where cuDNN refuses them
// One convolution: sizes, and what cuDNN needs to run it. Axes are padded with 1 in front.
typedef struct conv_size {
    const char *name;
    int transposed, n, c, f, group;
    int in[$spatial], out[$spatial], filter[$spatial];
    int pad[$spatial], stride[$spatial], dilation[$spatial];
    int fused, relu;  // bias (and residual) added, then relu, by the library
    //@if typed
    int half, tf32;  // f16 tensors, or f32 ones rounded to TF32; sums are f32
    //@end
    //@if nhwc
    int nhwc;  // data, filter, result and residual lie in memory with channels last
    //@end
    //@if pins
    size_t version;  // of the library with which algorithm `pin` was the fastest, 0: not measured
    int pin;
    //@end
    //@if engines
    int residual;  // something is added to the result beside the bias
    //@end
    //@if pinned
    engine_choice choice;  // instead of `pin`
    //@end
} conv_size;

typedef struct conv_call {
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnActivationDescriptor_t act;
    int algorithm, shared;  // shared: with an earlier call of the same sizes, which releases it
    int apart;  // the library refuses the fused call: convolution, bias and relu are calls
    size_t workspace;
    //@if copied
    int copies;  // that the call makes of what it reads, because cuDNN refuses channels last
    //@end
    //@if engines
    engine_call graph;
    //@end
} conv_call;
