// CPU bodies of cuDNN's handle and descriptor functions. Prototypes and their meaning are the
// vendor's.
#include "dnn.h"

#include <stdlib.h>

namespace {

template <class T>
cudnnStatus_t create(T **descriptor, const char *kind) {
    *descriptor = new T;
    judge_ledger(kind, 1);
    return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t destroy(T *descriptor, const char *kind, bool fails) {
    judge_ledger(kind, descriptor ? -1 : 0);
    delete descriptor;
    return fails ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

bool type_ok(cudnnDataType_t type) {
    return type >= CUDNN_DATA_FLOAT && type <= CUDNN_DATA_BFLOAT16;
}

bool format_ok(cudnnTensorFormat_t format) {
    return format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC;
}

// Tensors and filters of more than 2^31 - 1 elements do not fit the descriptors.
bool sizes_ok(const int *size, int rank) {
    long long total = 1;
    for (int i = 0; i < rank; i++) {
        if (size[i] < 1 || (total *= size[i]) > 2147483647) {
            return false;
        }
    }
    return true;
}

}  // namespace

void judge_dense_strides(cudnnTensorStruct *t, cudnnTensorFormat_t format) {
    int next = format == CUDNN_TENSOR_NHWC ? t->size[1] : 1;
    for (int i = t->rank - 1; i >= 2; i--) {
        t->stride[i] = next;
        next *= t->size[i];
    }
    t->stride[1] = format == CUDNN_TENSOR_NHWC ? 1 : next;
    t->stride[0] = format == CUDNN_TENSOR_NHWC ? next : next * t->size[1];
}

// ---- library and handle

size_t cudnnGetVersion() {
    const char *wanted = getenv("JUDGE_CUDNN_VERSION");
    return wanted && *wanted ? (size_t)atol(wanted) : CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_ALLOC_FAILED: return "CUDNN_STATUS_ALLOC_FAILED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "unknown cuDNN status";
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    return create(handle, "cudnn handle");
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    return destroy(handle, "cudnn handle", judge_entry(__func__));
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    if (!handle || !judge_stream_ok(stream)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

// ---- tensors

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *descriptor) {
    *descriptor = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    return create(descriptor, "tensor descriptor");
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
    return destroy(descriptor, "tensor descriptor", judge_entry(__func__));
}

static cudnnStatus_t set_tensor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank,
                                const int *size, const int *stride, cudnnTensorFormat_t format) {
    if (!t || !type_ok(type) || rank < 1 || rank > CUDNN_DIM_MAX || !sizes_ok(size, rank) ||
        (!stride && (rank < 3 || !format_ok(format)))) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    t->type = type;
    t->rank = rank;
    for (int i = 0; i < rank; i++) {
        t->size[i] = size[i];
        t->stride[i] = stride ? stride[i] : 0;
    }
    if (!stride) {
        judge_dense_strides(t, format);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    const int size[] = {n, c, h, w};
    return set_tensor(t, type, 4, size, nullptr, format);
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n,
                                           int c, int h, int w, int stride_n, int stride_c,
                                           int stride_h, int stride_w) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    const int size[] = {n, c, h, w}, stride[] = {stride_n, stride_c, stride_h, stride_w};
    return set_tensor(t, type, 4, size, stride, CUDNN_TENSOR_NCHW);
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank,
                                         const int size[], const int stride[]) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    return stride ? set_tensor(t, type, rank, size, stride, CUDNN_TENSOR_NCHW)
                  : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                           cudnnDataType_t type, int rank, const int size[]) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    return set_tensor(t, type, rank, size, nullptr, format);
}

// ---- filters

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *descriptor) {
    *descriptor = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    return create(descriptor, "filter descriptor");
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
    return destroy(descriptor, "filter descriptor", judge_entry(__func__));
}

static cudnnStatus_t set_filter(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                cudnnTensorFormat_t format, int rank, const int *size) {
    if (!f || !type_ok(type) || !format_ok(format) || rank < 3 || rank > CUDNN_DIM_MAX ||
        !sizes_ok(size, rank)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    f->type = type;
    f->format = format;
    f->rank = rank;
    memcpy(f->size, size, (size_t)rank * sizeof *size);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    const int size[] = {k, c, h, w};
    return set_filter(f, type, format, 4, size);
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int size[]) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    return set_filter(f, type, format, rank, size);
}

// ---- convolutions and activations

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *descriptor) {
    *descriptor = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    return create(descriptor, "convolution descriptor");
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
    return destroy(descriptor, "convolution descriptor", judge_entry(__func__));
}

static cudnnStatus_t set_convolution(cudnnConvolutionDescriptor_t c, int rank, const int *pad,
                                     const int *stride, const int *dilation,
                                     cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
    if (!c || rank < 0 || rank > CUDNN_DIM_MAX - 2 ||
        (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION) || !type_ok(compute)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    for (int i = 0; i < rank; i++) {
        if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1) {
            return CUDNN_STATUS_BAD_PARAM;
        }
        c->pad[i] = pad[i];
        c->stride[i] = stride[i];
        c->dilation[i] = dilation[i];
    }
    c->rank = rank;
    c->mode = mode;
    c->compute = compute;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    const int pad[] = {pad_h, pad_w}, stride[] = {stride_h, stride_w},
              dilation[] = {dilation_h, dilation_w};
    return set_convolution(c, 2, pad, stride, dilation, mode, compute);
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int rank,
                                              const int pad[], const int stride[],
                                              const int dilation[], cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    return set_convolution(c, rank, pad, stride, dilation, mode, compute);
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    if (!c || groups < 1) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    c->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    if (!c || math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    c->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *descriptor) {
    *descriptor = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    return create(descriptor, "activation descriptor");
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t descriptor) {
    return destroy(descriptor, "activation descriptor", judge_entry(__func__));
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t a,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                           double coefficient) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    if (!a || mode < CUDNN_ACTIVATION_SIGMOID || mode > CUDNN_ACTIVATION_SWISH) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    a->set = true;
    a->mode = mode;
    a->nan = nan;
    a->coefficient = coefficient;
    return CUDNN_STATUS_SUCCESS;
}
