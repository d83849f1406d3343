// What the parts of cuDNN's graph API share: descriptors, the graphs that they describe, and the
// engines that compute them.
#ifndef JUDGE_DNN_GRAPH_H
#define JUDGE_DNN_GRAPH_H

#include <map>
#include <set>
#include <vector>

#include "conv.h"
#include "dnn.h"

namespace judge_graph {

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, attribute> attributes;

    bool has(int name) const { return attributes.count(name) != 0; }
    int64_t count(int name) const { return has(name) ? attributes.at(name).count : 0; }
    template <class T>
    T get(int name, int64_t i = 0) const {
        T value;
        memcpy(&value, attributes.at(name).bytes.data() + (size_t)i * sizeof value, sizeof value);
        return value;
    }
    template <class T>
    void put(int name, cudnnBackendAttributeType_t of, const std::vector<T> &values) {
        const char *data = reinterpret_cast<const char *>(values.data());
        attributes[name] = {of, (int64_t)values.size(),
                            std::vector<char>(data, data + values.size() * sizeof(T))};
    }
    descriptor *at(int name, int64_t i = 0) const;
};

// A descriptor that is alive; anything else is a fault.
descriptor *of(cudnnBackendDescriptor_t d);

struct tensor {
    cudaDataType type;
    int rank;
    long size[5], stride[5];  // [n, c, d, h, w]
    int64_t id, alignment;
    bool is_virtual;

    long count() const { return size[0] * size[1] * size[2] * size[3] * size[4]; }
    size_t bytes() const {
        long last = 0;
        for (int i = 0; i < 5; i++) {
            last += (size[i] - 1) * stride[i];
        }
        return (size_t)(last + 1) * judge_type_bytes(type);
    }
    bool same_size(const tensor &t) const { return memcmp(size, t.size, sizeof size) == 0; }
    bool is_dense(const int order[5]) const {
        long next = 1;
        for (int i = 4; i >= 0; i--) {
            if (size[order[i]] != 1 && stride[order[i]] != next) {
                return false;
            }
            next *= size[order[i]];
        }
        return true;
    }
};

const int channels_first[] = {0, 1, 2, 3, 4}, channels_last[] = {0, 2, 3, 4, 1};

// One pointwise operation of a chain: what is added, or relu.
struct link {
    bool relu;
    tensor b, y;
};

struct graph {
    judge_conv shape;
    bool backward;
    float alpha, beta;
    tensor x, w, y;  // y: the convolution's result; x the operand, also of a backward one
    std::vector<link> links;

    const tensor &result() const { return links.empty() ? y : links.back().y; }
    bool is_half() const { return x.type != CUDA_R_32F; }
    bool is_layout(const int order[5]) const {
        return x.is_dense(order) && w.is_dense(order) && result().is_dense(order);
    }
    // What engines are compiled for: a residual and a bias, in this order, then relu, on numbers
    // that were not rounded.
    bool is_compiled() const {
        size_t at = 0;
        auto bias = [&] {
            return at < links.size() && !links[at].relu && links[at].b.count() == y.size[1];
        };
        if (links.empty()) {
            return true;
        }
        bool exact = y.type == CUDA_R_32F;
        for (const link &l : links) {
            exact = exact && (!l.y.is_virtual || l.y.type == CUDA_R_32F);
        }
        if (!bias() && !links[at].relu && links[at].b.same_size(y)) {
            at++;
        }
        if (!exact || backward || !bias()) {
            return false;
        }
        at++;
        return at == links.size() || (links[at].relu && at + 1 == links.size());
    }
};

// What a pretended engine is: its notes, the least and most of each setting.
struct engine {
    int number;
    std::vector<cudnnBackendNumericalNote_t> notes;
    std::vector<cudnnBackendBehaviorNote_t> behavior;
    std::map<int, std::pair<int, int>> settings;
};

// What heuristics offer, best first.
struct offer {
    int number;
    std::vector<std::pair<int, int>> settings;
};

// ---- dnn_engine.cpp

tensor tensor_of(const descriptor &d);

// The convolution that an operation is; false: its sizes do not fit.
bool read_conv(const descriptor &op, graph *g);

// A chain that begins with a convolution, every result but the last virtual and read by the next.
bool read_graph(const descriptor &d, graph *g);

// The engine of this number, or NULL.
const engine *engine_of(int64_t number);

bool engine_works(const engine &e, const graph &g);
size_t engine_workspace(const engine &e, const graph &g);
std::vector<offer> offers_of(const graph &g, cudnnBackendHeurMode_t mode);

// Whether every tensor has an address that it may have; `data` by the tensors' numbers.
bool operands_good(const graph &g, const std::map<int64_t, void *> &data);

void compute(const graph &g, const std::map<int64_t, void *> &data, bool tf32);

}  // namespace judge_graph

#endif
