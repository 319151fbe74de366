"""TypeProto to ValueType and back."""

from __future__ import annotations

import onnx

from ort_core.errors import InvalidGraph
from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import (
    DataType,
    MapType,
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    ValueType,
)
from ort_core.onnx_io.utf8 import check_text

_MAX_DEPTH = 32  # types within types; real models nest two or three


def load_type(proto: onnx.TypeProto, where: str, depth: int = 0) -> ValueType | None:
    """Return the type, or ``None`` when the proto says nothing.

    Raises:
        InvalidGraph: an unknown element type.
    """
    if depth > _MAX_DEPTH:
        raise InvalidGraph(f"the type of {where!r} is nested more than {_MAX_DEPTH} deep")
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        dtype = _element(tensor.elem_type, where)
        if dtype is DataType.UNDEFINED:
            return None
        return TensorType(dtype, _shape(tensor.shape, where) if tensor.HasField("shape") else None)
    if kind == "sparse_tensor_type":
        sparse = proto.sparse_tensor_type
        shape = _shape(sparse.shape, where) if sparse.HasField("shape") else None
        return SparseTensorType(_element(sparse.elem_type, where), shape)
    if kind == "sequence_type":
        return SequenceType(_required(load_type(proto.sequence_type.elem_type, where, depth + 1), where))
    if kind == "optional_type":
        return OptionalType(_required(load_type(proto.optional_type.elem_type, where, depth + 1), where))
    if kind == "map_type":
        key = _element(proto.map_type.key_type, where)
        return MapType(key, _required(load_type(proto.map_type.value_type, where, depth + 1), where))
    if kind == "opaque_type":
        check_text(proto.opaque_type.domain, proto.opaque_type.name)
        return OpaqueType(proto.opaque_type.domain, proto.opaque_type.name)
    return None


def save_type(value_type: ValueType) -> onnx.TypeProto:
    """Return the proto of a type; anonymous and computed dimensions are written as their text."""
    proto = onnx.TypeProto()
    if isinstance(value_type, (TensorType, SparseTensorType)):
        field = proto.tensor_type if isinstance(value_type, TensorType) else proto.sparse_tensor_type
        field.elem_type = int(value_type.dtype)
        if value_type.shape is not None:
            field.shape.SetInParent()
            for dim in value_type.shape:
                _save_dim(field.shape.dim.add(), dim)
    elif isinstance(value_type, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(save_type(value_type.element))
    elif isinstance(value_type, OptionalType):
        proto.optional_type.elem_type.CopyFrom(save_type(value_type.element))
    elif isinstance(value_type, MapType):
        proto.map_type.key_type = int(value_type.key)
        proto.map_type.value_type.CopyFrom(save_type(value_type.value))
    else:
        proto.opaque_type.domain, proto.opaque_type.name = value_type.domain, value_type.name
    return proto


def _save_dim(proto: onnx.TensorShapeProto.Dimension, dim: Dim) -> None:
    if isinstance(dim, int):
        proto.dim_value = dim
    elif isinstance(dim, SymbolicDim):
        proto.dim_param = str(dim)


def _shape(proto: onnx.TensorShapeProto, where: str) -> Shape:
    return tuple(_dim(dim, where) for dim in proto.dim)


def _dim(proto: onnx.TensorShapeProto.Dimension, where: str) -> Dim:
    kind = proto.WhichOneof("value")
    if kind == "dim_value":
        # Exporters write -1 for "unknown"; onnxruntime reads every size below zero so.
        return proto.dim_value if proto.dim_value >= 0 else None
    if kind == "dim_param" and proto.dim_param:
        check_text(proto.dim_param)
        return None if "\0" in proto.dim_param else SymbolicDim.named(proto.dim_param)  # a mark of keys: no name has it
    return None


def _element(number: int, where: str) -> DataType:
    try:
        return DataType(number)
    except ValueError as error:
        raise InvalidGraph(f"{where!r} has the unknown element type {number}") from error


def _required(value_type: ValueType | None, where: str) -> ValueType:
    if value_type is None:
        raise InvalidGraph(f"the element type of {where!r} is missing")
    return value_type
