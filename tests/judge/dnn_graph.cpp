// CPU bodies of cuDNN's graph API, as far as convolutions need it: descriptors with the vendor's
// rules for attributes. A descriptor that another one refers to has to live as long as that is
// used.
#include "dnn_graph.h"

#include <stdio.h>

#include <algorithm>
#include <string>

using namespace judge_graph;

static std::set<descriptor *> living;

descriptor *judge_graph::of(cudnnBackendDescriptor_t d) {
    descriptor *found = static_cast<descriptor *>(d);
    if (!found || !living.count(found)) {
        judge_fault("%p is no descriptor of cuDNN's graph API", d);
    }
    return found;
}

descriptor *judge_graph::descriptor::at(int name, int64_t i) const {
    return of(get<cudnnBackendDescriptor_t>(name, i));
}

namespace {

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return 4;  // float and enumerations
    }
}

// ---- which attributes a descriptor has

struct rule {
    int name;
    cudnnBackendAttributeType_t type;
    int64_t least, most;  // elements; least 0: it may be missing
    int descriptor = -1;  // what kind each element is
};

const std::vector<rule> &rules_of(cudnnBackendDescriptorType_t type) {
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR, i64 = CUDNN_TYPE_INT64;
    const int tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
    static const std::map<int, std::vector<rule>> all = {
        {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
         {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
          {CUDNN_ATTR_TENSOR_DIMENSIONS, i64, 4, 5},
          {CUDNN_ATTR_TENSOR_STRIDES, i64, 4, 5},
          {CUDNN_ATTR_TENSOR_UNIQUE_ID, i64, 1, 1},
          {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, i64, 1, 1},
          {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1}}},
        {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
         {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
          {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
          {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, i64, 1, 1},
          {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i64, 2, 3},
          {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i64, 2, 3},
          {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i64, 2, 3},
          {CUDNN_ATTR_CONVOLUTION_DILATIONS, i64, 2, 3}}},
        {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
         {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
          {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1}}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part, 1, 1,
           CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1}}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part, 1, 1,
           CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1}}},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part, 1, 1,
           CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
          {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part, 1, 1, tensor},
          {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part, 0, 1, tensor},
          {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part, 1, 1, tensor}}},
        {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
          {CUDNN_ATTR_OPERATIONGRAPH_OPS, part, 1, 8}}},
        {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
         {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, part, 1, 1,
           CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
          {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1}}},
        {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
         {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, part, 1, 1, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
          {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, i64, 1, 1}}},
        {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
         {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1},
          {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, i64, 1, 1}}},
        {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
         {{CUDNN_ATTR_ENGINECFG_ENGINE, part, 1, 1, CUDNN_BACKEND_ENGINE_DESCRIPTOR},
          {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, part, 0, 64, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR}}},
        {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
         {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
          {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, part, 1, 1,
           CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}}},
        {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
         {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i64, 1, 16},
          {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 16},
          {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 0, 1}}},
    };
    static const std::vector<rule> none;
    auto found = all.find(type);
    return found == all.end() ? none : found->second;
}

const rule *rule_of(const descriptor &d, int name) {
    for (const rule &r : rules_of(d.type)) {
        if (r.name == name) {
            return &r;
        }
    }
    return nullptr;
}

// An offer keeps its engine's number and settings as plain values until it is asked for them.
enum { OFFERED = -2, OFFERED_GRAPH = -3 };

// What a configuration is, whoever made it: engine number, then types and choices.
std::vector<int64_t> text_of(const descriptor &config) {
    std::vector<int64_t> text;
    if (config.has(OFFERED)) {
        for (int64_t i = 0; i < config.count(OFFERED); i++) {
            text.push_back(config.get<int64_t>(OFFERED, i));
        }
        return text;
    }
    text.push_back(
        config.at(CUDNN_ATTR_ENGINECFG_ENGINE)->get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    for (int64_t i = 0; i < config.count(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
        const descriptor &s = *config.at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        text.push_back(s.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
        text.push_back(s.get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    }
    return text;
}

descriptor *graph_of(const descriptor &config) {
    return config.has(OFFERED)
               ? config.at(OFFERED_GRAPH)
               : config.at(CUDNN_ATTR_ENGINECFG_ENGINE)->at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

// ---- finalising

bool tensor_good(const descriptor &d) {
    int64_t rank = d.count(CUDNN_ATTR_TENSOR_DIMENSIONS);
    bool good = rank == d.count(CUDNN_ATTR_TENSOR_STRIDES);
    for (int64_t i = 0; good && i < rank; i++) {
        good = d.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i) > 0 &&
               d.get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i) > 0;
    }
    int64_t alignment = d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    return good && alignment > 0 && (alignment & (alignment - 1)) == 0;
}

bool conv_good(const descriptor &d) {
    int64_t axes = d.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    bool good = axes == 2 || axes == 3;
    for (int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                     CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
        bool padding = name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS ||
                       name == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS;
        good = good && d.count(name) == axes;
        for (int64_t i = 0; good && i < axes; i++) {
            good = d.get<int64_t>(name, i) >= (padding ? 0 : 1);
        }
    }
    // The bodies know one padding an axis.
    return good && d.attributes.at(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS).bytes ==
                       d.attributes.at(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS).bytes;
}

bool pointwise_good(const descriptor &op) {
    cudnnPointwiseMode_t mode = op.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                                    ->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    bool two = op.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    return mode == (two ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD);
}

bool pack_good(const descriptor &d) {
    std::set<int64_t> ids;
    int64_t n = d.count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int64_t i = 0; i < n; i++) {
        ids.insert(d.get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i));
    }
    return (int64_t)ids.size() == n && d.count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) == n;
}

cudnnStatus_t finalize_engine(const descriptor &d) {
    graph g;
    read_graph(*d.at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), &g);
    const engine *e = engine_of(d.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    return e && engine_works(*e, g) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t finalize_config(const descriptor &d) {
    const descriptor &of = *d.at(CUDNN_ATTR_ENGINECFG_ENGINE);
    const engine *e = engine_of(of.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    std::set<int> types;
    for (int64_t i = 0; i < d.count(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
        const descriptor &s = *d.at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        int type = s.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
        int64_t value = s.get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
        auto range = e->settings.find(type);
        if (range == e->settings.end() || value < range->second.first ||
            value > range->second.second || !types.insert(type).second) {
            return CUDNN_STATUS_BAD_PARAM;
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(const descriptor &d) {
    const engine *e = engine_of(text_of(*d.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))[0]);
    if (!e->behavior.empty()) {
        fprintf(stderr, "judge: engine %d would be compiled\n", e->number);
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(const descriptor &d) {
    graph g;
    bool good = true;
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: good = tensor_good(d); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: good = conv_good(d); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        good = read_conv(d, &g);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: good = pointwise_good(d); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: good = read_graph(d, &g); break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: good = pack_good(d); break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finalize_config(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
    default: break;
    }
    return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// ---- questions

// Hands values out, as many as there is room for.
template <class T>
cudnnStatus_t hand_out(const std::vector<T> &values, int64_t room, int64_t *count, void *to) {
    if (count) {
        *count = room ? std::min<int64_t>(room, (int64_t)values.size()) : (int64_t)values.size();
    }
    for (int64_t i = 0; i < room && i < (int64_t)values.size(); i++) {
        static_cast<T *>(to)[i] = values[(size_t)i];
    }
    return CUDNN_STATUS_SUCCESS;
}

// Makes finalised descriptors of those that the caller has made.
template <class Fill>
cudnnStatus_t fill(cudnnBackendDescriptorType_t type, size_t n, int64_t room, int64_t *count,
                   void *to, Fill each) {
    if (count) {
        *count = room ? std::min<int64_t>(room, (int64_t)n) : (int64_t)n;
    }
    for (int64_t i = 0; i < room && i < (int64_t)n; i++) {
        descriptor *d = of(static_cast<cudnnBackendDescriptor_t *>(to)[i]);
        if (d->type != type || d->finalized) {
            return CUDNN_STATUS_BAD_PARAM;
        }
        each(d, (size_t)i);
        d->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_offers(const descriptor &d, int64_t room, int64_t *count, void *to) {
    graph g;
    descriptor *of_graph = d.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    read_graph(*of_graph, &g);
    std::vector<offer> list =
        offers_of(g, d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
    return fill(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, list.size(), room, count, to,
                [&](descriptor *config, size_t i) {
                    std::vector<int64_t> text = {list[i].number};
                    for (auto &s : list[i].settings) {
                        text.push_back(s.first);
                        text.push_back(s.second);
                    }
                    config->put<int64_t>(OFFERED, CUDNN_TYPE_INT64, text);
                    config->put<cudnnBackendDescriptor_t>(
                        OFFERED_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, {of_graph});
                });
}

cudnnStatus_t get_settings(const descriptor &config, int64_t room, int64_t *count, void *to) {
    std::vector<int64_t> text = text_of(config);
    return fill(
        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, text.size() / 2, room, count, to,
        [&](descriptor *s, size_t i) {
            s->put<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                           {(cudnnBackendKnobType_t)text[1 + 2 * i]});
            s->put<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, {text[2 + 2 * i]});
        });
}

cudnnStatus_t get_engine(const descriptor &config, int64_t room, int64_t *count, void *to) {
    return fill(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1, room, count, to, [&](descriptor *e, size_t) {
        e->put<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, {graph_of(config)});
        e->put<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {text_of(config)[0]});
    });
}

cudnnStatus_t get_workspace(const descriptor &plan, int64_t room, int64_t *count, void *to) {
    const descriptor &config = *plan.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    graph g;
    read_graph(*graph_of(config), &g);
    int64_t bytes = (int64_t)engine_workspace(*engine_of(text_of(config)[0]), g);
    return hand_out<int64_t>({bytes}, room, count, to);
}

cudnnStatus_t get_engine_fact(const descriptor &d, int name, int64_t room, int64_t *count,
                              void *to) {
    const engine &e = *engine_of(d.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    switch (name) {
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return hand_out<int64_t>({e.number}, room, count, to);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return hand_out(e.notes, room, count, to);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: return hand_out(e.behavior, room, count, to);
    default: return CUDNN_STATUS_BAD_PARAM;
    }
}

cudnnStatus_t get(const descriptor &d, int name, int64_t room, int64_t *count, void *to) {
    switch (d.type) {
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return get_engine_fact(d, name, room, count, to);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return name == CUDNN_ATTR_ENGINEHEUR_RESULTS ? get_offers(d, room, count, to)
                                                     : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return name == CUDNN_ATTR_ENGINECFG_ENGINE         ? get_engine(d, room, count, to)
               : name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES ? get_settings(d, room, count, to)
                                                           : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE ? get_workspace(d, room, count, to)
                                                                : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
        return name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE
                   ? hand_out<cudnnBackendKnobType_t>({d.get<cudnnBackendKnobType_t>(name)}, room,
                                                      count, to)
                   : hand_out<int64_t>({d.get<int64_t>(name)}, room, count, to);
    default: return CUDNN_STATUS_NOT_SUPPORTED;
    }
}

// What an attribute's answer is typed as.
cudnnBackendAttributeType_t answer_type(int name) {
    switch (name) {
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return CUDNN_TYPE_NUMERICAL_NOTE;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: return CUDNN_TYPE_BEHAVIOR_NOTE;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE: return CUDNN_TYPE_KNOB_TYPE;
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: return CUDNN_TYPE_BACKEND_DESCRIPTOR;
    default: return CUDNN_TYPE_INT64;
    }
}

void tell(const std::vector<int64_t> &text) {
    std::map<int64_t, int64_t> settings;
    for (size_t i = 1; i < text.size(); i += 2) {
        settings[text[i]] = text[i + 1];
    }
    std::string name = "engine:" + std::to_string(text[0]);
    for (auto &s : settings) {
        name += "," + std::to_string(s.first) + "=" + std::to_string(s.second);
    }
    if (judge_env().report_launches) {
        fprintf(stderr, "judge: cudnnBackendExecute algorithm %s\n", name.c_str());
    }
}

}  // namespace

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *to) {
    *to = nullptr;
    DNN_CALL(CUDNN_STATUS_ALLOC_FAILED);
    if (rules_of(type).empty()) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    descriptor *d = new descriptor;
    d->type = type;
    living.insert(d);
    judge_ledger("cudnn graph descriptor", 1);
    *to = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t which) {
    bool fails = judge_entry(__func__);
    descriptor *d = of(which);
    living.erase(d);
    delete d;
    judge_ledger("cudnn graph descriptor", -1);
    return fails ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t which,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
    DNN_CALL(CUDNN_STATUS_INTERNAL_ERROR);
    descriptor *d = of(which);
    const rule *r = rule_of(*d, name);
    if (!r || r->type != type || count < 1 || count < r->least || count > r->most || !values ||
        d->finalized) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    for (int64_t i = 0; i < count && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++) {
        const descriptor *part = of(static_cast<const cudnnBackendDescriptor_t *>(values)[i]);
        if (!part->finalized || (r->descriptor >= 0 && part->type != r->descriptor)) {
            return CUDNN_STATUS_BAD_PARAM;
        }
    }
    const char *bytes = static_cast<const char *>(values);
    if (type == CUDNN_TYPE_HANDLE && !*static_cast<const cudnnHandle_t *>(values)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    d->attributes[name] = {type, count,
                           std::vector<char>(bytes, bytes + (size_t)count * size_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t which) {
    DNN_CALL(CUDNN_STATUS_INTERNAL_ERROR);
    descriptor *d = of(which);
    if (d->finalized) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    for (const rule &r : rules_of(d->type)) {
        if (r.least > 0 && !d->has(r.name)) {
            return CUDNN_STATUS_BAD_PARAM;
        }
    }
    cudnnStatus_t status = finalize(*d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t which,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t *count, void *to) {
    DNN_CALL(CUDNN_STATUS_INTERNAL_ERROR);
    const descriptor *d = of(which);
    if (!d->finalized || type != answer_type(name) || room < 0 || (room && !to)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return get(*d, name, room, count, to);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t which,
                                  cudnnBackendDescriptor_t addresses) {
    DNN_CALL(CUDNN_STATUS_EXECUTION_FAILED);
    const descriptor *plan = of(which), *pack = of(addresses);
    if (!handle || !plan->finalized || !pack->finalized ||
        plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    const descriptor &config = *plan->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const engine &e = *engine_of(text_of(config)[0]);
    graph g;
    read_graph(*graph_of(config), &g);
    std::map<int64_t, void *> data;
    for (int64_t i = 0; i < pack->count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); i++) {
        data[pack->get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
            pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    }
    size_t bytes = engine_workspace(e, g);
    void *workspace = pack->has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                          ? pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                          : nullptr;
    if (!operands_good(g, data) || (bytes && !workspace)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    if (bytes && !judge_in_device(workspace, bytes)) {
        judge_fault(
            "cudnnBackendExecute: the workspace at %p with %zu bytes is not inside live "
            "device memory",
            workspace, bytes);
    }
    bool rounds = e.number == 26 && !g.is_half();
    tell(text_of(config));
    cudaError_t error = judge_enqueue(handle->stream, [=] {
        if (bytes) {
            memset(workspace, 0xFF, bytes);
        }
        compute(g, data, rounds);
    });
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
