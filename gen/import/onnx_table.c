// onnx_table.c - which operators are read, and why others are not.
#include "onnx.h"

// Operators of ONNX itself, in either spelling.
bool ox_is_standard(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

bool ox_is_learning(const char *domain) { return !strcmp(domain, "ai.onnx.ml"); }

bool ox_is_runtime(const char *domain) { return !strcmp(domain, "com.microsoft"); }

static const ox_row *const tables[] = {
    ox_math_rows,      ox_reduce_rows, ox_shape_rows,   ox_pick_rows,   ox_scatter_rows,
    ox_nn_rows,        ox_norm_rows,   ox_resize_rows,  ox_sample_rows, ox_fourier_rows,
    ox_attention_rows, ox_quant_rows,  ox_integer_rows, ox_rnn_rows,    ox_sequence_rows,
    ox_flow_rows,      ox_picked_rows};

static const ox_row *row_in(const ox_row *row, const char *op) {
    for (; row->op; row++) {
        if (!strcmp(row->op, op)) {
            return row;
        }
    }
    return NULL;
}

const ox_row *ox_row_of(const char *domain, const char *op) {
    const ox_row *row = ox_is_learning(domain)  ? row_in(ox_ml_rows, op)
                        : ox_is_runtime(domain) ? row_in(ox_runtime_rows, op)
                                                : NULL;
    for (size_t t = 0; !row && ox_is_standard(domain) && t < sizeof tables / sizeof *tables; t++) {
        row = row_in(tables[t], op);
    }
    return row;
}

// Edit distance of two names, letter case apart.
static int distance(const char *a, const char *b) {
    enum { MOST = 40 };
    int row[MOST + 1], n = (int)strlen(b);
    if (n > MOST || strlen(a) > MOST) {
        return MOST;
    }
    for (int j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + ((a[i - 1] | 32) != (b[j - 1] | 32));
            diagonal = row[j];
            int edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < edit ? change : edit;
        }
    }
    return row[n];
}

const char *ox_nearest(const char *op) {
    const char *best = NULL;
    int least = (int)strlen(op) / 3 + 1;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const ox_row *row = tables[t]; row->op; row++) {
            int d = distance(op, row->op);
            if (d < least) {
                least = d;
                best = row->op;
            }
        }
    }
    return best;
}

// ---- refusals ----

static const struct {
    const char *why;
    const char *ops;  // with a space around each
} reasons[] = {
    {"it makes random numbers, and a plan computes the same on every run",
     " Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "},
    {"the size of its result depends on values, which a plan cannot follow; what comes behind it "
     "is "
     "the caller's",
     " NonMaxSuppression Unique "},
    {"it works on optional values, or on sequences of any length, not on tensors",
     " Optional OptionalGetElement OptionalHasElement SequenceMap "},
    {"it works on text or files, not on numbers",
     " ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer "},
    {"it walks trees, which are no algebra of tensors",
     " TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor "},
    {"it works on maps and labels, not on tensors; take what stands in front of it (skl2onnx: "
     "zipmap=False)",
     " CastMap CategoryMapper DictVectorizer LabelEncoder ZipMap "},
    {"votes of pairs of classes are not counted", " SVMClassifier "},
    {"it belongs to training", " NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss "},
    {"integers have no bits here, only values", " BitCast "},
    {"it is not among those that are read; onnx.inliner or an older opset may write it out as "
     "simpler "
     "operators",
     " CausalConvWithState LinearAttention "},
    {"only what is known when the model is imported is computed by it",
     " BlackmanWindow HammingWindow HannWindow Range "},
};

// Why operator `op`, which may be any bytes of a file, is not imported; NULL: nothing is known.
const char *ox_reason(const char *op) {
    size_t size = strlen(op);
    if (!size || strchr(op, ' ')) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        for (const char *s = reasons[i].ops; (s = strstr(s, op)) != NULL; s++) {
            if (s[-1] == ' ' && s[size] == ' ') {
                return reasons[i].why;
            }
        }
    }
    return NULL;
}
