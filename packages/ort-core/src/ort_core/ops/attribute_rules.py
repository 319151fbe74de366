"""What operators require of their attributes, stated once and checked when a model loads: runs check nothing.

A rule returns why a node is impossible, ``None`` when it is sound. It sees attributes of the kinds that the schema
declares, and the version of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.ir.nodes import Node

AttributeRule = Callable[[Node, int], str | None]

_FUNCTIONS = frozenset(
    ("affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus", "softsign", "tanh",
     "thresholdedrelu")
)  # fmt: skip
_PER_DIRECTION = {"RNN": 1, "GRU": 2, "LSTM": 3}
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def attribute_problem(node: Node, since_version: int) -> str | None:
    """Return why a node's attributes are impossible, ``None`` when they are sound or nothing is stated."""
    rule = _RULES.get((node.domain, node.op_type))
    return None if rule is None else rule(node, since_version)


def _flags(*names: str) -> AttributeRule:
    def rule(node: Node, since_version: int) -> str | None:
        return next((text for name in names if (text := _flag(node, name)) is not None), None)

    return rule


def _flag(node: Node, name: str) -> str | None:
    value = node.int_attribute(name, 0)
    return None if value in (0, 1) else f"attribute {name} must be 0 or 1, found {value}"


def _one_of(node: Node, name: str, known: Sequence[str]) -> str | None:
    value = node.attribute(name, known[0])
    return None if value in known else f"attribute {name} must be one of {', '.join(known)}, found {value!r}"


def _length(node: Node, name: str) -> int:
    value = node.attribute(name, ())
    return len(value) if isinstance(value, tuple) else 0


def _exactly_one(node: Node, names: Sequence[str]) -> str | None:
    given = [name for name in names if name in node.attributes]
    if len(given) == 1:
        return None
    return f"exactly one of the attributes {', '.join(names)} must be set, found {', '.join(given) or 'none'}"


def _local_response(node: Node, since_version: int) -> str | None:
    size = node.int_attribute("size", 1)
    return None if size >= 1 else f"attribute size must be at least 1, found {size}"


def _recurrent(node: Node, since_version: int) -> str | None:
    hidden, clip = node.int_attribute("hidden_size", 1), node.float_attribute("clip", 1.0)
    if hidden < (0 if node.op_type == "RNN" else 1):
        return f"attribute hidden_size must be at least 1, found {hidden}"
    if node.op_type != "RNN" and not clip > 0:
        return f"attribute clip must be greater than 0, found {clip}; leave it out for no clipping"
    return _flag(node, "layout") or _activations(node)


def _activations(node: Node) -> str | None:
    names = node.attribute("activations", ())
    if not isinstance(names, tuple) or not names:
        return None
    unknown = [name for name in names if str(name).lower() not in _FUNCTIONS]
    if unknown:
        known = ", ".join(sorted(_FUNCTIONS))
        return f"attribute activations must name functions of {known}, found {unknown[0]!r}"
    is_both = node.string_attribute("direction", "forward").lower() == "bidirectional"
    expected = _PER_DIRECTION[node.op_type] * (2 if is_both else 1)
    allowed = {expected, 2} if node.op_type == "RNN" else {expected}  # two is RNN's default for one direction, too
    if len(names) not in allowed:
        return f"attribute activations must name {expected} functions, found {len(names)}: {', '.join(map(str, names))}"
    return None


def _ngrams(node: Node, since_version: int) -> str | None:
    shortest, longest = node.int_attribute("min_gram_length", 1), node.int_attribute("max_gram_length", 1)
    counts, indexes, weights = (_length(node, name) for name in ("ngram_counts", "ngram_indexes", "weights"))
    if not 1 <= shortest <= longest <= counts:
        return (
            f"attributes must hold 1 <= min_gram_length <= max_gram_length <= length of ngram_counts, found "
            f"{shortest}, {longest} and {counts}"
        )
    if "weights" in node.attributes and weights != indexes:
        return f"attribute weights must have as many elements as ngram_indexes, found {weights} and {indexes}"
    return _one_of(node, "mode", ("TF", "IDF", "TFIDF")) or _exactly_one(node, ("pool_strings", "pool_int64s"))


def _label_encoder(node: Node, since_version: int) -> str | None:
    if since_version < 2:
        return None
    kinds = ("tensor", "strings", "int64s", "floats") if since_version >= 4 else ("strings", "int64s", "floats")
    problems = (_exactly_one(node, [f"{what}_{kind}" for kind in kinds]) for what in ("keys", "values"))
    return next((text for text in problems if text is not None), None)


def _one_hot(node: Node, since_version: int) -> str | None:
    return _exactly_one(node, ("cats_int64s", "cats_strings"))


def _transform(node: Node, since_version: int) -> str | None:
    return _one_of(node, "post_transform", _TRANSFORMS)


def _support_vectors(node: Node, since_version: int) -> str | None:
    parameters = _length(node, "kernel_params")
    if parameters not in (0, 3):
        return f"attribute kernel_params must be empty or hold gamma, coef0 and degree, found {parameters} elements"
    a, b = _length(node, "prob_a"), _length(node, "prob_b")
    if a != b:
        return f"attributes prob_a and prob_b must have as many elements, found {a} and {b}"
    kernels = ("LINEAR", "POLY", "RBF", "SIGMOID")
    return _one_of(node, "kernel_type", kernels) or _transform(node, since_version)


def _scaler(node: Node, since_version: int) -> str | None:
    offset, scale = _length(node, "offset"), _length(node, "scale")
    if offset and scale and offset != scale:
        return f"attributes offset and scale must have as many elements, found {offset} and {scale}"
    return None


def _normalizer(node: Node, since_version: int) -> str | None:
    return _one_of(node, "norm", ("MAX", "L1", "L2"))


def _linear_classifier(node: Node, since_version: int) -> str | None:
    classes, coefficients = _length(node, "intercepts"), _length(node, "coefficients")
    if classes and coefficients % classes:
        return f"attribute coefficients must hold as many for each of {classes} intercepts, found {coefficients}"
    return _transform(node, since_version)


def _bifurcation(node: Node, since_version: int) -> str | None:
    least, most = node.int_attribute("min_ngram_size", 1), node.int_attribute("max_ngram_size", 3)
    if 1 <= least <= most:
        return None
    return f"attributes must hold 1 <= min_ngram_size <= max_ngram_size, found {least} and {most}"


def _group_query(node: Node, since_version: int) -> str | None:
    bits = node.int_attribute("kv_cache_bit_width", 0)
    if bits not in (0, 4, 8):
        return f"attribute kv_cache_bit_width must be 0, 4 or 8, found {bits}"
    return _flag(node, "causal")


_ML = "ai.onnx.ml"
_RULES: dict[tuple[str, str], AttributeRule] = {
    ("", "CumProd"): _flags("exclusive", "reverse"),
    ("", "CumSum"): _flags("exclusive", "reverse"),
    ("", "GRU"): _recurrent,
    ("", "LRN"): _local_response,
    ("", "LSTM"): _recurrent,
    ("", "Mod"): _flags("fmod"),
    ("", "NonMaxSuppression"): _flags("center_point_box"),
    ("", "RNN"): _recurrent,
    ("", "TfIdfVectorizer"): _ngrams,
    (_ML, "LabelEncoder"): _label_encoder,
    (_ML, "LinearClassifier"): _linear_classifier,
    (_ML, "LinearRegressor"): _transform,
    (_ML, "Normalizer"): _normalizer,
    (_ML, "OneHotEncoder"): _one_hot,
    (_ML, "SVMClassifier"): _support_vectors,
    (_ML, "SVMRegressor"): _support_vectors,
    (_ML, "Scaler"): _scaler,
    ("com.microsoft", "BifurcationDetector"): _bifurcation,
    ("com.microsoft", "GroupQueryAttention"): _group_query,
}
