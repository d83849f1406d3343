// onnx_ml.c - operators of ai.onnx.ml that are algebra of tensors: linear models, kernels, scalers,
// and what picks and encodes features. Their numbers are attributes.
#include "onnx.h"

// ---- attributes ----

// A list of numbers as a constant [count]; NULL without one.
static ox_const *numbers_of(ox *o, ox_node *n, const char *name) {
    const ox_attr *a = ox_find(o, n, name);
    if (!a || !a->a->n_floats) {
        return NULL;
    }
    if (a->a->n_floats > OX_FOLD_LIMIT) {
        ox_die(o, n, "attribute '%s' has %zu numbers", name, a->a->n_floats);
    }
    int64_t count = (int64_t)a->a->n_floats;
    ox_const *c = ox_make(o, CLI_F32, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        ox_setf(c, i, (double)a->a->floats[i]);
    }
    return c;
}

static ox_const *whole_numbers_of(ox *o, ox_node *n, const char *name) {
    ox_list list;
    if (!ox_ints(o, n, name, &list) || !list.n) {
        return NULL;
    }
    int64_t count = list.n;
    ox_const *c = ox_make(o, CLI_I64, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        ox_seti(c, i, list.v[i]);
    }
    return c;
}

static ox_value *constant(ox *o, ox_node *n, const char *suffix, const ox_const *c) {
    return ox_constant(o, ox_base(o, n), suffix, c);
}

// What is given for each feature, or once for all.
static ox_value *per_feature(ox *o, ox_node *n, const char *name, const ox_const *c,
                             const ox_value *x) {
    if (c->count != 1 && (!x->rank || c->count != x->dims[x->rank - 1])) {
        ox_die(o, n, "attribute '%s' has %lld numbers, not one a feature", name,
               (long long)c->count);
    }
    return constant(o, n, ".by_feature", c);
}

// A matrix [R,C] that stands there row by row, as [C,R].
static ox_value *turned(ox *o, ox_node *n, const char *suffix, const ox_const *c, int64_t columns) {
    int64_t dims[2] = {columns, c->count / columns}, strides[2] = {1, columns};
    const ox_const *t = ox_view(o, c, 2, dims, strides, 0);
    if (!t) {
        ox_unsupported(o, n, "operator '%s' with too many numbers", n->op);
    }
    return constant(o, n, suffix, t);
}

// ---- rows of features ----

static ox_value *floats(ox *o, ox_node *n, ox_value *x) {
    x = ox_is_float(x->dtype) ? x : ox_cast_to(o, n, ".floats", x, CLI_F32);
    ox_need_shape(o, n, x);
    return x;
}

// The input as floats [N,F].
static ox_value *rows(ox *o, ox_node *n) {
    ox_value *x = floats(o, n, ox_in(o, n, 0));
    if (x->rank == 1) {
        x = ox_with_int(o, n, "Unsqueeze", ".row", x, "axes", 0);
        ox_need_shape(o, n, x);
    }
    if (x->rank != 2) {
        ox_die(o, n, "operator '%s' on a tensor of %d axes", n->op, x->rank);
    }
    return x;
}

static void convert_scaler(ox *o, ox_node *n) {
    ox_value *x = floats(o, n, ox_in(o, n, 0));
    const ox_const *offset = numbers_of(o, n, "offset"), *scale = numbers_of(o, n, "scale");
    if (!offset || !scale) {
        ox_die(o, n, "Scaler without offset or scale");
    }
    x = ox_binary(o, n, "Sub", ".centered", x, per_feature(o, n, "offset", offset, x));
    ox_need_shape(o, n, x);
    ox_end_binary(o, n, "Mul", x, per_feature(o, n, "scale", scale, x));
}

static void convert_normalizer(ox *o, ox_node *n) {
    ox_value *x = rows(o, n);
    const char *norm = ox_string(o, n, "norm", "MAX");
    if (!strcmp(norm, "L1") || !strcmp(norm, "L2")) {
        ox_begin(o);
        ox_arg(o, x);
        ox_set_int(o, "axis", -1);
        ox_set_int(o, "p", norm[1] - '0');
        ox_end_node(o, n, "LpNormalization");
        return;
    }
    if (strcmp(norm, "MAX")) {
        ox_die(o, n, "Normalizer with an unknown norm");
    }
    // What has no largest number but 0 stays as it is.
    int64_t axis = 1;
    ox_value *zero = ox_number(o, n, ".zero", x->dtype, 0);
    ox_value *one = ox_number(o, n, ".one", x->dtype, 1);
    ox_value *most = ox_with_list(o, n, "ReduceMax", ".max", x, "axes", (ox_list){1, &axis, NULL});
    ox_value *none = ox_truth(o, n, "Equal", ".none", most, zero);
    ox_end_binary(o, n, "Div", x, ox_where(o, n, ".divisor", none, one, most));
}

static void bind_cast(ox *o, ox_node *n, ox_value *v, cli_dtype to) {
    ox_begin(o);
    ox_arg(o, v);
    ox_set_word(o, "to", cli_dtype_name(to));
    ox_bind(o, n, 0, ox_end(o, "Cast", ox_first(o, n), to));
}

static void convert_binarizer(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    double threshold = ox_float(o, n, "threshold", 0);
    ox_value *number = ox_number(o, n, ".threshold", x->dtype, threshold);
    bind_cast(o, n, ox_truth(o, n, "Greater", ".above", x, number), x->dtype);
}

// Whether an element is the one that stands for a missing number.
static ox_value *is_missing(ox *o, ox_node *n, ox_value *x, bool whole) {
    const ox_attr *a = ox_find(o, n, whole ? "replaced_value_int64" : "replaced_value_float");
    double number = !a ? 0 : whole ? (double)a->a->i : (double)a->a->f;
    if (number != number) {
        ox_value *v = ox_unary(o, n, "IsNaN", ".missing", x);
        v->dtype = CLI_BOOL;
        return v;
    }
    return ox_truth(o, n, "Equal", ".missing", x, ox_number(o, n, ".replaced", x->dtype, number));
}

static void convert_imputer(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    bool whole = !ox_is_float(x->dtype);
    const char *name = whole ? "imputed_value_int64s" : "imputed_value_floats";
    const ox_const *c = whole ? whole_numbers_of(o, n, name) : numbers_of(o, n, name);
    if (!c) {
        ox_die(o, n, "Imputer without %s", name);
    }
    ox_need_shape(o, n, x);
    ox_value *by = per_feature(o, n, name, ox_cast(o, c, x->dtype), x);
    ox_value *missing = is_missing(o, n, x, whole);
    ox_begin(o);
    ox_arg(o, missing);
    ox_arg(o, by);
    ox_arg(o, x);
    ox_end_node(o, n, "Where");
}

// ---- features ----

static void convert_feature_extractor(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    ox_need_shape(o, n, x);
    if (x->rank == 1) {
        x = ox_with_int(o, n, "Unsqueeze", ".row", x, "axes", 0);
        ox_need_shape(o, n, x);
    }
    if (x->rank < 1) {
        ox_die(o, n, "ArrayFeatureExtractor of a number");
    }
    at = ox_with_int(o, n, "Reshape", ".places", at, "shape", -1);
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", x->rank - 1);
    ox_end_node(o, n, "Gather");
}

// A last axis of one number a category: 1 for the one that an element is.
static void convert_one_hot_encoder(ox *o, ox_node *n) {
    const ox_const *categories = whole_numbers_of(o, n, "cats_int64s");
    ox_find(o, n, "zeros");  // whether other categories are none, or an error
    if (!categories) {
        ox_unsupported(o, n, "OneHotEncoder of categories that are no numbers");
    }
    ox_value *x = ox_cast_to(o, n, ".whole", ox_in(o, n, 0), CLI_I64);
    x = ox_with_int(o, n, "Unsqueeze", ".column", x, "axes", -1);
    ox_value *by = constant(o, n, ".categories", categories);
    bind_cast(o, n, ox_truth(o, n, "Equal", ".is", x, by), CLI_F32);
}

static void convert_feature_vectorizer(ox *o, ox_node *n) {
    ox_value **parts = ox_alloc(o, (size_t)n->n_in * sizeof *parts);
    ox_find(o, n, "inputdimensions");
    for (int i = 0; i < n->n_in; i++) {
        parts[i] = floats(o, n, ox_in(o, n, i));
        if (parts[i]->rank != 2) {
            ox_unsupported(o, n, "FeatureVectorizer of a tensor of %d axes", parts[i]->rank);
        }
    }
    ox_concat_node(o, n, parts, n->n_in, 1);
}

// ---- models ----

// x [N,F] by coefficients [T,F], and an intercept each: [N,T].
static ox_value *linear(ox *o, ox_node *n, ox_value *x) {
    const ox_const *w = numbers_of(o, n, "coefficients"), *b = numbers_of(o, n, "intercepts");
    int64_t features = x->dims[1], targets = w && features > 0 ? w->count / features : 0;
    if (targets < 1 || targets * features != w->count || (b && b->count != targets)) {
        ox_die(o, n, "%s whose coefficients do not fit %lld features", n->op, (long long)features);
    }
    x = ox_binary(o, n, "MatMul", ".products", x, turned(o, n, ".coefficients", w, features));
    return b ? ox_binary(o, n, "Add", ".scores", x, constant(o, n, ".intercepts", b)) : x;
}

// What is made of the scores, as output `output`.
static void bind_scores(ox *o, ox_node *n, int output, ox_value *scores) {
    const char *how = ox_string(o, n, "post_transform", "NONE");
    bool softmax = !strcmp(how, "SOFTMAX");
    if (!softmax && strcmp(how, "LOGISTIC") && strcmp(how, "NONE")) {
        char shown[60];
        ox_unsupported(o, n, "operator '%s' with post_transform '%s'", n->op,
                       cli_escape(shown, sizeof shown, how));
    }
    if (!ox_wants(n, output)) {
        return;
    }
    ox_begin(o);
    ox_arg(o, scores);
    if (softmax) {
        ox_set_int(o, "axis", -1);
    }
    const char *op = softmax ? "Softmax" : *how == 'L' ? "Sigmoid" : "Identity";
    ox_bind(o, n, output, ox_end(o, op, n->out[output], scores->dtype));
}

static void convert_linear_regressor(ox *o, ox_node *n) {
    ox_value *scores = linear(o, n, rows(o, n));
    ox_need_shape(o, n, scores);
    if (ox_int(o, n, "targets", 1) != scores->dims[1]) {
        ox_die(o, n, "LinearRegressor whose coefficients do not fit its targets");
    }
    bind_scores(o, n, 0, scores);
}

// Labels that are text are no output: they are lost, and the scores are not.
static void convert_linear_classifier(ox *o, ox_node *n) {
    ox_value *scores = linear(o, n, rows(o, n));
    const ox_const *labels = whole_numbers_of(o, n, "classlabels_ints");
    ox_find(o, n, "classlabels_strings");
    ox_find(o, n, "multi_class");
    ox_need_shape(o, n, scores);
    if (scores->dims[1] < 2 || (labels && labels->count != scores->dims[1])) {
        ox_unsupported(o, n, "LinearClassifier without a score for each class");
    }
    if (labels && ox_wants(n, 0)) {
        ox_begin(o);
        ox_arg(o, scores);
        ox_set_int(o, "axis", 1);
        ox_set_int(o, "keepdims", 0);
        ox_value *at = ox_end(o, "ArgMax", ox_fresh(o, n->out[0], ".which"), CLI_I64);
        ox_begin(o);
        ox_arg(o, constant(o, n, ".labels", labels));
        ox_arg(o, at);
        ox_set_int(o, "axis", 0);
        ox_bind(o, n, 0, ox_end(o, "Gather", n->out[0], CLI_I64));
    }
    bind_scores(o, n, 1, scores);
}

// x [N,F] with each of the vectors [S,F]: products [N,S], or squares of distances.
static ox_value *with_vectors(ox *o, ox_node *n, ox_value *x, const ox_const *vectors,
                              bool distances) {
    int64_t features = x->dims[1], dims[2] = {vectors->count / features, features}, axis = 2;
    if (!distances) {
        return ox_binary(o, n, "MatMul", ".products", x,
                         turned(o, n, ".vectors", vectors, features));
    }
    x = ox_with_int(o, n, "Unsqueeze", ".column", x, "axes", 1);
    x = ox_binary(o, n, "Sub", ".differences", x,
                  constant(o, n, ".vectors", ox_reshaped(o, vectors, 2, dims)));
    x = ox_binary(o, n, "Mul", ".squares", x, x);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_int(o, "keepdims", 0);
    return ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".distances"), x->dtype);
}

// Exp(-gamma * |x - v|^2), (gamma * x*v + c)^d, tanh(gamma * x*v + c) or x*v.
static ox_value *kernel(ox *o, ox_node *n, ox_value *x, const ox_const *vectors) {
    const char *type = ox_string(o, n, "kernel_type", "LINEAR");
    const ox_const *params = numbers_of(o, n, "kernel_params");
    bool linear = !strcmp(type, "LINEAR"), radial = !strcmp(type, "RBF");
    bool poly = !strcmp(type, "POLY");
    if (!linear && !radial && !poly && strcmp(type, "SIGMOID")) {
        ox_die(o, n, "%s with an unknown kernel", n->op);
    }
    if (!linear && (!params || params->count < 3)) {
        ox_die(o, n, "%s without kernel_params", n->op);
    }
    ox_value *v = with_vectors(o, n, x, vectors, radial);
    if (linear) {
        return v;
    }
    double gamma = ox_getf(params, 0);
    v = ox_by_number(o, n, "Mul", ".scaled", v, radial ? -gamma : gamma);
    if (radial) {
        return ox_unary(o, n, "Exp", ".kernel", v);
    }
    v = ox_by_number(o, n, "Add", ".shifted", v, ox_getf(params, 1));
    return poly ? ox_by_number(o, n, "Pow", ".kernel", v, ox_getf(params, 2))
                : ox_unary(o, n, "Tanh", ".kernel", v);
}

// The kernel with each support vector, weighed and added up; without vectors a linear model.
static void convert_svm_regressor(ox *o, ox_node *n) {
    ox_value *x = rows(o, n);
    const ox_const *weights = numbers_of(o, n, "coefficients"), *rho = numbers_of(o, n, "rho");
    const ox_const *vectors = numbers_of(o, n, "support_vectors");
    int64_t count = ox_int(o, n, "n_supports", 0), features = x->dims[1];
    bool one_class = ox_int(o, n, "one_class", 0) != 0;
    if (count < 0 || count > OX_FOLD_LIMIT || !weights || !rho ||
        weights->count != (count ? count : features) ||
        (vectors ? vectors->count : 0) != count * features) {
        ox_die(o, n, "SVMRegressor whose numbers do not fit %lld features", (long long)features);
    }
    int64_t column[2] = {weights->count, 1};
    ox_value *v = count ? kernel(o, n, x, vectors) : x;
    if (!count) {
        ox_find(o, n, "kernel_type");
        ox_find(o, n, "kernel_params");
    }
    v = ox_binary(o, n, "MatMul", ".sum", v,
                  constant(o, n, ".coefficients", ox_reshaped(o, weights, 2, column)));
    v = ox_by_number(o, n, "Add", ".value", v, ox_getf(rho, 0));
    if (one_class) {
        ox_value *inside =
            ox_truth(o, n, "Greater", ".inside", v, ox_number(o, n, ".zero", v->dtype, 0));
        v = ox_where(o, n, ".side", inside, ox_number(o, n, ".in", v->dtype, 1),
                     ox_number(o, n, ".out", v->dtype, -1));
    }
    bind_scores(o, n, 0, v);
}

const ox_row ox_ml_rows[] = {
    {"ArrayFeatureExtractor", 2, 2, convert_feature_extractor},
    {"Binarizer", 1, 1, convert_binarizer},
    {"FeatureVectorizer", 1, -1, convert_feature_vectorizer},
    {"Imputer", 1, 1, convert_imputer},
    {"LinearClassifier", 1, 1, convert_linear_classifier},
    {"LinearRegressor", 1, 1, convert_linear_regressor},
    {"Normalizer", 1, 1, convert_normalizer},
    {"OneHotEncoder", 1, 1, convert_one_hot_encoder},
    {"Scaler", 1, 1, convert_scaler},
    {"SVMRegressor", 1, 1, convert_svm_regressor},
    {NULL, 0, 0, NULL},
};
