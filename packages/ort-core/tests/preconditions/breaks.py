"""One broken precondition at a time: ranks, sizes, types, contents and presence of inputs, values of attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import onnx
from node_cases import NodeCase
from onnx import AttributeProto, helper

Broken = tuple[str, NodeCase]
OTHER_TYPE = {"float32": "float64", "float64": "float32", "float16": "float32", "int64": "int32", "int32": "int64",
              "uint8": "int8", "int8": "uint8", "bool": "float32", "int16": "int32", "uint16": "int32",
              "uint32": "int32", "uint64": "int64"}  # fmt: skip
MAX_AXES = 4
MAX_CONTENTS = 12


def breaks(case: NodeCase) -> Iterator[Broken]:
    """Yield a case's variants, each with one thing changed, and what that is."""
    for index, array in enumerate(case.inputs):
        if array is not None:
            for what, other in _inputs(array):
                yield f"input {index}: {what}", case.with_input(index, other)
    yield from _absences(case)
    for attribute in case.attributes:
        yield f"without {attribute.name}", case.with_attribute(attribute.name, None)
        for value in _values(attribute):
            yield f"{attribute.name} = {value}", _changed(case, attribute.name, value, attribute.type)
    yield from _unsaid(case)


def _inputs(array: np.ndarray) -> Iterator[tuple[str, np.ndarray | None]]:
    yield "one more axis before", array[None]
    yield "one more axis behind", array[..., None]
    if array.ndim:
        yield "no axes", np.array(array.reshape(-1)[0] if array.size else 0, array.dtype)
        if array.shape[0]:
            yield "one axis less", array[0]
    for axis, size in list(enumerate(array.shape))[:MAX_AXES]:
        for wanted in sorted({size + 1, max(size - 1, 0), 0, 1} - {size}):
            yield f"size {wanted} of axis {axis}", _resized(array, axis, wanted)
    other = OTHER_TYPE.get(array.dtype.name)
    if other is not None:
        yield f"type {other}", array.astype(other)
    if array.dtype.kind in "iu" and 0 < array.size <= MAX_CONTENTS:
        yield from _contents(array)


def _resized(array: np.ndarray, axis: int, size: int) -> np.ndarray:
    if not array.shape[axis]:
        return np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    return np.take(array, np.arange(size) % array.shape[axis], axis)


def _contents(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    changes = [("zero", 0), ("one more", None), ("large", min(np.iinfo(array.dtype).max, 1000))]
    if array.dtype.kind == "i":
        changes += [("negative", -1), ("far negative", max(np.iinfo(array.dtype).min, -1000))]
    limit = int(np.iinfo(array.dtype).max)
    for what, value in changes:
        for place, label in ((0, "first"), (array.size - 1, "last")):
            other = array.copy().reshape(-1)
            other[place] = (int(other[place]) + 1) % limit if value is None else value
            if not np.array_equal(other, array.reshape(-1)):
                yield f"{label} content {what}", other.reshape(array.shape)


def _absences(case: NodeCase) -> Iterator[Broken]:
    for index, array in enumerate(case.inputs):
        if array is not None:
            yield f"input {index}: left out", case.with_input(index, None)
            if index and any(other is not None for other in case.inputs[index + 1 :]):
                yield f"no input from {index} on", _truncated(case, index)


def _truncated(case: NodeCase, count: int) -> NodeCase:
    for index in range(count, len(case.inputs)):
        case = case.with_input(index, None)
    return case


def _values(attribute: AttributeProto) -> Iterator[object]:
    """Yield values that an attribute does not have."""
    kind = attribute.type
    if kind == AttributeProto.INT:
        numbers = (-1, 0, 1, 2, 3, 7, -7, attribute.i + 1, attribute.i * 2 + 1)
        yield from dict.fromkeys([v for v in numbers if v != attribute.i])
        yield 2**31
        yield -(2**31)
    elif kind == AttributeProto.FLOAT:
        yield from (v for v in (0.0, -1.0, float("nan")) if v != attribute.f)
    elif kind == AttributeProto.STRING:
        own = attribute.s.decode()
        yield from dict.fromkeys(word for word in ("BOGUS", "", own.upper(), own.lower(), own.title()) if word != own)
    elif kind == AttributeProto.INTS:
        own = list(attribute.ints)
        yield own[:-1]
        yield [*own, 1]
        for place in dict.fromkeys((0, len(own) - 1)) if own else ():
            yield from ([*own[:place], v, *own[place + 1 :]] for v in (-1, 0, 7, 1000, -1000) if v != own[place])
    elif kind in (AttributeProto.FLOATS, AttributeProto.STRINGS):
        own = list(attribute.floats if kind == AttributeProto.FLOATS else attribute.strings)
        yield own[:-1]
        yield own[: len(own) // 2]
        yield []
        if own:
            yield [*own, own[-1]]


def _changed(case: NodeCase, name: str, value: object, kind: int) -> NodeCase:
    return case.with_attribute(name, helper.make_attribute(name, value, attr_type=kind))


def _unsaid(case: NodeCase) -> Iterator[Broken]:
    """Yield attributes that the schema knows and the case does not give."""
    given = {attribute.name for attribute in case.attributes}
    for name, kind, default in declared_attributes(case.domain, case.op_type, case.opset):
        if name in given:
            continue
        values: tuple[object, ...] = ()
        if kind == AttributeProto.INT:
            values = (-1, 0, 1, 2, 3, 7, -7, 1000)
        elif kind == AttributeProto.FLOAT:
            values = (0.0, -1.0)
        elif kind == AttributeProto.STRING:
            values = ("BOGUS",)
        elif kind == AttributeProto.INTS:
            values = ([-1], [1], [1, 1], [0, 0], [1, 1, 1, 1], [-3, 2])
        elif kind == AttributeProto.FLOATS:
            values = ([1.0], [1.0, -1.0])
        for value in values:
            if value != default:
                yield f"{name} = {value}", _changed(case, name, value, kind)


@functools.cache
def declared_attributes(domain: str, op_type: str, opset: int) -> tuple[tuple[str, int, object], ...]:
    """Return name, kind and default of each attribute of an operator, none where no schema is known."""
    if domain.startswith("com.microsoft"):
        found = contrib_schemas().get((domain, op_type))
    else:
        try:
            found = onnx.defs.get_schema(op_type, opset, domain)
        except onnx.defs.SchemaError:
            return ()
    if found is None:
        return ()
    return tuple(
        (name, int(attribute.type), _default(attribute)) for name, attribute in sorted(found.attributes.items())
    )


def _default(attribute: object) -> object:
    value = getattr(attribute, "default_value", None)
    return helper.get_attribute_value(value) if isinstance(value, AttributeProto) and value.name else None


@functools.cache
def contrib_schemas() -> dict[tuple[str, str], object]:
    """Return what onnxruntime declares, by domain and name."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {(each.domain, each.name): each for each in state.get_all_operator_schema()}
