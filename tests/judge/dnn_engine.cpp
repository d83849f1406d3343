// Graphs of a convolution and what is added to it, the engines that pretend to compute them, and
// what they compute.
#include <stdio.h>

#include <algorithm>

#include "dnn_graph.h"

namespace judge_graph {

// ---- tensors and graphs

tensor tensor_of(const descriptor &d) {
    cudnnDataType_t type = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    tensor t = {type == CUDNN_DATA_HALF       ? CUDA_R_16F
                : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
                                              : CUDA_R_32F,
                (int)d.count(CUDNN_ATTR_TENSOR_DIMENSIONS),
                {1, 1, 1, 1, 1},
                {0, 0, 0, 0, 0},
                d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)};
    for (int i = 0; i < t.rank; i++) {
        int to = i < 2 ? i : i + 5 - t.rank;
        t.size[to] = d.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.stride[to] = d.get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return t;
}

static bool fits(const judge_conv &s, const tensor &x, const tensor &w, const tensor &y) {
    bool good = x.size[0] == y.size[0] && w.size[0] == s.out_channels && x.rank == y.rank &&
                x.rank == w.rank && s.groups > 0 && x.size[1] % w.size[1] == 0 &&
                w.size[0] % s.groups == 0;
    for (int d = 0; d < 3; d++) {
        long room = x.size[d + 2] + 2 * s.pad[d] - s.dilation[d] * (w.size[d + 2] - 1) - 1;
        good = good && room >= 0 && y.size[d + 2] == room / s.stride[d] + 1;
    }
    return good;
}

bool read_conv(const descriptor &op, graph *g) {
    g->backward = op.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    auto part = [&](int forward, int backward) {
        return op.at(g->backward ? backward : forward);
    };
    const descriptor &c = *part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
    tensor data = tensor_of(*part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
    tensor out = tensor_of(*part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
    g->w = tensor_of(*part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W));
    g->alpha = op.get<float>(g->backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                                         : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
    g->beta = op.get<float>(g->backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
                                        : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    g->x = g->backward ? out : data;
    g->y = g->backward ? data : out;
    judge_conv &s = g->shape;
    s = {(int)data.size[0],
         (int)(data.size[1] / g->w.size[1]),
         (int)data.size[1],
         (int)out.size[1],
         {1, 1, 1},
         {1, 1, 1},
         {1, 1, 1},
         {0, 0, 0},
         {1, 1, 1},
         {1, 1, 1},
         c.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION};
    int axes = (int)c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    for (int d = 0; d < 3; d++) {
        s.in[d] = (int)data.size[d + 2];
        s.out[d] = (int)out.size[d + 2];
        s.filter[d] = (int)g->w.size[d + 2];
    }
    for (int i = 0, d = 3 - axes; i < axes; i++, d++) {
        s.pad[d] = (int)c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        s.stride[d] = (int)c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        s.dilation[d] = (int)c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    }
    return axes == data.rank - 2 && fits(s, data, g->w, out) && data.type == g->w.type &&
           c.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT;
}

static bool broadcasts(const tensor &b, const tensor &y) {
    for (int i = 0; i < 5; i++) {
        if (b.size[i] != y.size[i] && b.size[i] != 1) {
            return false;
        }
    }
    return true;
}

bool read_graph(const descriptor &d, graph *g) {
    int64_t ops = d.count(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const descriptor &conv = *d.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    *g = {};
    if (conv.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || !read_conv(conv, g)) {
        return false;
    }
    std::set<int64_t> ids = {g->x.id, g->w.id, g->y.id};
    bool good = !g->x.is_virtual && !g->w.is_virtual && (g->beta == 0 || ops == 1);
    for (int64_t i = 1; i < ops; i++) {
        const descriptor &op = *d.at(CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
        if (op.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
            return false;
        }
        link l = {!op.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), {}, {}};
        tensor from = tensor_of(*op.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        good = good && from.id == g->result().id && g->result().is_virtual;
        l.y = tensor_of(*op.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        good = good && l.y.same_size(from) && ids.insert(l.y.id).second;
        if (!l.relu) {
            l.b = tensor_of(*op.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
            good = good && broadcasts(l.b, l.y) && !l.b.is_virtual && ids.insert(l.b.id).second;
        }
        g->links.push_back(l);
    }
    return good && (int64_t)ids.size() >= 3 && !g->result().is_virtual;
}

// ---- engines

static const std::vector<engine> &engines() {
    static const std::vector<engine> all = {
        {0, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}, {}},
        {5, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, {}},
        {11, {}, {}, {{2, {0, 4}}, {3, {0, 1}}}},
        {26, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, {{2, {0, 8}}, {13, {0, 2}}}},
        {28, {}, {}, {{2, {0, 3}}, {12, {-1, 8}}}},
        {33, {}, {}, {}},
        {36, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, {}, {}},
        {57, {}, {}, {{2, {0, 1}}}},
        {70, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, {}},
    };
    return all;
}

const engine *engine_of(int64_t number) {
    for (const engine &e : engines()) {
        if (e.number == number) {
            return &e;
        }
    }
    return nullptr;
}

bool engine_works(const engine &e, const graph &g) {
    if (e.number == 5) {
        return true;
    }
    const judge_conv &s = g.shape;
    bool first = g.is_layout(channels_first), last = g.is_layout(channels_last);
    if (!g.is_compiled() || (!first && !last)) {
        return false;
    }
    switch (e.number) {
    case 11: return first;
    case 36: {
        bool plain = g.x.rank == 4 && s.filter[1] == 3 && s.filter[2] == 3 && s.groups == 1;
        for (int d = 0; d < 3; d++) {
            plain = plain && s.stride[d] == 1 && s.dilation[d] == 1;
        }
        return plain && first && !g.backward;
    }
    case 57: return last;
    default: return true;
    }
}

size_t engine_workspace(const engine &e, const graph &g) {
    switch (e.number) {
    case 26: return (size_t)(g.x.count() + g.w.count()) * 4;
    case 28: return 256 + (size_t)g.w.count() / (size_t)g.w.size[0] * 8;
    case 33: return (size_t)1 << 31;
    default: return 0;
    }
}

std::vector<offer> offers_of(const graph &g, cudnnBackendHeurMode_t mode) {
    static const std::vector<offer> best = {{26, {{2, 8}, {13, 1}}},
                                            {5, {}},
                                            {70, {}},
                                            {33, {}},
                                            {28, {{12, -1}, {2, 1}}},
                                            {26, {{2, 1}, {13, 0}}},
                                            {36, {}},
                                            {11, {{2, 4}, {3, 0}}},
                                            {57, {{2, 1}}},
                                            {11, {{2, 2}, {3, 1}}}};
    static const std::vector<offer> fallback = {{70, {}}, {11, {}}, {0, {}}};
    std::vector<offer> list;
    for (const offer &o : mode == CUDNN_HEUR_MODE_FALLBACK ? fallback : best) {
        if (engine_works(*engine_of(o.number), g)) {
            list.push_back(o);
        }
    }
    return list;
}

// ---- running

template <class Visit>
void for_elements(const tensor &t, Visit visit) {
    size_t dense = 0;
    for (long n = 0; n < t.size[0]; n++) {
        for (long c = 0; c < t.size[1]; c++) {
            for (long d = 0; d < t.size[2]; d++) {
                for (long h = 0; h < t.size[3]; h++) {
                    for (long w = 0; w < t.size[4]; w++) {
                        const long at[] = {n, c, d, h, w};
                        visit(dense++, at);
                    }
                }
            }
        }
    }
}

static size_t offset(const tensor &t, const long at[5]) {
    long sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += t.size[i] == 1 ? 0 : at[i] * t.stride[i];
    }
    return (size_t)sum;
}

static std::vector<float> load(const tensor &t, const void *data, bool tf32) {
    std::vector<float> values((size_t)t.count());
    for_elements(t, [&](size_t i, const long *at) {
        float value = judge_load(data, offset(t, at), t.type);
        values[i] = tf32 ? judge_tf32(value) : value;
    });
    return values;
}

void compute(const graph &g, const std::map<int64_t, void *> &data, bool tf32) {
    std::vector<float> x = load(g.x, data.at(g.x.id), tf32), w = load(g.w, data.at(g.w.id), tf32);
    std::vector<float> y((size_t)g.y.count());
    if (g.beta != 0) {
        y = load(g.y, data.at(g.y.id), false);
    }
    if (g.backward) {
        judge_conv_backward(g.shape, g.alpha, w.data(), x.data(), g.beta, y.data());
    } else {
        judge_conv_forward(g.shape, g.alpha, x.data(), w.data(), g.beta, y.data());
    }
    for (const link &l : g.links) {
        for_elements(l.y, [&](size_t i, const long *at) {
            // A NaN stays, so that unset memory is not hidden behind a ReLU.
            y[i] = !l.relu    ? y[i] + judge_load(data.at(l.b.id), offset(l.b, at), l.b.type)
                   : y[i] < 0 ? 0.0f
                              : y[i];
        });
    }
    const tensor &to = g.result();
    for_elements(to, [&](size_t i, const long *at) {
        judge_store(data.at(to.id), offset(to, at), to.type, y[i]);
    });
}

static bool operand_good(const tensor &t, const std::map<int64_t, void *> &data) {
    auto found = data.find(t.id);
    void *p = found == data.end() ? nullptr : found->second;
    if (!p || !judge_is_device(p) || (uintptr_t)p % (uintptr_t)t.alignment) {
        fprintf(stderr,
                "judge: cudnnBackendExecute: tensor %lld at %p is not device memory aligned to "
                "%lld bytes\n",
                (long long)t.id, p, (long long)t.alignment);
        return false;
    }
    if (!judge_in_device(p, t.bytes())) {
        judge_fault(
            "cudnnBackendExecute: tensor %lld at %p with %zu bytes is not inside live "
            "device memory",
            (long long)t.id, p, t.bytes());
    }
    return true;
}

bool operands_good(const graph &g, const std::map<int64_t, void *> &data) {
    bool good =
        operand_good(g.x, data) && operand_good(g.w, data) && operand_good(g.result(), data);
    size_t n = 3;
    for (const link &l : g.links) {
        good = good && (l.relu || operand_good(l.b, data));
        n += !l.relu;
    }
    return good && data.size() == n;
}

}  // namespace judge_graph
