"""What operators of ai.onnx.ml require of their attributes."""

from __future__ import annotations

from ort_core.ir.nodes import Node
from ort_core.ops.attribute_checks import AttributeRule, exactly_one, length, one_kind, one_of, transform


def label_encoder(node: Node, since_version: int) -> str | None:
    """Require one list of keys and one of values."""
    if since_version < 2:
        return None
    kinds = ("tensor", "strings", "int64s", "floats") if since_version >= 4 else ("strings", "int64s", "floats")
    problems = (exactly_one(node, [f"{what}_{kind}" for kind in kinds]) for what in ("keys", "values"))
    return next((text for text in problems if text is not None), None)


def one_hot(node: Node, since_version: int) -> str | None:
    """Require one list of categories."""
    return exactly_one(node, ("cats_int64s", "cats_strings"))


def support_vectors(node: Node, since_version: int) -> str | None:
    """Require a known kernel with its parameters, and as many slopes as offsets of probabilities."""
    parameters, kernel = length(node, "kernel_params"), node.string_attribute("kernel_type", "LINEAR")
    if parameters != 3 and (parameters or kernel != "LINEAR"):
        return f"attribute kernel_params must hold gamma, coef0 and degree, found {parameters} elements"
    a, b = length(node, "prob_a"), length(node, "prob_b")
    if a != b:
        return f"attributes prob_a and prob_b must have as many elements, found {a} and {b}"
    kernels = ("LINEAR", "POLY", "RBF", "SIGMOID")
    return one_of(node, "kernel_type", kernels) or transform(node, since_version)


def scaler(node: Node, since_version: int) -> str | None:
    """Require as many offsets as scales, and one at least."""
    offset, scale = length(node, "offset"), length(node, "scale")
    if not scale or offset != scale:
        return f"attributes offset and scale must have as many elements, 1 at least; found {offset} and {scale}"
    return None


def imputer(node: Node, since_version: int) -> str | None:
    """Require values of one kind."""
    return one_kind(node, ("imputed_value_floats", "imputed_value_int64s"))


def normalizer(node: Node, since_version: int) -> str | None:
    """Require a known norm."""
    return one_of(node, "norm", ("MAX", "L1", "L2"))


def feature_vectorizer(node: Node, since_version: int) -> str | None:
    """Require the widths of the inputs."""
    if length(node, "inputdimensions"):
        return None
    return "attribute inputdimensions must hold the width of each input, found none"


def zip_map(node: Node, since_version: int) -> str | None:
    """Require labels of one kind."""
    return one_kind(node, ("classlabels_strings", "classlabels_int64s"))


def linear_classifier(node: Node, since_version: int) -> str | None:
    """Require intercepts, coefficients for each of them, and labels where there is a choice."""
    classes, coefficients = length(node, "intercepts"), length(node, "coefficients")
    if not classes:
        return "attribute intercepts must hold one for each class, found none"
    if coefficients % classes:
        return f"attribute coefficients must hold as many for each of {classes} intercepts, found {coefficients}"
    if classes > 1 and not length(node, "classlabels_ints") and not length(node, "classlabels_strings"):
        return f"attributes classlabels_ints or classlabels_strings must label {classes} classes, found none"
    return transform(node, since_version)


def tree_ensemble(node: Node, since_version: int) -> str | None:
    """Require lists of nodes of one length."""
    names = [f"nodes_{name}" for name in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs")]
    if "nodes_missing_value_tracks_true" in node.attributes:
        names.append("nodes_missing_value_tracks_true")
    nodes = length(node, "nodes_featureids")
    for name in names:
        if length(node, name) != nodes:
            return f"attribute {name} must have {nodes} elements, as nodes_featureids has; found {length(node, name)}"
    return None


def tree_regressor(node: Node, since_version: int) -> str | None:
    """Require targets."""
    targets = node.int_attribute("n_targets", 0)
    return transform(node, since_version) if targets > 0 else f"attribute n_targets must be positive, found {targets}"


LEARNING_RULES: dict[str, AttributeRule] = {
    "FeatureVectorizer": feature_vectorizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": transform,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot,
    "SVMClassifier": support_vectors,
    "SVMRegressor": support_vectors,
    "Scaler": scaler,
    "TreeEnsemble": tree_ensemble,
    "TreeEnsembleClassifier": transform,
    "TreeEnsembleRegressor": tree_regressor,
    "ZipMap": zip_map,
}
