"""Which inputs and outputs of a node can be half floats, by the schemas that ONNX has of its operators."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, defs

from ort_core.model_types import find_operator

_STRINGS: dict[int, str] = {TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)"}
_FIXED = "tensor(float)"
_QGEMM_ZERO_POINT = 8  # the place of the input that says which integers it makes
_NUMBERS = {f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items()}
_STASHED = {"LayerNormalization": (1, 2)}  # outputs in the type that the attribute stash_type names, float32 by default
_FLOAT_INPUTS = {"GroupNorm": (1, 2), "SkipGroupNorm": (1, 2)}  # of com.microsoft: gamma and beta
_NAMED_TYPES = {  # of com.microsoft: attributes that name an output's type, and that type where they are absent
    "DequantizeWithOrder": ("to", 0), "GemmFloat8": ("dtype", TensorProto.FLOAT),
    "GatherPacked": ("output_dtype", TensorProto.BFLOAT16),
}  # fmt: skip
_FLOAT_ONLY = ("QLinear", "QAttention", "QGemm", "DynamicQuantize", "MatMulIntegerToFloat", "QEmbed", "QOrdered")


@dataclass(frozen=True, slots=True)
class Needs:
    """What an operator asks of the floats that it reads and writes.

    Attributes:
        is_float: whether none of them can be half floats.
        float_inputs: places of inputs that are float32 in any case; the last may stand for all that follow.
        float_outputs: places of outputs that are.
    """

    is_float: bool = False
    float_inputs: frozenset[int] = frozenset()
    float_outputs: frozenset[int] = frozenset()


@functools.lru_cache(maxsize=1024)
def needs_of(op_type: str, domain: str, opset: int, half: int) -> Needs:
    """Return what an operator of a version asks for; unknown operators are taken to compute in any type."""
    schema = _schema(op_type, domain, opset)
    if schema is None:
        if domain == "com.microsoft":
            return _needs_of_contrib(op_type, opset, half)
        is_float = domain in ("", "ai.onnx") and half == TensorProto.BFLOAT16  # such as ImageScaler
        return Needs(is_float)
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    lacking = {name for name, texts in allowed.items() if _FIXED in texts and _STRINGS[half] not in texts}
    main = {places[0].type_str for places in (schema.inputs, schema.outputs) if places}
    fixed = lacking | {_FIXED}
    return Needs(
        bool(lacking & main),
        frozenset(place for place, each in enumerate(schema.inputs) if each.type_str in fixed),
        frozenset(place for place, each in enumerate(schema.outputs) if each.type_str in fixed)
        | frozenset(_STASHED.get(op_type, ())),
    )


def opset_that_takes(op_type: str, opset: int, last: int, half: int) -> int:
    """Return the first opset, from one to another, in which an operator takes a half type; the first if none."""
    for each in range(opset, last + 1):
        if not needs_of(op_type, "", each, half).is_float:
            return each
    return opset


def _needs_of_contrib(op_type: str, opset: int, half: int) -> Needs:
    """Return what an operator of com.microsoft asks for; where some of its values can be half floats, of the others."""
    floats = frozenset(_FLOAT_INPUTS.get(op_type, ()))
    schema = find_operator("com.microsoft", op_type, opset)
    if schema is None or op_type.startswith(_FLOAT_ONLY):
        return Needs(op_type.startswith(_FLOAT_ONLY), floats)
    fixed = [
        [place for place, each in enumerate(places) if _is_fixed(each.type_text, schema.type_constraints, half)]
        for places in (schema.inputs, schema.outputs)
    ]
    takes_half = any(_STRINGS[half] in texts for texts in schema.type_constraints.values())
    return Needs(not takes_half and any(fixed), floats | frozenset(fixed[0]), frozenset(fixed[1]))


def _is_fixed(text: str, constraints: Mapping[str, Collection[str]], half: int) -> bool:
    allowed = constraints.get(text, (text,))
    return _FIXED in allowed and _STRINGS[half] not in allowed


def output_type(node: NodeProto, place: int, opset: int, inputs: Mapping[int, int]) -> int:
    """Return the element type of an output that inference left open; 0 where nothing tells.

    Args:
        node: any.
        place: of the output.
        opset: of the node's domain.
        inputs: element types of the node's inputs by place.
    """
    given, made = _type_texts(node.op_type, node.domain, opset)
    if node.op_type in _NAMED_TYPES:
        name, default = _NAMED_TYPES[node.op_type]
        return next((each.i for each in node.attribute if each.name == name), default)
    if not made:
        return TensorProto.FLOAT if TensorProto.FLOAT in inputs.values() else 0
    if node.op_type == "QGemm":  # its schema ties the output to no input
        return inputs.get(_QGEMM_ZERO_POINT, TensorProto.FLOAT)
    kind = made[min(place, len(made) - 1)]
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    for other in sorted(inputs):
        if given and given[min(other, len(given) - 1)] == kind:
            return inputs[other]
    return 0


@functools.lru_cache(maxsize=1024)
def _type_texts(op_type: str, domain: str, opset: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types or type variables of an operator's inputs and of its outputs; nothing of an unknown one."""
    schema = _schema(op_type, domain, opset)
    if schema is not None:
        return tuple(each.type_str for each in schema.inputs), tuple(each.type_str for each in schema.outputs)
    contrib = find_operator("" if domain == "ai.onnx" else domain, op_type, opset)
    if contrib is None:
        return (), ()
    only = {name: next(iter(texts)) for name, texts in contrib.type_constraints.items() if len(texts) == 1}
    inputs, outputs = (
        tuple(only.get(p.type_text, p.type_text) for p in ps) for ps in (contrib.inputs, contrib.outputs)
    )
    return inputs, outputs


def _schema(op_type: str, domain: str, opset: int) -> defs.OpSchema | None:
    domain = "" if domain == "ai.onnx" else domain
    if not defs.has(op_type, opset, domain):
        return None
    return defs.get_schema(op_type, opset, domain)
