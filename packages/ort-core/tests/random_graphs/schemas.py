"""What operators take in an opset: types, attributes and numbers of inputs, by onnx, of com.microsoft's by onnxruntime.

A graph that breaks them would be refused by every engine, and tell nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime
from onnx import TensorProto, helper

from random_graphs import element_types as et
from random_graphs.element_types import ElementType

if TYPE_CHECKING:
    from random_graphs.writer import Value

_UNKNOWN = frozenset([  # in ONNX's domain, by onnxruntime alone
    "Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh",
    "SimplifiedLayerNormalization",
])  # fmt: skip
_BROADCASTING_LATER = ("Max", "Mean", "Min", "Sum")  # from opset 8 on
_BODIES = ("If", "Loop", "Scan")
_ONNX_NAMES = {name.lower(): number for name, number in TensorProto.DataType.items()}


class Refused(Exception):
    """A step does not fit what the graph has so far; another one is tried."""


def check_operands(domain: str, op_type: str, opset: int, operands: Sequence[Value | None]) -> None:
    """Check the number and the types of a node's operands.

    Raises:
        Refused: the operator of this opset does not take them, or there is none.
    """
    given = [value for value in operands if value is not None]
    if op_type in _BODIES and opset < 13 and not all(value.is_tensor for value in given):
        raise Refused(f"{op_type} carries tensors only")
    if op_type in _BROADCASTING_LATER and opset < 8 and len({str(value.shapes) for value in given}) > 1:
        raise Refused(f"{op_type} does not broadcast")
    if any(not value.is_tensor and value.samples[0].dtype is et.BF16 for value in given):
        raise Refused("sequences hold no bfloat16")
    if domain == "" and op_type not in _UNKNOWN:
        _check_presence(_schema(op_type, opset, domain), operands)
    bound: dict[str, ElementType] = {}
    types = _types_of(domain, op_type, opset)
    for number, value in enumerate(operands if types else ()):
        variable, known = types[min(number, len(types) - 1)]  # the last parameter may stand for any number of operands
        if number >= len(types):
            variable = f"{variable} {number}"  # which may have other types
        if value is None or not value.is_tensor or not known:
            continue
        if value.dtype.onnx not in known:
            raise Refused(f"{op_type} takes no {value.dtype.name}")
        if bound.setdefault(variable, value.dtype) is not value.dtype:
            raise Refused(f"{op_type} takes one type for {variable}")


def _check_presence(schema: onnx.defs.OpSchema, operands: Sequence[Value | None]) -> None:
    needed = onnx.defs.OpSchema.FormalParameterOption.Single
    if len(operands) < schema.min_input or any(
        value is None and formal.option == needed for value, formal in zip(operands, schema.inputs, strict=False)
    ):
        raise Refused(f"{schema.name} has more inputs")


def known_attributes(domain: str, op_type: str, opset: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are given, without defaults that the operator of an older opset does not know.

    Raises:
        Refused: it does not know another one, or there is no such operator.
    """
    found = {name: value for name, value in given.items() if value is not None}
    if domain or op_type in _UNKNOWN:
        return found
    known, newest = (_schema(op_type, version, domain).attributes for version in (opset, None))
    for name in set(found) - set(known):
        default = newest[name].default_value if name in newest else None
        if default is None or not default.name or helper.get_attribute_value(default) != found.pop(name):
            raise Refused(f"{op_type} has no {name}")
    return found


@functools.lru_cache(maxsize=4096)
def _types_of(domain: str, op_type: str, opset: int) -> tuple[tuple[str, frozenset[int]], ...]:
    """Return the type variable of each input, and the element types that it allows: none where nobody names one."""
    if domain == "com.microsoft":
        return _types(_contrib_schemas().get(op_type))
    if domain not in ("", "ai.onnx.ml") or op_type in _UNKNOWN:
        return ()
    version = opset if not domain else 5 if op_type == "TreeEnsemble" else 3
    return _types(_schema(op_type, version, domain))


def _types(schema: Any) -> tuple[tuple[str, frozenset[int]], ...]:
    found = []
    for each in () if schema is None else schema.inputs:
        names = [name[7:-1] for name in each.types if name.startswith("tensor(")]
        variable = each.typeStr if hasattr(each, "typeStr") else each.type_str  # onnxruntime's name, onnx's
        found.append((variable, frozenset(_ONNX_NAMES[name] for name in names if name in _ONNX_NAMES)))
    return tuple(found)


def _schema(op_type: str, opset: int | None, domain: str) -> onnx.defs.OpSchema:
    """Return the schema of an opset, the newest one without an opset.

    Raises:
        Refused: the opset has no such operator.
    """
    try:
        return onnx.defs.get_schema(op_type, domain) if opset is None else onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError as reason:
        raise Refused(f"{op_type} is newer, or older") from reason


@functools.cache
def _contrib_schemas() -> Mapping[str, Any]:
    known = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    return {schema.name: schema for schema in known if schema.domain == "com.microsoft"}
