// The bodies of cuDNN's graph API against naive loops, and what they must refuse. Prints a line for
// each failed check and `N passed, M failed`.
#include <cudnn.h>

#include "libs.h"

static cudnnHandle_t handle;
static std::vector<cudnnBackendDescriptor_t> made;
static cudnnStatus_t last;  // of the first call that failed since `begin`

static void begin() { last = CUDNN_STATUS_SUCCESS; }

static void keep(cudnnStatus_t status) {
    if (last == CUDNN_STATUS_SUCCESS) {
        last = status;
    }
}

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = nullptr;
    keep(cudnnBackendCreateDescriptor(type, &d));
    made.push_back(d);
    return d;
}

template <class T>
static void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, const std::vector<T> &values) {
    keep(cudnnBackendSetAttribute(d, name, type, (int64_t)values.size(), values.data()));
}

static void part(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 const std::vector<cudnnBackendDescriptor_t> &values) {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, values);
}

static cudnnBackendDescriptor_t finish(cudnnBackendDescriptor_t d) {
    keep(cudnnBackendFinalize(d));
    return d;
}

static void clear() {
    for (cudnnBackendDescriptor_t d : made) {
        if (d) {
            cudnnBackendDestroyDescriptor(d);
        }
    }
    made.clear();
}

// A problem: [2, 3, 5, 4] with filters [4, 3, 3, 3], padding 1.
enum { N = 2, C = 3, F = 4, H = 5, W = 4, X = 1, K, B, Z, Y, INNER };
struct form {
    bool z, bias, relu, backward, last, swapped;
    cudnnDataType_t type, inner;
    float alpha;
};

static cudnnBackendDescriptor_t tensor(const form &f, int64_t id, int64_t n, int64_t c, int64_t h,
                                       int64_t w) {
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, {n, c, h, w});
    set<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                 f.last ? std::vector<int64_t>{c * h * w, 1, w * c, c}
                        : std::vector<int64_t>{c * h * w, h * w, w, 1});
    set<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                         {id >= INNER ? f.inner : f.type});
    set<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {id});
    set<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
    keep(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                                  id >= INNER ? "\1" : "\0"));
    return finish(d);
}

static cudnnBackendDescriptor_t convolution() {
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set<cudnnDataType_t>(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                         {CUDNN_DATA_FLOAT});
    set<cudnnConvolutionMode_t>(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                {CUDNN_CROSS_CORRELATION});
    set<int64_t>(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2});
    for (cudnnBackendAttributeName_t name :
         {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
          CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
        set<int64_t>(d, name, CUDNN_TYPE_INT64, {1, 1});
    }
    return finish(d);
}

static cudnnBackendDescriptor_t pointwise(cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t what = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set<cudnnPointwiseMode_t>(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                              {b ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD});
    set<cudnnDataType_t>(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                         {CUDNN_DATA_FLOAT});
    finish(what);
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {what});
    part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
    if (b) {
        part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {b});
    }
    part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y});
    return finish(d);
}

static cudnnBackendDescriptor_t graph_of(const form &f) {
    std::vector<cudnnBackendDescriptor_t> others, ops;
    int c = f.backward ? F : C, k = f.backward ? C : F;  // channels in and out
    cudnnBackendDescriptor_t x = tensor(f, X, N, c, H, W), w = tensor(f, K, F, C, 3, 3);
    if (f.z) {
        others.push_back(tensor(f, Z, N, k, H, W));
    }
    if (f.bias) {
        others.insert(f.swapped ? others.begin() : others.end(), tensor(f, B, 1, k, 1, 1));
    }
    if (f.relu) {
        others.push_back(nullptr);
    }
    cudnnBackendDescriptor_t at = tensor(f, others.empty() ? Y : INNER, N, k, H, W);
    cudnnBackendDescriptor_t op =
        create(f.backward ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                          : CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    auto name = [&](cudnnBackendAttributeName_t forward, cudnnBackendAttributeName_t backward) {
        return f.backward ? backward : forward;
    };
    part(op,
         name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
         {convolution()});
    part(op,
         name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY),
         {x});
    part(op,
         name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
         {w});
    part(op,
         name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
         {at});
    set<float>(op,
               name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
               CUDNN_TYPE_FLOAT, {f.alpha});
    set<float>(op,
               name(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA),
               CUDNN_TYPE_FLOAT, {0.0f});
    ops.push_back(finish(op));
    for (size_t i = 0; i < others.size(); i++) {
        cudnnBackendDescriptor_t next =
            tensor(f, i + 1 < others.size() ? INNER + 1 + (int)i : Y, N, k, H, W);
        ops.push_back(pointwise(at, others[i], next));
        at = next;
    }
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<cudnnHandle_t>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {handle});
    part(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, ops);
    return finish(d);
}

static cudnnBackendDescriptor_t plan_of(cudnnBackendDescriptor_t graph, int64_t engine,
                                        const std::vector<std::pair<int, int64_t>> &settings) {
    cudnnBackendDescriptor_t e = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    part(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    set<int64_t>(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {engine});
    finish(e);
    std::vector<cudnnBackendDescriptor_t> choices;
    for (auto &s : settings) {
        cudnnBackendDescriptor_t choice = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set<cudnnBackendKnobType_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                    {(cudnnBackendKnobType_t)s.first});
        set<int64_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, {s.second});
        choices.push_back(finish(choice));
    }
    if (last != CUDNN_STATUS_SUCCESS) {
        return nullptr;
    }
    cudnnBackendDescriptor_t config = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    part(config, CUDNN_ATTR_ENGINECFG_ENGINE, {e});
    if (!choices.empty()) {
        part(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
    }
    finish(config);
    if (last != CUDNN_STATUS_SUCCESS) {
        return nullptr;
    }
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set<cudnnHandle_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {handle});
    part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {config});
    return finish(plan);
}

static cudnnStatus_t execute(cudnnBackendDescriptor_t plan, const std::vector<int64_t> &ids,
                             const std::vector<void *> &at, void *workspace) {
    cudnnBackendDescriptor_t pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, at);
    set<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace});
    finish(pack);
    keep(cudnnBackendExecute(handle, plan, pack));
    return last;
}

// ---- results

static int place(bool last_, int n, int c, int h, int w, int channels) {
    return last_ ? ((n * H + h) * W + w) * channels + c : ((n * channels + c) * H + h) * W + w;
}

static int tap(bool last_, int f, int c, int r, int s) {
    return last_ ? ((f * 3 + r) * 3 + s) * C + c : ((f * C + c) * 3 + r) * 3 + s;
}

// What the graph is to give, by the definition of a convolution.
static std::vector<float> naive(const form &f, const std::vector<float> &x,
                                const std::vector<float> &k, const std::vector<float> &b,
                                const std::vector<float> &z) {
    int from = f.backward ? F : C, to = f.backward ? C : F;
    std::vector<float> y((size_t)(N * to * H * W));
    for (int n = 0; n < N; n++)
        for (int o = 0; o < to; o++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++) {
                    float sum = 0;
                    for (int i = 0; i < from; i++)
                        for (int r = 0; r < 3; r++)
                            for (int s = 0; s < 3; s++) {
                                int at = f.backward ? h + 1 - r : h + r - 1;
                                int wt = f.backward ? w + 1 - s : w + s - 1;
                                if (at < 0 || at >= H || wt < 0 || wt >= W) continue;
                                int q =
                                    f.backward ? tap(f.last, i, o, r, s) : tap(f.last, o, i, r, s);
                                sum += x[place(f.last, n, i, at, wt, from)] * k[q];
                            }
                    int out = place(f.last, n, o, h, w, to);
                    sum = f.alpha * sum + (f.z ? z[out] : 0) + (f.bias ? b[o] : 0);
                    y[out] = f.relu && sum < 0 ? 0 : sum;
                }
    return y;
}

static void compare(const std::string &what, const form &f, int64_t engine,
                    const std::vector<std::pair<int, int64_t>> &settings, float unit = 1) {
    cudaDataType type = f.type == CUDNN_DATA_HALF ? CUDA_R_16F : CUDA_R_32F;
    int from = f.backward ? F : C, to = f.backward ? C : F;
    std::vector<float> x = values(N * from * H * W), k = values(F * C * 9), b = values(to),
                       z = values(N * to * H * W), rounded;
    for (float &v : x) v *= unit;
    for (float v : x) rounded.push_back(engine == 26 ? v / unit : v);
    device_array dx(x, type), dk(k, type), db(b, type), dz(z, type), dy(N * to * H * W, type),
        space(4096);
    begin();
    cudnnBackendDescriptor_t plan = plan_of(graph_of(f), engine, settings);
    std::vector<int64_t> ids = {X, K, Y};
    std::vector<void *> at = {dx.data, dk.data, dy.data};
    if (f.bias) ids.push_back(B), at.push_back(db.data);
    if (f.z) ids.push_back(Z), at.push_back(dz.data);
    check(plan && execute(plan, ids, at, space.data) == CUDNN_STATUS_SUCCESS, what + " runs");
    check(same(dy.get(), naive(f, rounded, k, b, z)), what);
    clear();
}

static void results() {
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, f16 = CUDNN_DATA_HALF;
    const form plain = {false, false, false, false, false, false, f32, f32, 1};
    form f = plain;
    compare("a convolution", f, 28, {{2, 1}, {12, -1}});
    f.alpha = 2;
    compare("with a factor", f, 0, {});
    f = plain;
    f.bias = true;
    compare("with a bias", f, 11, {{2, 0}, {3, 1}});
    f.z = true;
    compare("with a residual", f, 36, {});
    f.relu = true;
    compare("with relu", f, 28, {});
    f.last = true;
    compare("channels last", f, 57, {{2, 1}});
    f.type = f16;
    compare("halves", f, 26, {});
    f = plain;
    f.backward = true;
    compare("backward", f, 28, {{12, 8}});
    f.last = true;
    f.type = f16;
    compare("backward, halves, channels last", f, 0, {});
    // 1 + 2^-12 is a number of FP32, and 1 as a number of TF32.
    compare("FP32 stays", plain, 28, {}, 1.000244140625f);
    compare("tensor cores round", plain, 26, {}, 1.000244140625f);
}

// ---- refusals

static void refused(const std::string &what, const form &f, int64_t engine,
                    const std::vector<std::pair<int, int64_t>> &settings) {
    begin();
    cudnnBackendDescriptor_t graph = graph_of(f);
    check(last == CUDNN_STATUS_SUCCESS, what + ": the graph");
    plan_of(graph, engine, settings);
    check(last != CUDNN_STATUS_SUCCESS, what);
    clear();
}

static void refusals() {
    const form all = {true, true, true, false, false, false, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, 1};
    form f = all;
    refused("an engine that there is not", f, 3, {});
    refused("a setting that there is not", f, 28, {{5, 0}});
    refused("a choice that there is not", f, 28, {{2, 4}});
    refused("a setting twice", f, 28, {{2, 1}, {2, 1}});
    refused("an engine for channels last", f, 57, {});
    refused("an engine that would be compiled", f, 5, {});
    f.swapped = true;
    refused("the bias before the residual", f, 28, {});
    f = all;
    f.bias = false;
    refused("no bias", f, 28, {});
    f = all;
    f.z = f.bias = false;
    refused("relu alone", f, 28, {});
    f = all;
    f.backward = true;
    refused("more than a convolution backward", f, 28, {});
    f = all;
    f.type = f.inner = CUDNN_DATA_HALF;
    refused("rounding between", f, 28, {});
}

static void attributes() {
    const form f = {false, true, false, false, false, false, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, 1};
    int64_t number = 1, n = 0;
    float fraction = 1;
    begin();
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    check(cudnnBackendFinalize(d) != CUDNN_STATUS_SUCCESS, "attributes are missing");
    check(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1,
                                   &fraction) != CUDNN_STATUS_SUCCESS,
          "an attribute of another type");
    check(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, &number) !=
              CUDNN_STATUS_SUCCESS,
          "too many elements");
    check(cudnnBackendSetAttribute(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                   &number) != CUDNN_STATUS_SUCCESS,
          "an attribute of another descriptor");
    cudnnBackendDescriptor_t op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    check(cudnnBackendSetAttribute(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d) != CUDNN_STATUS_SUCCESS,
          "a part that is not finished");
    d = tensor(f, X, N, C, H, W);
    check(last == CUDNN_STATUS_SUCCESS, "a tensor");
    check(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number) !=
              CUDNN_STATUS_SUCCESS,
          "an attribute after the end");
    check(cudnnBackendSetAttribute(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d) != CUDNN_STATUS_SUCCESS,
          "a part of another kind");
    d = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    check(cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                   &number) != CUDNN_STATUS_SUCCESS,
          "a question before the end");
    clear();
}

static void addresses() {
    const form f = {false, true, false, false, false, false, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, 1};
    device_array x(N * C * H * W + 4), k(F * C * 9), b(F), y(N * F * H * W), space(4096);
    auto run = [&](const char *what, bool good, const std::vector<int64_t> &ids,
                   const std::vector<void *> &at, void *workspace) {
        begin();
        cudnnBackendDescriptor_t plan = plan_of(graph_of(f), 28, {});
        check(last == CUDNN_STATUS_SUCCESS, std::string(what) + ": the plan");
        check((execute(plan, ids, at, workspace) == CUDNN_STATUS_SUCCESS) == good, what);
        clear();
    };
    run("all tensors", true, {X, K, B, Y}, {x.data, k.data, b.data, y.data}, space.data);
    run("a tensor is missing", false, {X, K, Y}, {x.data, k.data, y.data}, space.data);
    run("a tensor too many", false, {X, K, B, Y, Z}, {x.data, k.data, b.data, y.data, y.data},
        space.data);
    run("a tensor twice", false, {X, K, B, X}, {x.data, k.data, b.data, y.data}, space.data);
    run("one that is not aligned", false, {X, K, B, Y}, {x.f() + 1, k.data, b.data, y.data},
        space.data);
    run("no workspace", false, {X, K, B, Y}, {x.data, k.data, b.data, y.data}, nullptr);
}

int main() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudnnCreate(&handle);
    cudnnSetStream(handle, stream);
    results();
    refusals();
    attributes();
    addresses();
    cudnnDestroy(handle);
    cudaStreamDestroy(stream);
    return summary();
}
