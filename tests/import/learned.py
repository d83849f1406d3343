"""Cases of operators of ai.onnx.ml: linear models, kernels, scalers, features."""
import numpy as np
from onnx import TensorProto

from cases import RNG, Case, const, each, ints, model, node, value
from places import typed

ML = "ai.onnx.ml"
I64 = TensorProto.INT64


def numbers(*shape):
    return [float(v) for v in RNG.normal(size=shape).astype(np.float32).ravel()]


def learned(op, x, outputs="y", kind=None, inputs=None, **attrs):
    x = {"x": x if kind is None else value("x", x, kind)}
    return Case(model([node(op, "x", outputs, domain=ML, **attrs)], x, outputs, extra=[ML]),
                inputs=inputs)


def with_labels(case):
    """The first output holds integers."""
    case.model.graph.output[0].type.tensor_type.elem_type = I64
    return case


ROWS = ["N", 5]
each("ml_scaler", lambda: learned("Scaler", ROWS, offset=numbers(5), scale=numbers(5)))
each("ml_scaler_of_one", lambda: learned("Scaler", [3, 4], offset=[.5], scale=[2.]))
each("ml_scaler_of_integers", lambda: learned("Scaler", [3, 4], kind=I64, offset=numbers(4),
                                              scale=numbers(4)))
for norm in ("MAX", "L1", "L2"):
    each("ml_normalizer_" + norm, lambda n=norm: learned("Normalizer", ROWS, norm=n))
    each("ml_normalizer_of_nothing_" + norm, lambda n=norm: learned(
        "Normalizer", [3, 4], norm=n,
        inputs={"x": np.float32([[0, 0, 0, 0], [1, -2, 0, 1], [-1, 0, 0, -3]])}))
each("ml_binarizer", lambda: learned("Binarizer", ROWS, threshold=.25))
HOLES = np.float32([[np.nan, 1, 2], [7, np.nan, np.nan], [0, 7, 1]])
each("ml_imputer_of_nan", lambda: learned(
    "Imputer", [3, 3], imputed_value_floats=numbers(3), replaced_value_float=float("nan"),
    inputs={"x": HOLES}))
each("ml_imputer_of_a_number", lambda: learned(
    "Imputer", [3, 3], imputed_value_floats=[4.5], replaced_value_float=7.,
    inputs={"x": np.nan_to_num(HOLES, nan=3)}))
for how in ("NONE", "LOGISTIC", "SOFTMAX"):
    each("ml_linear_regressor_" + how, lambda h=how: learned(
        "LinearRegressor", ROWS, coefficients=numbers(3, 5), intercepts=numbers(3), targets=3,
        post_transform=h))
    each("ml_linear_classifier_" + how, lambda h=how: with_labels(learned(
        "LinearClassifier", ROWS, "l y", coefficients=numbers(3, 5), intercepts=numbers(3),
        classlabels_ints=[4, 7, -1], post_transform=h)))
each("ml_linear_regressor_of_one", lambda: learned("LinearRegressor", ROWS,
                                                   coefficients=numbers(5)))
each("ml_linear_classifier_of_text", lambda: Case(
    model([node("LinearClassifier", "x", "l y", domain=ML, coefficients=numbers(2, 5),
                intercepts=numbers(2), classlabels_strings=["no", "yes"])], {"x": [3, 5]}, "y",
          extra=[ML])))
for name, attrs in (("linear", {"kernel_type": "LINEAR", "kernel_params": [0., 0., 3.]}),
                    ("rbf", {"kernel_type": "RBF", "kernel_params": [.3, 0., 3.]}),
                    ("poly", {"kernel_type": "POLY", "kernel_params": [.2, .5, 3.]}),
                    ("sigmoid", {"kernel_type": "SIGMOID", "kernel_params": [.2, .5, 3.]}),
                    ("side", {"kernel_type": "RBF", "kernel_params": [.3, 0., 3.],
                              "one_class": 1})):
    each("ml_svm_regressor_" + name, lambda a=attrs: learned(
        "SVMRegressor", ROWS, n_supports=4, support_vectors=numbers(4, 5),
        coefficients=numbers(4), rho=[.25], **a))
each("ml_one_hot", lambda: learned("OneHotEncoder", [3, 2], kind=I64, cats_int64s=[3, 0, 1],
                                   zeros=1))


def extracted(x, at, kind=None):
    x = {"x": x if kind is None else value("x", x, kind)}
    return Case(model([node("ArrayFeatureExtractor", "x i", domain=ML)], x, inits=[ints("i", *at)],
                      extra=[ML]))


each("ml_features", lambda: extracted(["N", 5], [3, 0, 3]))
each("ml_features_of_a_line", lambda: extracted([6], [2, 5]))
each("ml_features_of_images", lambda: extracted([2, 3, 4], [1]))


def labels_of(inputs, dtype=I64):
    m = model([node("ArgMax", "x", "at", axis=1),
               node("ArrayFeatureExtractor", "c at", "f", domain=ML), node("Reshape", "f s")],
              inputs, inits=[const("c", [5, 9, 2], np.int64), ints("s", -1)], extra=[ML])
    return Case(typed(m, y=dtype))


each("ml_labels_of_the_largest", lambda: labels_of({"x": ["N", 3]}))
each("ml_vectorizer", lambda: Case(
    model([node("FeatureVectorizer", "x i", domain=ML, inputdimensions=[2, 3])],
          {"x": [4, 2], "i": [4, 3]}, extra=[ML])))
each("ml_trees", lambda: Case(
    model([node("TreeEnsembleRegressor", "x", domain=ML, n_targets=1)], {"x": [2, 3]},
          extra=[ML]), code=4, text="it walks trees, which are no algebra of tensors"))
each("ml_maps", lambda: Case(
    model([node("ZipMap", "x", domain=ML, classlabels_int64s=[0, 1, 2])], {"x": [2, 3]},
          extra=[ML]), code=4, text="it works on maps and labels, not on tensors"))
each("ml_short_scale", lambda: Case(
    learned("Scaler", [3, 4], offset=numbers(4), scale=numbers(3)).model, code=3,
    text="attribute 'scale' has 3 numbers, not one a feature"))
each("ml_short_coefficients", lambda: Case(
    learned("LinearRegressor", [3, 4], coefficients=numbers(3)).model, code=3,
    text="LinearRegressor whose coefficients do not fit 4 features"))
each("ml_short_vectors", lambda: Case(
    learned("SVMRegressor", [3, 4], n_supports=2, support_vectors=numbers(7),
            coefficients=numbers(2), rho=[0.]).model, code=3,
    text="SVMRegressor whose numbers do not fit 4 features"))
each("ml_one_score", lambda: Case(
    learned("LinearClassifier", [3, 4], "l y", coefficients=numbers(4),
            classlabels_ints=[0, 1]).model, code=4,
    text="LinearClassifier without a score for each class"))
each("ml_probit", lambda: Case(
    learned("LinearRegressor", [3, 4], coefficients=numbers(4), post_transform="PROBIT").model,
    code=4, text="operator 'LinearRegressor' with post_transform 'PROBIT'"))
