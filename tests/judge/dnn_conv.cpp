// CPU bodies of cuDNN's convolution functions: the library's documented refusals first, then
// conv.cpp on dense float copies.
#include <stdio.h>

#include <algorithm>

#include "conv.h"
#include "dnn.h"

namespace {

cudaDataType data_type(cudnnDataType_t type) {
    return type == CUDNN_DATA_HALF       ? CUDA_R_16F
           : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
                                         : CUDA_R_32F;
}

// A tensor or filter as it lies in memory, with dimensions filled up to five: [n, c, d, h, w].
struct layout {
    cudaDataType type;
    long size[5], stride[5];

    long count() const { return size[0] * size[1] * size[2] * size[3] * size[4]; }
    size_t bytes() const {
        long last = 0;
        for (int i = 0; i < 5; i++) {
            last += (size[i] - 1) * stride[i];
        }
        return (size_t)(last + 1) * judge_type_bytes(type);
    }
    bool is_dense_floats() const {
        long next = 1;
        for (int i = 4; i >= 0; i--) {
            if (size[i] != 1 && stride[i] != next) {
                return false;
            }
            next *= size[i];
        }
        return type == CUDA_R_32F;
    }
};

layout layout_of(const cudnnTensorStruct &t) {
    layout l = {data_type(t.type), {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}};
    for (int i = 0; i < t.rank; i++) {
        int to = i < 2 ? i : i + 5 - t.rank;
        l.size[to] = t.size[i];
        l.stride[to] = t.stride[i];
    }
    return l;
}

layout layout_of(const cudnnFilterStruct &f) {
    cudnnTensorStruct t;
    t.type = f.type;
    t.rank = f.rank;
    memcpy(t.size, f.size, sizeof t.size);
    judge_dense_strides(&t, f.format);
    return layout_of(t);
}

template <class Visit>
void for_elements(const layout &l, Visit visit) {
    long dense = 0;
    for (long n = 0; n < l.size[0]; n++) {
        for (long c = 0; c < l.size[1]; c++) {
            for (long d = 0; d < l.size[2]; d++) {
                for (long h = 0; h < l.size[3]; h++) {
                    long row =
                        n * l.stride[0] + c * l.stride[1] + d * l.stride[2] + h * l.stride[3];
                    for (long w = 0; w < l.size[4]; w++) {
                        visit((size_t)dense++, (size_t)(row + w * l.stride[4]));
                    }
                }
            }
        }
    }
}

// A tensor as dense floats: itself, or a copy. `store` writes a copy back.
class dense {
   public:
    dense(const layout &l, const void *data, bool read, bool tf32 = false)
        : layout_(l), values_(static_cast<float *>(const_cast<void *>(data))) {
        if (l.is_dense_floats() && !tf32) {
            return;
        }
        copy_.resize((size_t)l.count());
        values_ = copy_.data();
        if (read) {
            for_elements(l, [&](size_t i, size_t at) {
                float value = judge_load(data, at, l.type);
                values_[i] = tf32 ? judge_tf32(value) : value;
            });
        }
    }
    void store(void *data) const {
        if (values_ != data) {
            for_elements(layout_, [&](size_t i, size_t at) {
                judge_store(data, at, layout_.type, values_[i]);
            });
        }
    }
    float *get() { return values_; }

   private:
    layout layout_;
    std::vector<float> copy_;
    float *values_;
};

// A convolution whose descriptors have passed all checks. For the backward functions x is dx and y
// is dy.
struct problem {
    judge_conv shape;
    layout x, w, y;
    int rank;  // spatial dimensions: 2 or 3
    bool channels_last_filter;
    cudnnMathType_t math;

    // The library's default lets f32 tensors go through TF32; only FMA keeps them.
    bool tf32() const { return x.type == CUDA_R_32F && math != CUDNN_FMA_MATH; }
};

bool dimensions_fit(const cudnnTensorStruct &x, const cudnnFilterStruct &w,
                    const cudnnConvolutionStruct &c, const cudnnTensorStruct &y) {
    if (x.rank != w.rank || x.rank != y.rank || c.rank != x.rank - 2 || x.size[0] != y.size[0] ||
        x.size[1] != w.size[1] * c.groups || y.size[1] != w.size[0] || w.size[0] % c.groups != 0) {
        return false;
    }
    for (int i = 0; i < c.rank; i++) {
        int reach = c.dilation[i] * (w.size[i + 2] - 1) + 1,
            room = x.size[i + 2] + 2 * c.pad[i] - reach;
        if (room < 0 || y.size[i + 2] != room / c.stride[i] + 1) {
            return false;
        }
    }
    return true;
}

bool strides_positive(const cudnnTensorStruct &t) {
    return std::all_of(t.stride, t.stride + t.rank, [](int stride) { return stride > 0; });
}

bool is_dense_channels_last(const cudnnTensorStruct &t) {
    cudnnTensorStruct wanted = t;
    judge_dense_strides(&wanted, CUDNN_TENSOR_NHWC);
    return memcmp(wanted.stride, t.stride, sizeof t.stride) == 0;
}

// A library that lacks what others have: JUDGE_CUDNN_REFUSES=last refuses filters with channels
// last, =order all tensors but dense ones with channels first, =all everything; =fused all
// algorithms of fused calls but one, which it offers last; =listing to list that one; =fusion fused
// calls, and to list it.
bool refuses(const char *name) {
    const char *what = getenv("JUDGE_CUDNN_REFUSES");
    return what && strcmp(what, name) == 0;
}

bool refuses_fused() { return refuses("fused"); }

bool refuses_fusion() { return refuses("fusion"); }

bool is_refused(const cudnnTensorStruct &x, const cudnnFilterStruct &w,
                const cudnnTensorStruct &y) {
    const char *what = getenv("JUDGE_CUDNN_REFUSES");
    if (!what || !*what || refuses_fused() || refuses_fusion() || refuses("listing")) {
        return false;
    }
    auto first = [](const cudnnTensorStruct &t) {
        cudnnTensorStruct wanted = t;
        judge_dense_strides(&wanted, CUDNN_TENSOR_NCHW);
        return memcmp(wanted.stride, t.stride, sizeof t.stride) == 0;
    };
    return w.format == CUDNN_TENSOR_NHWC || strcmp(what, "all") == 0 ||
           (strcmp(what, "order") == 0 && (!first(x) || !first(y)));
}

cudnnStatus_t check_problem(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                            cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, problem *p) {
    if (!x || !w || !c || !y || !x->rank || !w->rank || !c->rank || !y->rank ||
        !dimensions_fit(*x, *w, *c, *y) || x->type != y->type || x->type != w->type) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    bool type_ok =
        x->type == CUDNN_DATA_FLOAT || x->type == CUDNN_DATA_HALF || x->type == CUDNN_DATA_BFLOAT16;
    bool last = w->format == CUDNN_TENSOR_NHWC;
    if ((x->rank != 4 && x->rank != 5) || !type_ok || c->compute != CUDNN_DATA_FLOAT ||
        !strides_positive(*x) || !strides_positive(*y) || is_refused(*x, *w, *y) ||
        (last && (!is_dense_channels_last(*x) || !is_dense_channels_last(*y)))) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    judge_conv &s = p->shape;
    s = {x->size[0],
         c->groups,
         x->size[1],
         y->size[1],
         {1, 1, 1},
         {1, 1, 1},
         {1, 1, 1},
         {0, 0, 0},
         {1, 1, 1},
         {1, 1, 1},
         c->mode == CUDNN_CONVOLUTION};
    for (int i = 0, d = 3 - c->rank; i < c->rank; i++, d++) {
        s.in[d] = x->size[i + 2];
        s.out[d] = y->size[i + 2];
        s.filter[d] = w->size[i + 2];
        s.pad[d] = c->pad[i];
        s.stride[d] = c->stride[i];
        s.dilation[d] = c->dilation[i];
    }
    p->x = layout_of(*x);
    p->w = layout_of(*w);
    p->y = layout_of(*y);
    p->rank = c->rank;
    p->channels_last_filter = last;
    p->math = c->math;
    return CUDNN_STATUS_SUCCESS;
}

bool all_ones(const int values[3]) { return values[0] == 1 && values[1] == 1 && values[2] == 1; }

bool filter_is(const problem &p, int size) {
    return p.rank == 2 && p.shape.filter[1] == size && p.shape.filter[2] == size;
}

enum family {
    implicit_gemm,
    precomputed_gemm,
    explicit_gemm,
    direct,
    fft,
    fft_tiling,
    winograd,
    winograd_nonfused
};

// Which algorithm families the library documents for a problem, and how much workspace the judge
// asks for. The amounts are made up, but of plausible size, so that memory plans are put to use.
bool family_works(const problem &p, family f) {
    const judge_conv &s = p.shape;
    bool plain = all_ones(s.stride) && all_ones(s.dilation) && !p.channels_last_filter;
    switch (f) {
    case implicit_gemm:
    case precomputed_gemm: return true;
    case explicit_gemm: return p.rank == 2 && all_ones(s.dilation) && !p.channels_last_filter;
    case direct: return false;
    case fft:
    case fft_tiling:
        for (int d = 0; d < 3; d++) {
            plain = plain && (d < 3 - p.rank || (s.filter[d] > s.pad[d] && s.filter[d] <= 32));
        }
        return plain && s.groups == 1 && p.x.type == CUDA_R_32F && p.x.is_dense_floats() &&
               p.y.is_dense_floats() &&
               (f == fft_tiling ||
                (p.rank == 2 && s.in[1] + 2 * s.pad[1] <= 256 && s.in[2] + 2 * s.pad[2] <= 256));
    case winograd: return plain && filter_is(p, 3);
    case winograd_nonfused: return plain && (filter_is(p, 3) || filter_is(p, 5));
    }
    return false;
}

size_t family_workspace(const problem &p, family f) {
    size_t taps = (size_t)p.w.count() / (size_t)p.w.size[0],
           pixels = (size_t)p.y.count() / (size_t)p.y.size[1];
    size_t everything = (size_t)(p.x.count() + p.y.count() + p.w.count());
    switch (f) {
    case implicit_gemm: return 0;
    case precomputed_gemm: return 256 + taps * 8;
    case explicit_gemm: return taps * pixels * 4;
    case fft: return everything * 16;
    case fft_tiling: return everything * 8;
    case winograd: return (size_t)p.w.count() * 8;
    case winograd_nonfused: return everything * 9;
    case direct: break;
    }
    return 0;
}

// The families behind the two enumerations of algorithms, and the order in which the judge
// recommends them.
struct forward_algorithms {
    using algo = cudnnConvolutionFwdAlgo_t;
    using result = cudnnConvolutionFwdAlgoPerf_t;
    static const int count = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    static family of(int a) { return (family)a; }
    static int recommended(int i) {
        static const int order[] = {1, 7, 0, 6, 2, 5, 4, 3};
        return order[i];
    }
};

struct backward_algorithms {
    using algo = cudnnConvolutionBwdDataAlgo_t;
    using result = cudnnConvolutionBwdDataAlgoPerf_t;
    static const int count = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    static family of(int a) {
        static const family families[] = {implicit_gemm, precomputed_gemm, fft,
                                          fft_tiling,    winograd,         winograd_nonfused};
        return families[a];
    }
    static int recommended(int i) {
        static const int order[] = {1, 5, 0, 4, 3, 2};
        return order[i];
    }
};

template <class Algorithms>
cudnnStatus_t check_algorithm(const problem &p, int algo) {
    if (algo < 0 || algo >= Algorithms::count) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return family_works(p, Algorithms::of(algo)) ? CUDNN_STATUS_SUCCESS
                                                 : CUDNN_STATUS_NOT_SUPPORTED;
}

// Fills in the algorithms that work, recommended first, then the others. Those that need more than
// `limit` bytes count as failing. JUDGE_CUDNN_LISTS=both: what is asked for in FMA is listed in the
// default arithmetic before, which asks for half the workspace.
template <class Algorithms>
cudnnStatus_t list_algorithms(const problem &p, size_t limit, bool timed, int requested,
                              int *returned, typename Algorithms::result *results) {
    if (requested < 1 || !returned || !results) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    int filled = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < Algorithms::count && filled < requested; i++) {
            int algo = Algorithms::recommended((i + refuses_fused()) % Algorithms::count);
            bool works = family_works(p, Algorithms::of(algo));
            size_t memory = works ? family_workspace(p, Algorithms::of(algo)) : 0;
            bool fits = works && memory <= limit;
            bool hidden = std::is_same<Algorithms, forward_algorithms>::value &&
                          algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM &&
                          (refuses("listing") || refuses_fusion());
            if (fits != (pass == 0) || hidden) {
                continue;
            }
            bool both = getenv("JUDGE_CUDNN_LISTS") && p.math == CUDNN_FMA_MATH;
            auto &r = results[filled++];
            r = {};
            r.algo = (typename Algorithms::algo)algo;
            r.status = fits    ? CUDNN_STATUS_SUCCESS
                       : works ? CUDNN_STATUS_ALLOC_FAILED
                               : CUDNN_STATUS_NOT_SUPPORTED;
            r.time = fits && timed ? 0.01f * (float)filled : -1.0f;
            r.memory = memory;
            r.determinism = std::is_same<Algorithms, backward_algorithms>::value && algo == 0
                                ? CUDNN_NON_DETERMINISTIC
                                : CUDNN_DETERMINISTIC;
            r.mathType = p.math;
            if (both && filled < requested) {
                results[filled++] = r;
                r.mathType = CUDNN_DEFAULT_MATH;
                r.memory /= 2;
            }
        }
    }
    *returned = filled;
    return CUDNN_STATUS_SUCCESS;
}

bool operand_ok(const char *function, const char *name, const void *data, const layout &l) {
    if (!data || !judge_is_device(data)) {
        fprintf(stderr, "judge: %s: %s is not device memory\n", function, name);
        return false;
    }
    if (!judge_in_device(data, l.bytes())) {
        judge_fault("%s: %s at %p with %zu bytes is not inside live device memory", function, name,
                    data, l.bytes());
    }
    return true;
}

bool workspace_ok(const char *function, void *workspace, size_t bytes, size_t needed) {
    if (needed > bytes || (needed > 0 && !workspace)) {
        fprintf(stderr, "judge: %s: workspace of %zu bytes, %zu are needed\n", function,
                workspace ? bytes : 0, needed);
        return false;
    }
    if (workspace && bytes && !judge_in_device(workspace, bytes)) {
        judge_fault("%s: the workspace at %p with %zu bytes is not inside live device memory",
                    function, workspace, bytes);
    }
    return true;
}

// Whatever the library is given as workspace, it may overwrite, also beyond what it asked for.
void spoil(void *workspace, size_t bytes) {
    if (workspace && bytes) {
        memset(workspace, 0xFF, bytes);
    }
}

cudnnStatus_t status_of(cudaError_t error) {
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

// ---- questions

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t, int *count) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    *count = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t, int *count) {
    DNN_CALL(CUDNN_STATUS_BAD_PARAM);
    *count = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int requested,
                                                     int *returned,
                                                     cudnnConvolutionFwdAlgoPerf_t *results) {
    DNN_CALL(CUDNN_STATUS_INTERNAL_ERROR);
    problem p;
    cudnnStatus_t status = check_problem(x, w, c, y, &p);
    return status ? status
                  : list_algorithms<forward_algorithms>(p, SIZE_MAX, false, requested, returned,
                                                        results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int requested, int *returned,
    cudnnConvolutionBwdDataAlgoPerf_t *results) {
    DNN_CALL(CUDNN_STATUS_INTERNAL_ERROR);
    problem p;
    cudnnStatus_t status = check_problem(dx, w, c, dy, &p);
    return status ? status
                  : list_algorithms<backward_algorithms>(p, SIZE_MAX, false, requested, returned,
                                                         results);
}

// Searching allocates memory and synchronises, which a capture does not allow.
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                   cudnnFilterDescriptor_t w,
                                                   cudnnConvolutionDescriptor_t c,
                                                   cudnnTensorDescriptor_t y, int requested,
                                                   int *returned,
                                                   cudnnConvolutionFwdAlgoPerf_t *results) {
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    problem p;
    cudnnStatus_t status =
        judge_forbid_capture() ? CUDNN_STATUS_EXECUTION_FAILED : check_problem(x, w, c, y, &p);
    return status ? status
                  : list_algorithms<forward_algorithms>(p, SIZE_MAX, true, requested, returned,
                                                        results);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int requested, int *returned,
    cudnnConvolutionBwdDataAlgoPerf_t *results) {
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    problem p;
    cudnnStatus_t status =
        judge_forbid_capture() ? CUDNN_STATUS_EXECUTION_FAILED : check_problem(dx, w, c, dy, &p);
    return status ? status
                  : list_algorithms<backward_algorithms>(p, SIZE_MAX, true, requested, returned,
                                                         results);
}

// The search with the caller's memory runs every algorithm, so the result tensor and the workspace
// are overwritten.
static cudnnStatus_t search(const char *function, cudnnHandle_t handle, const problem &p,
                            const void *in, const layout &in_layout, const void *w, void *out,
                            const layout &out_layout, void *workspace, size_t bytes) {
    if (!handle || !operand_ok(function, "input", in, in_layout) ||
        !operand_ok(function, "w", w, p.w) || !operand_ok(function, "output", out, out_layout) ||
        !workspace_ok(function, workspace, bytes, 0)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    if (judge_forbid_capture()) {
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    size_t out_bytes = out_layout.bytes();
    judge_enqueue(handle->stream, [=] {
        memset(out, 0xFF, out_bytes);
        spoil(workspace, bytes);
    });
    judge_drain(handle->stream);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t xd, const void *x, cudnnFilterDescriptor_t wd,
    const void *w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t yd, void *y,
    int requested, int *returned, cudnnConvolutionFwdAlgoPerf_t *results, void *workspace,
    size_t bytes) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    problem p;
    cudnnStatus_t status = check_problem(xd, wd, c, yd, &p);
    if (!status) {
        status = search(__func__, handle, p, x, p.x, w, y, p.y, workspace, bytes);
    }
    return status ? status
                  : list_algorithms<forward_algorithms>(p, workspace ? bytes : 0, true, requested,
                                                        returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, cudnnFilterDescriptor_t wd, const void *w, cudnnTensorDescriptor_t dyd,
    const void *dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dxd, void *dx,
    int requested, int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results, void *workspace,
    size_t bytes) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    problem p;
    cudnnStatus_t status = check_problem(dxd, wd, c, dyd, &p);
    if (!status) {
        status = search(__func__, handle, p, dy, p.y, w, dx, p.x, workspace, bytes);
    }
    return status ? status
                  : list_algorithms<backward_algorithms>(p, workspace ? bytes : 0, true, requested,
                                                         returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t c,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algo,
                                                      size_t *bytes) {
    DNN_CALL(CUDNN_STATUS_NOT_SUPPORTED);
    problem p;
    cudnnStatus_t status = check_problem(x, w, c, y, &p);
    status = status ? status : check_algorithm<forward_algorithms>(p, algo);
    *bytes = status ? 0 : family_workspace(p, forward_algorithms::of(algo));
    return status;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t c,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algo,
                                                           size_t *bytes) {
    DNN_CALL(CUDNN_STATUS_NOT_SUPPORTED);
    problem p;
    cudnnStatus_t status = check_problem(dx, w, c, dy, &p);
    status = status ? status : check_algorithm<backward_algorithms>(p, algo);
    *bytes = status ? 0 : family_workspace(p, backward_algorithms::of(algo));
    return status;
}

// ---- computations

namespace {

void tell_algorithm(const char *call, int algo) {
    if (judge_env().report_launches) {
        fprintf(stderr, "judge: %s algorithm %d\n", call, algo);
    }
}

}  // namespace

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t xd, const void *x,
                                      cudnnFilterDescriptor_t wd, const void *w,
                                      cudnnConvolutionDescriptor_t cd,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, cudnnTensorDescriptor_t yd, void *y) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    problem p;
    cudnnStatus_t status =
        handle && alpha && beta ? check_problem(xd, wd, cd, yd, &p) : CUDNN_STATUS_BAD_PARAM;
    status = status ? status : check_algorithm<forward_algorithms>(p, algo);
    if (status) {
        return status;
    }
    if (!operand_ok(__func__, "x", x, p.x) || !operand_ok(__func__, "w", w, p.w) ||
        !operand_ok(__func__, "y", y, p.y) ||
        !workspace_ok(__func__, workspace, bytes,
                      family_workspace(p, forward_algorithms::of(algo)))) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    tell_algorithm(__func__, algo);
    return status_of(judge_enqueue(handle->stream, [=] {
        spoil(workspace, bytes);
        dense in(p.x, x, true, p.tf32()), taps(p.w, w, true, p.tf32()), out(p.y, y, keep != 0);
        judge_conv_forward(p.shape, scale, in.get(), taps.get(), keep, out.get());
        out.store(y);
    }));
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t wd, const void *w,
                                           cudnnTensorDescriptor_t dyd, const void *dy,
                                           cudnnConvolutionDescriptor_t cd,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dxd, void *dx) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    problem p;
    cudnnStatus_t status =
        handle && alpha && beta ? check_problem(dxd, wd, cd, dyd, &p) : CUDNN_STATUS_BAD_PARAM;
    status = status ? status : check_algorithm<backward_algorithms>(p, algo);
    if (status) {
        return status;
    }
    if (!operand_ok(__func__, "w", w, p.w) || !operand_ok(__func__, "dy", dy, p.y) ||
        !operand_ok(__func__, "dx", dx, p.x) ||
        !workspace_ok(__func__, workspace, bytes,
                      family_workspace(p, backward_algorithms::of(algo)))) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    tell_algorithm(__func__, algo);
    return status_of(judge_enqueue(handle->stream, [=] {
        spoil(workspace, bytes);
        dense out(p.y, dy, true, p.tf32()), taps(p.w, w, true, p.tf32()), in(p.x, dx, keep != 0);
        judge_conv_backward(p.shape, scale, taps.get(), out.get(), keep, in.get());
        in.store(dx);
    }));
}

// The documented conditions of the fused form beyond those of the convolution itself.
static cudnnStatus_t check_fused(const cudnnTensorStruct &y, cudnnTensorDescriptor_t z,
                                 cudnnTensorDescriptor_t bias,
                                 cudnnActivationDescriptor_t activation,
                                 cudnnConvolutionFwdAlgo_t algo) {
    if (!z || !z->rank || !bias || bias->rank < 2 || !activation || !activation->set) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    bool bias_is_vector = bias->size[0] == 1 && bias->size[1] == y.size[1];
    for (int i = 2; i < bias->rank; i++) {
        bias_is_vector = bias_is_vector && bias->size[i] == 1;
    }
    if (!bias_is_vector) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    bool same = z->rank == y.rank && z->type == y.type &&
                memcmp(z->size, y.size, sizeof y.size) == 0 &&
                memcmp(z->stride, y.stride, sizeof y.stride) == 0;
    bool identity = activation->mode == CUDNN_ACTIVATION_IDENTITY;
    if (!same || bias->type != y.type || bias->stride[1] != 1 ||
        (!identity && activation->mode != CUDNN_ACTIVATION_RELU) ||
        (identity && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) ||
        activation->nan != CUDNN_NOT_PROPAGATE_NAN) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
}

// y = act(y + z + bias) on dense floats; z may be NULL. A NaN stays, so that unset memory is not
// hidden behind a ReLU.
static void finish_fused(const problem &p, float *y, float scale, const float *z, const float *bias,
                         bool relu) {
    long channels = p.y.size[1], pixels = p.y.count() / p.y.size[0] / channels;
    for (long i = 0; i < p.y.count(); i++) {
        float value = y[i] + (z ? scale * z[i] : 0.0f) + bias[i / pixels % channels];
        y[i] = relu && value < 0 ? 0.0f : value;
    }
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, cudnnTensorDescriptor_t xd, const void *x,
    cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t cd,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes, const void *alpha2,
    cudnnTensorDescriptor_t zd, const void *z, cudnnTensorDescriptor_t bias_d, const void *bias,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t yd, void *y) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    problem p;
    cudnnStatus_t status =
        handle && alpha1 && alpha2 ? check_problem(xd, wd, cd, yd, &p) : CUDNN_STATUS_BAD_PARAM;
    status = status ? status : check_algorithm<forward_algorithms>(p, algo);
    status = status ? status : check_fused(*yd, zd, bias_d, activation, algo);
    bool always = algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    if (!status && (refuses_fusion() || (refuses_fused() && !always))) {
        status = CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    }
    if (status) {
        return status;
    }
    layout bias_layout = layout_of(*bias_d);
    if (!operand_ok(__func__, "x", x, p.x) || !operand_ok(__func__, "w", w, p.w) ||
        !operand_ok(__func__, "z", z, p.y) || !operand_ok(__func__, "bias", bias, bias_layout) ||
        !operand_ok(__func__, "y", y, p.y) ||
        !workspace_ok(__func__, workspace, bytes,
                      family_workspace(p, forward_algorithms::of(algo)))) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    float scale1 = *(const float *)alpha1, scale2 = *(const float *)alpha2;
    bool relu = activation->mode == CUDNN_ACTIVATION_RELU;
    tell_algorithm(__func__, algo);
    return status_of(judge_enqueue(handle->stream, [=] {
        spoil(workspace, bytes);
        dense in(p.x, x, true, p.tf32()), taps(p.w, w, true, p.tf32()),
            shift(bias_layout, bias, true), added(p.y, z, scale2 != 0), out(p.y, y, false);
        std::vector<float> result((size_t)p.y.count());  // z may be y
        judge_conv_forward(p.shape, scale1, in.get(), taps.get(), 0, result.data());
        finish_fused(p, result.data(), scale2, scale2 != 0 ? added.get() : nullptr, shift.get(),
                     relu);
        std::copy(result.begin(), result.end(), out.get());
        out.store(y);
    }));
}

// C = alpha * A + beta * C; dimensions of A that are 1 are repeated.
cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t ad,
                             const void *a, const void *beta, cudnnTensorDescriptor_t cd, void *c) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    if (!handle || !alpha || !beta || !ad || !cd || !ad->rank || ad->rank != cd->rank ||
        ad->type != cd->type) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    for (int i = 0; i < ad->rank; i++) {
        if (ad->size[i] != 1 && ad->size[i] != cd->size[i]) {
            return CUDNN_STATUS_BAD_PARAM;
        }
    }
    layout from = layout_of(*ad), to = layout_of(*cd);
    if (!operand_ok(__func__, "A", a, from) || !operand_ok(__func__, "C", c, to)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    return status_of(judge_enqueue(handle->stream, [=] {
        layout wide = from;
        for (int i = 0; i < 5; i++) {
            wide.stride[i] = from.size[i] == 1 ? 0 : from.stride[i];
            wide.size[i] = to.size[i];
        }
        std::vector<float> sum((size_t)to.count());
        for_elements(wide,
                     [&](size_t i, size_t at) { sum[i] = scale * judge_load(a, at, from.type); });
        for_elements(to, [&](size_t i, size_t at) {
            judge_store(c, at, to.type,
                        keep != 0 ? sum[i] + keep * judge_load(c, at, to.type) : sum[i]);
        });
    }));
}

// ReLU alone, of what it overwrites: a NaN stays, as in fused calls.
cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                     const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
                                     const void *beta, cudnnTensorDescriptor_t yd, void *y) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    if (!handle || !alpha || !beta || !activation || !activation->set ||
        activation->mode == CUDNN_ACTIVATION_IDENTITY || xd != yd || x != y || !xd->rank) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    layout l = layout_of(*xd);
    if (activation->mode != CUDNN_ACTIVATION_RELU || *(const float *)alpha != 1 ||
        *(const float *)beta != 0) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (!operand_ok(__func__, "x", y, l)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return status_of(judge_enqueue(handle->stream, [=] {
        for_elements(l, [&](size_t, size_t at) {
            if (judge_load(y, at, l.type) < 0) {
                judge_store(y, at, l.type, 0);
            }
        });
    }));
}
