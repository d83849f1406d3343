// Descriptors of the cuDNN bodies, shared by dnn.cpp (creating and setting them) and dnn_conv.cpp
// (using them).
#ifndef JUDGE_DNN_H
#define JUDGE_DNN_H

#include <cudnn.h>

#include "judge.h"
#include "number.h"

struct cudnnContext {
    cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int rank = 0;  // 0 until it is set
    int size[CUDNN_DIM_MAX] = {}, stride[CUDNN_DIM_MAX] = {};
};

struct cudnnFilterStruct {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
    int rank = 0;
    int size[CUDNN_DIM_MAX] = {};
};

struct cudnnConvolutionStruct {
    int rank = 0;  // spatial dimensions
    int pad[CUDNN_DIM_MAX] = {}, stride[CUDNN_DIM_MAX] = {}, dilation[CUDNN_DIM_MAX] = {};
    int groups = 1;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

struct cudnnActivationStruct {
    bool set = false;
    cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
    cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
    double coefficient = 0;
};

// Fills in the strides of a dense tensor in the given format: channels second (NCHW) or last
// (NHWC).
void judge_dense_strides(cudnnTensorStruct *t, cudnnTensorFormat_t format);

#define DNN_CALL(error)                                                            \
    do {                                                                           \
        if (judge_entry(__func__)) {                                               \
            return judge_env().no_device ? CUDNN_STATUS_NOT_INITIALIZED : (error); \
        }                                                                          \
    } while (0)

#endif
