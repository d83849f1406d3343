// A small network in the shape of emitted code, with full error paths and every call checked, for
// failing its Nth call. Status 0: done, 1: a call failed and everything was released.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdio.h>

__global__ void bias_relu(float *y, const float *bias, int channels, int pixels, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        float v = y[i] + bias[i / pixels % channels];
        y[i] = v > 0 ? v : 0;
    }
}

struct network {
    cudaStream_t stream;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudaGraphExec_t graph;
    cudaEvent_t done;
    float *memory;
};

enum { y_count = 2 * 4 * 25, out_count = 2 * 10 };

#define CUDA(call)                   \
    do {                             \
        if ((call) != cudaSuccess) { \
            return 1;                \
        }                            \
    } while (0)
#define LIB(call)          \
    do {                   \
        if ((call) != 0) { \
            return 1;      \
        }                  \
    } while (0)

static int network_work(network *n) {
    float one = 1, zero = 0, *in = n->memory, *w = in + 256, *bias = w + 128, *fc = bias + 64,
          *y = fc + 1024, *out = y + 256, *work = out + 64;
    LIB(cudnnConvolutionForward(n->dnn, &one, n->x, in, n->w, w, n->conv,
                                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, work, 1024, &zero,
                                n->y, y));
    bias_relu<<<(y_count + 127) / 128, 128, 0, n->stream>>>(y, bias, 4, 25, y_count);
    CUDA(cudaGetLastError());
    LIB(cublasSgemm(n->blas, CUBLAS_OP_T, CUBLAS_OP_N, 10, 2, 100, &one, fc, 100, y, 100, &zero,
                    out, 10));
    return 0;
}

static int network_libraries(network *n) {
    CUDA(cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&n->done, cudaEventDisableTiming));
    LIB(cudnnCreate(&n->dnn));
    LIB(cudnnSetStream(n->dnn, n->stream));
    LIB(cublasCreate(&n->blas));
    LIB(cublasSetStream(n->blas, n->stream));
    LIB(cudnnCreateTensorDescriptor(&n->x));
    LIB(cudnnCreateTensorDescriptor(&n->y));
    LIB(cudnnCreateFilterDescriptor(&n->w));
    LIB(cudnnCreateConvolutionDescriptor(&n->conv));
    LIB(cudnnSetTensor4dDescriptor(n->x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 5, 5));
    LIB(cudnnSetTensor4dDescriptor(n->y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 5, 5));
    LIB(cudnnSetFilter4dDescriptor(n->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3));
    LIB(cudnnSetConvolution2dDescriptor(n->conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
    return 0;
}

static int network_create(network *n) {
    static float host[8192];
    for (int i = 0; i < 8192; i++) {
        host[i] = (float)(i % 5 - 2);
    }
    LIB(network_libraries(n));
    CUDA(cudaMalloc(&n->memory, sizeof host));
    CUDA(cudaMemcpyAsync(n->memory, host, sizeof host, cudaMemcpyHostToDevice, n->stream));
    CUDA(cudaStreamSynchronize(n->stream));
    cudaGraph_t graph = nullptr;
    CUDA(cudaStreamBeginCapture(n->stream, cudaStreamCaptureModeThreadLocal));
    int status = network_work(n);
    cudaError_t error = cudaStreamEndCapture(n->stream, &graph);
    if (status == 0 && error == cudaSuccess) {
        error = cudaGraphInstantiate(&n->graph, graph, 0);
    }
    if (graph && cudaGraphDestroy(graph) != cudaSuccess) {
        return 1;
    }
    return status != 0 || error != cudaSuccess;
}

static int network_run(network *n, float *out) {
    CUDA(cudaGraphLaunch(n->graph, n->stream));
    CUDA(cudaEventRecord(n->done, n->stream));
    CUDA(cudaMemcpyAsync(out, n->memory + 256 + 128 + 64 + 1024 + 256, out_count * sizeof(float),
                         cudaMemcpyDeviceToHost, n->stream));
    CUDA(cudaStreamSynchronize(n->stream));
    return 0;
}

#define RELEASE(call)      \
    do {                   \
        if ((call) != 0) { \
            status = 1;    \
        }                  \
    } while (0)

static int network_destroy(network *n) {
    int status = 0;
    if (n->graph) {
        RELEASE(cudaGraphExecDestroy(n->graph));
    }
    if (n->x) {
        RELEASE(cudnnDestroyTensorDescriptor(n->x));
    }
    if (n->y) {
        RELEASE(cudnnDestroyTensorDescriptor(n->y));
    }
    if (n->w) {
        RELEASE(cudnnDestroyFilterDescriptor(n->w));
    }
    if (n->conv) {
        RELEASE(cudnnDestroyConvolutionDescriptor(n->conv));
    }
    RELEASE(cudaFree(n->memory));
    if (n->dnn) {
        RELEASE(cudnnDestroy(n->dnn));
    }
    if (n->blas) {
        RELEASE(cublasDestroy(n->blas));
    }
    if (n->done) {
        RELEASE(cudaEventDestroy(n->done));
    }
    if (n->stream) {
        RELEASE(cudaStreamDestroy(n->stream));
    }
    return status;
}

int main() {
    network n = {};
    float out[out_count];
    int status = network_create(&n);
    if (status == 0) {
        status = network_run(&n, out);
    }
    if (status == 0) {
        float sum = 0;
        for (float v : out) {
            sum += v;
        }
        printf("sum %g\n", sum);
    }
    return status | network_destroy(&n);
}
