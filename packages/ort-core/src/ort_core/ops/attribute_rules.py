"""What operators require of their attributes, stated once and checked when a model loads: runs check nothing.

A rule returns why a node is impossible, ``None`` when it is sound. It sees attributes of the kinds that the schema
declares, and the version of the schema.
"""

from __future__ import annotations

import math

from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType
from ort_core.ops.attribute_checks import (
    AttributeRule,
    above_zero,
    element_type,
    exactly_one,
    flags,
    in_range,
    length,
    one_of,
    padding,
    words,
)
from ort_core.ops.attribute_rules_contrib import CONTRIB_RULES
from ort_core.ops.attribute_rules_learning import LEARNING_RULES
from ort_core.ops.attribute_rules_recurrent import recurrent


def attribute_problem(node: Node, since_version: int) -> str | None:
    """Return why a node's attributes are impossible, ``None`` when they are sound or nothing is stated.

    In the body of a function some are what the call says: nothing is stated of such a node.
    """
    rule = _RULES.get(node.domain, _NONE).get(node.op_type)
    if rule is None:
        return None
    for attribute in node.attributes.values():
        if attribute.reference is not None:
            return None
    return rule(node, since_version)


def _local_response(node: Node, since_version: int) -> str | None:
    size = node.int_attribute("size", 1)
    if size < 1:
        return f"attribute size must be at least 1, found {size}"
    return above_zero("alpha", "beta")(node, since_version)


def _ngrams(node: Node, since_version: int) -> str | None:
    shortest, longest = node.int_attribute("min_gram_length", 1), node.int_attribute("max_gram_length", 1)
    counts, indexes, weights = (length(node, name) for name in ("ngram_counts", "ngram_indexes", "weights"))
    if not 1 <= shortest <= longest <= counts:
        return (
            f"attributes must hold 1 <= min_gram_length <= max_gram_length <= length of ngram_counts, found "
            f"{shortest}, {longest} and {counts}"
        )
    if "weights" in node.attributes and weights != indexes:
        return f"attribute weights must have as many elements as ngram_indexes, found {weights} and {indexes}"
    return one_of(node, "mode", ("TF", "IDF", "TFIDF")) or exactly_one(node, ("pool_strings", "pool_int64s"))


def _batch_normalization(node: Node, since_version: int) -> str | None:
    if since_version < 14:
        return None
    expected = 3 if node.int_attribute("training_mode", 0) else 1
    found = len(node.outputs)
    return None if found == expected else f"it must have {expected} outputs for its training_mode, found {found}"


def _attention(node: Node, since_version: int) -> str | None:
    scale = node.attribute("scale")
    if isinstance(scale, float) and scale <= 0:
        return f"attribute scale must be greater than 0, found {scale}"
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        return in_range("qk_matmul_output_mode", 0, 3)(node, since_version)
    return None


def _max_unpool(node: Node, since_version: int) -> str | None:
    kernel = node.ints_attribute("kernel_shape") or ()
    return None if all(size > 0 for size in kernel) else f"attribute kernel_shape must be positive, found {kernel}"


def _max_roi_pool(node: Node, since_version: int) -> str | None:
    pooled = node.ints_attribute("pooled_shape") or ()
    if any(size <= 0 for size in pooled):
        return f"attribute pooled_shape must be positive, found {pooled}"
    return above_zero("spatial_scale")(node, since_version)


def _deformable(node: Node, since_version: int) -> str | None:
    pads = node.ints_attribute("pads") or ()
    if any(pad < 0 for pad in pads):
        return f"attribute pads must not be negative, found {list(pads)}"
    return in_range("offset_group", 1)(node, since_version) or in_range("group", 1)(node, since_version)


def _mel_weights(node: Node, since_version: int) -> str | None:
    number = node.int_attribute("output_datatype", DataType.FLOAT.value)
    known = {each.value for each in DataType if each.is_float or each.is_integer}
    return None if number in known else f"attribute output_datatype must be a type of numbers, found {number}"


def _crop(node: Node, since_version: int) -> str | None:
    border = node.ints_attribute("border") or ()
    if len(border) < 4 or min(border) < 0:
        return f"attribute border must hold left, top, right and bottom, at least 0 each; found {list(border)}"
    return None


def _resize(node: Node, since_version: int) -> str | None:
    mode = node.string_attribute("mode", "nearest")
    widens = mode == "cubic" or (mode == "linear" and node.int_attribute("antialias", 0) != 0)
    if node.int_attribute("exclude_outside", 0) and not widens:
        return f"attribute exclude_outside may be 1 for mode cubic, or linear with antialias; found mode {mode}"
    return one_of(node, "keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"))


def _transposed(node: Node, since_version: int) -> str | None:
    extra = node.ints_attribute("output_padding") or ()
    if any(size < 0 for size in extra):
        return f"attribute output_padding must not be negative, found {list(extra)}"
    if node.ints_attribute("pads") is not None and node.attribute("auto_pad") == "":
        return "attribute pads cannot be used with auto_pad, found ''"
    return padding(node, since_version)


def _precision(node: Node, since_version: int) -> str | None:
    number = node.int_attribute("precision", 0)
    if number == 0 or number in {each.value for each in DataType if each.is_float}:
        return None
    return f"attribute precision must be 0 or a type of floats, found {number}"


def _reversed(node: Node, since_version: int) -> str | None:
    batch, time = node.int_attribute("batch_axis", 1), node.int_attribute("time_axis", 0)
    if max(batch, time) > 1 or batch == time:
        return f"attributes batch_axis and time_axis must be 0 and 1, in either order; found {batch} and {time}"
    return None


def _bounds(node: Node, since_version: int) -> str | None:
    low, high = (node.float_attribute(name, default) for name, default in (("min", -math.inf), ("max", math.inf)))
    return None if low <= high else f"attributes min and max must be bounds in order, found {low} and {high}"


def _flattened(node: Node, since_version: int) -> str | None:
    axis = node.int_attribute("axis", 1)
    if axis >= 0 or since_version >= 11:
        return None
    return f"attribute axis must be at least 0 before opset 11, found {axis}"


def _optional(node: Node, since_version: int) -> str | None:
    if node.input(0) is not None or "type" in node.attributes:
        return None
    return "it must have an input, or the attribute type that says what it is without one; found neither"


def _pattern(node: Node, since_version: int) -> str | None:
    return None if "pattern" in node.attributes else "attribute pattern must be set, found none"


_RULES: dict[str, dict[str, AttributeRule]] = {
    "": {
        "Attention": _attention,
        "BatchNormalization": _batch_normalization,
        "Bernoulli": element_type("dtype"),
        "BitCast": element_type("to"),
        "BlackmanWindow": element_type("output_datatype"),
        "BitShift": words(direction=("LEFT", "RIGHT")),
        "Cast": words(round_mode=("up", "down", "nearest")),
        "Clip": _bounds,
        "Conv": padding,
        "ConvInteger": padding,
        "ConvTranspose": _transposed,
        "Crop": _crop,
        "CumProd": flags("exclusive", "reverse"),
        "CumSum": flags("exclusive", "reverse"),
        "DeformConv": _deformable,
        "DepthToSpace": words(mode=("DCR", "CRD")),
        "EyeLike": element_type("dtype"),
        "Flatten": _flattened,
        "GRU": recurrent,
        "GlobalLpPool": in_range("p", 1),
        "Gelu": words(approximate=("none", "tanh")),
        "HammingWindow": element_type("output_datatype"),
        "HannWindow": element_type("output_datatype"),
        "LpNormalization": in_range("p", 1, 2),
        "LpPool": in_range("p", 1),
        "LRN": _local_response,
        "LSTM": recurrent,
        "MaxPool": in_range("storage_order", 0, 1),
        "MaxRoiPool": _max_roi_pool,
        "MaxUnpool": _max_unpool,
        "MelWeightMatrix": _mel_weights,
        "Mod": flags("fmod"),
        "NonMaxSuppression": flags("center_point_box"),
        "Optional": _optional,
        "QLinearConv": padding,
        "QuantizeLinear": _precision,
        "RNN": recurrent,
        "RegexFullMatch": _pattern,
        "Resize": _resize,
        "ReverseSequence": _reversed,
        "RoiAlign": in_range("sampling_ratio", 0),
        "RotaryEmbedding": in_range("num_heads", 0, 2**31 - 1),
        "SequenceEmpty": in_range("dtype", 1),
        "SpaceToDepth": words(mode=("DCR", "CRD")),
        "TfIdfVectorizer": _ngrams,
    },
    "ai.onnx.ml": LEARNING_RULES,
    "com.microsoft": CONTRIB_RULES,
}
_NONE: dict[str, AttributeRule] = {}
