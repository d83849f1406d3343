// The judge's cuDNN bodies against naive loops. Prints a line for each failed check and a summary.
// Built by nvcc instead, it checks the same claims about the real library. With the argument
// `version` it prints what cudnnGetVersion says.
#include <cudnn.h>

#include "libs.h"

static cudnnHandle_t dnn;

// ---- cuDNN

struct conv_case {
    const char *name;
    int rank, batch, cin, cout, groups, in[3], k[3], pad[3], stride[3], dilation[3];
    bool last, flipped;
    cudaDataType type;
    int algo;

    int out(int d) const {
        return (in[d] + 2 * pad[d] - dilation[d] * (k[d] - 1) - 1) / stride[d] + 1;
    }
    int outs(int d) const { return d < rank ? out(d) : 1; }
    int ins(int d) const { return d < rank ? in[d] : 1; }
    int ks(int d) const { return d < rank ? k[d] : 1; }
};

// Index of [n, c, p...] in a tensor of that many channels and sizes, channels second or last.
static size_t index_of(bool last, int n, int c, int channels, const int p[3], const int size[3]) {
    size_t pixel = ((size_t)p[0] * size[1] + p[1]) * size[2] + p[2],
           pixels = (size_t)size[0] * size[1] * size[2];
    return last ? ((size_t)n * pixels + pixel) * channels + c
                : ((size_t)n * channels + c) * pixels + pixel;
}

// Calls visit(x index, w index, y index) for every product of the convolution.
template <class Visit>
static void naive_conv(const conv_case &c, Visit visit) {
    const int in[3] = {c.ins(0), c.ins(1), c.ins(2)}, out[3] = {c.outs(0), c.outs(1), c.outs(2)},
              k[3] = {c.ks(0), c.ks(1), c.ks(2)};
    int cpg = c.cin / c.groups, kpg = c.cout / c.groups, pixels = out[0] * out[1] * out[2],
        taps = k[0] * k[1] * k[2];
    for (int n = 0; n < c.batch; n++) {
        for (int f = 0; f < c.cout; f++) {
            for (int o = 0; o < pixels; o++) {
                for (int ci = 0; ci < cpg; ci++) {
                    for (int t = 0; t < taps; t++) {
                        int p[3] = {o / out[2] / out[1], o / out[2] % out[1], o % out[2]},
                            q[3] = {t / k[2] / k[1], t / k[2] % k[1], t % k[2]}, at[3];
                        bool inside = true;
                        for (int d = 0; d < 3; d++) {
                            int tap = c.flipped ? k[d] - 1 - q[d] : q[d];
                            at[d] = d < c.rank ? p[d] * c.stride[d] - c.pad[d] + tap * c.dilation[d]
                                               : 0;
                            inside = inside && at[d] >= 0 && at[d] < in[d];
                        }
                        if (inside) {
                            visit(index_of(c.last, n, f / kpg * cpg + ci, c.cin, at, in),
                                  index_of(c.last, f, ci, cpg, q, k),
                                  index_of(c.last, n, f, c.cout, p, out), f);
                        }
                    }
                }
            }
        }
    }
}

struct conv_descriptors {
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnActivationDescriptor_t act;
    int bad = 0;

    explicit conv_descriptors(const conv_case &c) {
        cudnnTensorFormat_t format = c.last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
        cudnnDataType_t type = c.type == CUDA_R_32F   ? CUDNN_DATA_FLOAT
                               : c.type == CUDA_R_16F ? CUDNN_DATA_HALF
                                                      : CUDNN_DATA_BFLOAT16;
        int xs[5] = {c.batch, c.cin}, ys[5] = {c.batch, c.cout}, ws[5] = {c.cout, c.cin / c.groups};
        for (int d = 0; d < c.rank; d++) {
            xs[d + 2] = c.in[d];
            ys[d + 2] = c.out(d);
            ws[d + 2] = c.k[d];
        }
        bad |= cudnnCreateTensorDescriptor(&x) | cudnnCreateTensorDescriptor(&y) |
               cudnnCreateTensorDescriptor(&bias);
        bad |= cudnnCreateFilterDescriptor(&w) | cudnnCreateConvolutionDescriptor(&conv) |
               cudnnCreateActivationDescriptor(&act);
        if (c.rank == 2) {
            bad |= cudnnSetTensor4dDescriptor(x, format, type, xs[0], xs[1], xs[2], xs[3]);
            bad |= cudnnSetFilter4dDescriptor(w, type, format, ws[0], ws[1], ws[2], ws[3]);
            bad |= cudnnSetConvolution2dDescriptor(
                conv, c.pad[0], c.pad[1], c.stride[0], c.stride[1], c.dilation[0], c.dilation[1],
                c.flipped ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
        } else {
            bad |= cudnnSetTensorNdDescriptorEx(x, format, type, c.rank + 2, xs);
            bad |= cudnnSetFilterNdDescriptor(w, type, format, c.rank + 2, ws);
            bad |= cudnnSetConvolutionNdDescriptor(
                conv, c.rank, c.pad, c.stride, c.dilation,
                c.flipped ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
        }
        bad |= cudnnSetTensorNdDescriptorEx(y, format, type, c.rank + 2, ys);
        bad |= cudnnSetTensor4dDescriptor(bias, CUDNN_TENSOR_NCHW, type, 1, c.cout, 1, 1);
        bad |= cudnnSetConvolutionGroupCount(conv, c.groups) |
               cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH);
        bad |= cudnnSetActivationDescriptor(act, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0);
    }
    ~conv_descriptors() {
        cudnnDestroyTensorDescriptor(x);
        cudnnDestroyTensorDescriptor(y);
        cudnnDestroyTensorDescriptor(bias);
        cudnnDestroyFilterDescriptor(w);
        cudnnDestroyConvolutionDescriptor(conv);
        cudnnDestroyActivationDescriptor(act);
    }
};

static size_t conv_count(const conv_case &c, bool output) {
    size_t count = (size_t)c.batch * (output ? c.cout : c.cin);
    for (int d = 0; d < c.rank; d++) {
        count *= (size_t)(output ? c.out(d) : c.in[d]);
    }
    return count;
}

static size_t filter_count(const conv_case &c) {
    return (size_t)c.cout * (c.cin / c.groups) * c.ks(0) * c.ks(1) * c.ks(2);
}

static void conv_forward(const conv_case &c, conv_descriptors &d, float alpha, float beta) {
    std::vector<float> x = values(conv_count(c, false)), w = values(filter_count(c)),
                       y(conv_count(c, true)), old = values(y.size());
    naive_conv(c, [&](size_t i, size_t j, size_t o, int) { y[o] += x[i] * w[j]; });
    for (size_t i = 0; i < y.size(); i++) {
        y[i] = alpha * y[i] + (beta != 0 ? beta * old[i] : 0);
    }
    auto algo = (cudnnConvolutionFwdAlgo_t)c.algo;
    size_t bytes = 0;
    int bad =
        d.bad | cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.w, d.conv, d.y, algo, &bytes);
    device_array dx(x, c.type), dw(w, c.type), dy(beta != 0 ? old : poison(old.size()), c.type),
        work(bytes / 4 + 1);
    bad |= cudnnConvolutionForward(dnn, &alpha, d.x, dx.data, d.w, dw.data, d.conv, algo,
                                   bytes ? work.data : nullptr, bytes, &beta, d.y, dy.data);
    check(bad == 0 && same(dy.get(), y), std::string("conv forward ") + c.name);
    if (bytes) {
        check(cudnnConvolutionForward(dnn, &alpha, d.x, dx.data, d.w, dw.data, d.conv, algo,
                                      work.data, bytes - 1, &beta, d.y,
                                      dy.data) == CUDNN_STATUS_BAD_PARAM,
              std::string("conv forward, workspace too small, ") + c.name);
    }
}

static void conv_backward(const conv_case &c, conv_descriptors &d, float alpha, float beta) {
    std::vector<float> y = values(conv_count(c, true)), w = values(filter_count(c)),
                       x(conv_count(c, false)), old = values(x.size());
    naive_conv(c, [&](size_t i, size_t j, size_t o, int) { x[i] += y[o] * w[j]; });
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = alpha * x[i] + (beta != 0 ? beta * old[i] : 0);
    }
    cudnnConvolutionBwdDataAlgo_t algo =
        c.algo == 0 ? CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 : CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    size_t bytes = 0;
    int bad = d.bad | cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, d.w, d.y, d.conv, d.x, algo,
                                                                   &bytes);
    device_array dx(beta != 0 ? old : poison(old.size()), c.type), dw(w, c.type), dy(y, c.type),
        work(bytes / 4 + 1);
    bad |= cudnnConvolutionBackwardData(dnn, &alpha, d.w, dw.data, d.y, dy.data, d.conv, algo,
                                        bytes ? work.data : nullptr, bytes, &beta, d.x, dx.data);
    check(bad == 0 && same(dx.get(), x), std::string("conv backward ") + c.name);
}

// y = act(conv(x) + 2 z + bias); with `alias` z is y.
static void conv_fused(const conv_case &c, conv_descriptors &d, bool alias, bool relu) {
    std::vector<float> x = values(conv_count(c, false)), w = values(filter_count(c)),
                       bias = values((size_t)c.cout), y(conv_count(c, true)), z = values(y.size());
    std::vector<int> channel(y.size());
    naive_conv(c, [&](size_t i, size_t j, size_t o, int f) {
        y[o] += x[i] * w[j];
        channel[o] = f;
    });
    for (size_t i = 0; i < y.size(); i++) {
        y[i] += 2 * z[i] + bias[(size_t)channel[i]];
        y[i] = relu && y[i] < 0 ? 0 : y[i];
    }
    auto algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    float one = 1, two = 2;
    size_t bytes = 0;
    int bad =
        d.bad | cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.w, d.conv, d.y, algo, &bytes);
    bad |= cudnnSetActivationDescriptor(d.act,
                                        relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                        CUDNN_NOT_PROPAGATE_NAN, 0);
    device_array dx(x, c.type), dw(w, c.type), dz(z, c.type), db(bias, c.type),
        dy(poison(y.size()), c.type), work(bytes / 4 + 1);
    void *result = alias ? dz.data : dy.data;
    bad |= cudnnConvolutionBiasActivationForward(dnn, &one, d.x, dx.data, d.w, dw.data, d.conv,
                                                 algo, work.data, bytes, &two, d.y, dz.data, d.bias,
                                                 db.data, d.act, d.y, result);
    check(bad == 0 && same((alias ? dz : dy).get(), y), std::string("conv fused ") + c.name);
}

static const cudaDataType f32 = CUDA_R_32F, f16 = CUDA_R_16F, bf16 = CUDA_R_16BF;
static const bool nchw = false, nhwc = true;

// rank, batch, channels in and out, groups, input, filter, pad, stride, dilation, format, flipped,
// type, forward algorithm
static const conv_case conv_cases[] = {
    {"1x1", 2, 2, 5, 4, 1, {4, 3}, {1, 1}, {0, 0}, {1, 1}, {1, 1}, nchw, false, f32, 0},
    {"1x1 stride 2", 2, 1, 3, 4, 1, {5, 4}, {1, 1}, {0, 0}, {2, 2}, {1, 1}, nchw, false, f32, 1},
    {"3x3", 2, 2, 3, 4, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nchw, false, f32, 1},
    {"3x3 winograd", 2, 2, 3, 4, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nchw, false, f32, 6},
    {"5x5 nonfused", 2, 1, 2, 3, 1, {7, 7}, {5, 5}, {2, 2}, {1, 1}, {1, 1}, nchw, false, f32, 7},
    {"3x3 fft", 2, 1, 2, 3, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nchw, false, f32, 5},
    {"3x3 gemm stride", 2, 2, 3, 4, 1, {7, 6}, {3, 2}, {1, 0}, {2, 3}, {1, 1}, nchw, false, f32, 2},
    {"dilated", 2, 1, 3, 2, 1, {9, 8}, {3, 3}, {2, 2}, {1, 2}, {2, 3}, nchw, false, f32, 0},
    {"flipped", 2, 1, 2, 3, 1, {5, 6}, {3, 2}, {1, 1}, {1, 1}, {1, 1}, nchw, true, f32, 0},
    {"groups", 2, 2, 6, 4, 2, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nchw, false, f32, 1},
    {"depthwise", 2, 1, 6, 6, 6, {5, 5}, {3, 3}, {1, 1}, {2, 1}, {1, 1}, nchw, false, f32, 0},
    {"channel multiplier",
     2,
     1,
     3,
     6,
     3,
     {5, 5},
     {3, 3},
     {1, 1},
     {1, 1},
     {1, 1},
     nchw,
     false,
     f32,
     0},
    {"wide pad", 2, 1, 1, 1, 1, {1, 2}, {3, 3}, {3, 3}, {1, 1}, {1, 1}, nchw, false, f32, 0},
    {"one line", 2, 2, 3, 4, 1, {1, 9}, {1, 3}, {0, 1}, {1, 2}, {1, 1}, nchw, false, f32, 1},
    {"3d",
     3,
     2,
     2,
     3,
     1,
     {4, 5, 3},
     {3, 2, 3},
     {1, 0, 1},
     {1, 2, 1},
     {1, 1, 1},
     nchw,
     false,
     f32,
     1},
    {"3d dilated groups",
     3,
     1,
     4,
     2,
     2,
     {5, 5, 5},
     {2, 3, 2},
     {1, 2, 1},
     {2, 1, 1},
     {2, 2, 1},
     nchw,
     true,
     f32,
     0},
    {"nhwc", 2, 2, 3, 4, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nhwc, false, f32, 1},
    {"nhwc groups stride",
     2,
     2,
     4,
     6,
     2,
     {6, 5},
     {3, 3},
     {1, 1},
     {2, 1},
     {1, 2},
     nhwc,
     false,
     f32,
     0},
    {"ndhwc",
     3,
     1,
     3,
     2,
     1,
     {3, 4, 3},
     {2, 2, 2},
     {1, 0, 1},
     {1, 1, 1},
     {1, 1, 1},
     nhwc,
     false,
     f32,
     1},
    {"f16", 2, 1, 3, 4, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nchw, false, f16, 1},
    {"bf16 nhwc", 2, 1, 3, 4, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, nhwc, false, bf16, 1},
    {"several pieces",
     2,
     1,
     64,
     2,
     1,
     {60, 60},
     {3, 3},
     {1, 1},
     {1, 1},
     {1, 1},
     nchw,
     false,
     f32,
     1},
};

static void conv_all() {
    for (const conv_case &c : conv_cases) {
        conv_descriptors d(c);
        conv_forward(c, d, 1, 0);
        conv_forward(c, d, 2, -1);
        conv_backward(c, d, 1, 0);
        conv_backward(c, d, -1, 1);
        conv_fused(c, d, false, true);
        conv_fused(c, d, true, false);
    }
}

static void algorithm_lists() {
    conv_descriptors d(conv_cases[2]);
    cudnnConvolutionFwdAlgoPerf_t forward[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    cudnnConvolutionBwdDataAlgoPerf_t backward[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
    int count = 0, most = 0;
    size_t bytes = 0;
    bool ok = cudnnGetConvolutionForwardAlgorithmMaxCount(dnn, &most) == CUDNN_STATUS_SUCCESS &&
              cudnnGetConvolutionForwardAlgorithm_v7(dnn, d.x, d.w, d.conv, d.y, most, &count,
                                                     forward) == CUDNN_STATUS_SUCCESS &&
              count == most;
    for (int i = 0; i < count; i++) {
        cudnnStatus_t status = cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.w, d.conv, d.y,
                                                                       forward[i].algo, &bytes);
        ok = ok && status == forward[i].status && (status || bytes == forward[i].memory);
    }
    check(ok && forward[0].status == CUDNN_STATUS_SUCCESS, "forward algorithms");
    check(cudnnFindConvolutionForwardAlgorithm(dnn, d.x, d.w, d.conv, d.y, 2, &count, forward) ==
                  CUDNN_STATUS_SUCCESS &&
              count == 2 && forward[0].time > 0,
          "forward search");
    ok = cudnnGetConvolutionBackwardDataAlgorithmMaxCount(dnn, &most) == CUDNN_STATUS_SUCCESS &&
         cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, d.w, d.y, d.conv, d.x, most, &count,
                                                     backward) == CUDNN_STATUS_SUCCESS &&
         count == most;
    check(ok &&
              cudnnFindConvolutionBackwardDataAlgorithm(dnn, d.w, d.y, d.conv, d.x, 1, &count,
                                                        backward) == CUDNN_STATUS_SUCCESS &&
              count == 1,
          "backward algorithms");
    device_array x(values(180)), w(values(108)), y(values(240)), work(64);
    ok = cudnnFindConvolutionForwardAlgorithmEx(dnn, d.x, x.data, d.w, w.data, d.conv, d.y, y.data,
                                                8, &count, forward, work.data,
                                                256) == CUDNN_STATUS_SUCCESS;
    check(ok && forward[0].memory <= 256, "forward search in place");
#ifdef EIN_JUDGE
    check(y.get()[0] != y.get()[0], "the search overwrites the result");
#endif
    ok = cudnnFindConvolutionBackwardDataAlgorithmEx(dnn, d.w, w.data, d.y, y.data, d.conv, d.x,
                                                     x.data, 8, &count, backward, nullptr,
                                                     0) == CUDNN_STATUS_SUCCESS;
    check(ok && backward[0].memory == 0, "backward search in place");
}

static void conv_refusals() {
    conv_descriptors d(conv_cases[2]);
    device_array x(values(2 * 3 * 30)), w(values(108)), y(values(2 * 4 * 30)), bias(values(4)),
        work(4096);
    float one = 1, zero = 0;
    auto forward = [&](const void *in, cudnnTensorDescriptor_t yd, int algo) {
        return cudnnConvolutionForward(dnn, &one, d.x, in, d.w, w.data, d.conv,
                                       (cudnnConvolutionFwdAlgo_t)algo, work.data, 16384, &zero, yd,
                                       y.data);
    };
    auto fused = [&](int algo) {
        return cudnnConvolutionBiasActivationForward(
            dnn, &one, d.x, x.data, d.w, w.data, d.conv, (cudnnConvolutionFwdAlgo_t)algo, work.data,
            16384, &zero, d.y, y.data, d.bias, bias.data, d.act, d.y, y.data);
    };
    check(forward(x.data, d.y, 0) == CUDNN_STATUS_SUCCESS, "refusals: control");
#ifdef EIN_JUDGE
    float host[4];
    check(forward(host, d.y, 0) == CUDNN_STATUS_BAD_PARAM, "host input");
#endif
    check(forward(x.data, d.x, 0) == CUDNN_STATUS_BAD_PARAM, "wrong output shape");
    check(forward(x.data, d.y, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT) == CUDNN_STATUS_NOT_SUPPORTED,
          "direct algorithm");
    check(fused(0) == CUDNN_STATUS_SUCCESS, "fused relu with algorithm 0");
    cudnnSetActivationDescriptor(d.act, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0);
    check(fused(0) == CUDNN_STATUS_NOT_SUPPORTED && fused(1) == CUDNN_STATUS_SUCCESS,
          "fused identity needs algorithm 1");
    cudnnSetActivationDescriptor(d.act, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN, 0);
    check(fused(1) == CUDNN_STATUS_NOT_SUPPORTED, "fused tanh");
    int three[3] = {2, 3, 9}, strides[3] = {27, 9, 1}, ones[1] = {1}, nothing[1] = {0},
        filter[3] = {4, 3, 1};
    size_t bytes = 0;
    cudnnSetTensorNdDescriptor(d.x, CUDNN_DATA_FLOAT, 3, three, strides);
    three[1] = 4;
    strides[0] = 36;
    cudnnSetTensorNdDescriptor(d.y, CUDNN_DATA_FLOAT, 3, three, strides);
    cudnnSetFilterNdDescriptor(d.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, filter);
    cudnnSetConvolutionNdDescriptor(d.conv, 1, nothing, ones, ones, CUDNN_CROSS_CORRELATION,
                                    CUDNN_DATA_FLOAT);
    check(cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.w, d.conv, d.y,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                  &bytes) == CUDNN_STATUS_NOT_SUPPORTED,
          "tensors of rank 3");
}

// 1 + 2^-11 is no TF32 number: only FMA keeps it, the library's default does not.
static void conv_tf32() {
    conv_case c = {};
    c.name = "1x1";
    c.rank = 2;
    c.batch = c.groups = c.cin = c.cout = 1;
    for (int i = 0; i < 3; i++) {
        c.in[i] = c.k[i] = c.stride[i] = c.dilation[i] = 1;
    }
    const float one = 1, zero = 0, value = 1 + ldexpf(1, -11);
    cudnnMathType_t modes[] = {CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_DEFAULT_MATH};
    for (cudnnMathType_t mode : modes) {
        conv_descriptors d(c);
        device_array x(std::vector<float>(1, value)), y(poison(1));
        int bad = d.bad | cudnnSetConvolutionMathType(d.conv, mode);
        bad |= cudnnConvolutionForward(dnn, &one, d.x, x.data, d.w, x.data, d.conv,
                                       CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &zero,
                                       d.y, y.data);
        float got = y.get()[0], step = ldexpf(1, -10);
        bool rounded = got == 1 || got == (1 + step) * (1 + step);
        check(bad == 0 && (mode == CUDNN_FMA_MATH ? got == value * value : rounded),
              "arithmetic of f32 convolutions, math type " + std::to_string((int)mode));
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "version") == 0) {
        printf("%zu\n", cudnnGetVersion());
        return 0;
    }
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudnnCreate(&dnn) ||
        cudnnSetStream(dnn, stream)) {
        printf("no device\n");
        return 1;
    }
    conv_all();
    algorithm_lists();
    conv_refusals();
    conv_tf32();
    cudnnDestroy(dnn);
    cudaStreamDestroy(stream);
    return summary();
}
