"""Values in protobuf files, as ONNX's test data sets keep them: tensors, sequences, optionals and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message

from ort_core.errors import InvalidArgument, InvalidProtobuf
from ort_core.ir.constants import Constant
from ort_core.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from ort_core.onnx_io.tensor_proto import load_constant, save_constant

RunValue = object  # np.ndarray, list, dict or None, as the type says


def read_value(content: bytes, expected: ValueType | None) -> tuple[str, RunValue]:
    """Return the name that a file states (often empty) and its value; ``expected`` decides which proto it holds.

    Raises:
        InvalidProtobuf: the bytes are no such proto.
        InvalidGraph: the proto's parts do not fit together.
    """
    proto = _empty(expected)
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise InvalidProtobuf(f"the file is no {type(proto).__name__}, which {expected} needs") from error
    return proto.name, _load(proto)


def write_value(value: RunValue, name: str, declared: ValueType | None) -> bytes:
    """Return the bytes of a proto of the declared type that holds the value.

    Raises:
        InvalidArgument: no proto holds such a value.
    """
    return _save(value, name, declared).SerializeToString()


def _empty(expected: ValueType | None) -> Message:
    if isinstance(expected, SequenceType):
        return onnx.SequenceProto()
    if isinstance(expected, OptionalType):
        return onnx.OptionalProto()
    return onnx.MapProto() if isinstance(expected, MapType) else onnx.TensorProto()


def _load(proto: Message) -> RunValue:
    if isinstance(proto, onnx.TensorProto):
        return np.array(load_constant(proto).array())
    if isinstance(proto, onnx.SequenceProto):
        items = (*proto.tensor_values, *proto.sequence_values, *proto.map_values, *proto.optional_values)
        return [_load(item) for item in items]
    if isinstance(proto, onnx.OptionalProto):
        kind = onnx.OptionalProto.DataType.Name(proto.elem_type)
        field = {"TENSOR": "tensor_value", "SEQUENCE": "sequence_value", "MAP": "map_value"}.get(kind)
        return _load(getattr(proto, field)) if field is not None and proto.HasField(field) else None
    if isinstance(proto, onnx.MapProto):
        keys = [key.decode() for key in proto.string_keys] or list(proto.keys)
        values = _load(proto.values)
        return dict(zip(keys, values, strict=True)) if isinstance(values, list) else {}
    raise InvalidArgument(f"a {type(proto).__name__} holds no value")


def _save(value: RunValue, name: str, declared: ValueType | None) -> Message:
    if isinstance(declared, OptionalType):
        return _optional(value, name, declared.element)
    if isinstance(value, (np.ndarray, np.generic, int, float, str)):
        return save_constant(Constant.of(np.asarray(value)), name)
    if isinstance(value, Mapping):
        return _map(value, name, declared)
    if isinstance(value, Sequence):
        element = declared.element if isinstance(declared, SequenceType) else None
        return _sequence(value, name, element)
    raise InvalidArgument(
        f"value {name!r} of type {declared} is a {type(value).__name__}; no test data file holds that"
    )


def _sequence(items: Sequence[object], name: str, element: ValueType | None) -> onnx.SequenceProto:
    protos = [_save(item, "", element) for item in items]
    fields = {onnx.TensorProto: "tensor", onnx.SequenceProto: "sequence", onnx.MapProto: "map"}
    kind = fields[type(protos[0])] if protos else "tensor"
    proto = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.DataType.Value(kind.upper()))
    getattr(proto, f"{kind}_values").extend(protos)
    return proto


def _map(value: Mapping[object, object], name: str, declared: ValueType | None) -> onnx.MapProto:
    element = declared.value if isinstance(declared, MapType) else TensorType
    keys = list(value)
    key_type = int(declared.key) if isinstance(declared, MapType) else onnx.TensorProto.INT64
    proto = onnx.MapProto(name=name, key_type=key_type)
    if any(isinstance(key, str) for key in keys):
        proto.string_keys.extend(str(key).encode() for key in keys)
    else:
        proto.keys.extend(int(key) for key in keys)  # type: ignore[call-overload]  # keys of a map are integers or strings
    proto.values.CopyFrom(_sequence(list(value.values()), "", element if isinstance(element, ValueType) else None))
    return proto


def _optional(value: RunValue, name: str, element: ValueType) -> onnx.OptionalProto:
    proto = onnx.OptionalProto(name=name)
    if value is None:
        return proto
    inner = _save(value, "", element)
    kind = {onnx.TensorProto: "tensor", onnx.SequenceProto: "sequence", onnx.MapProto: "map"}[type(inner)]
    proto.elem_type = onnx.OptionalProto.DataType.Value(kind.upper())
    getattr(proto, f"{kind}_value").CopyFrom(inner)
    return proto
