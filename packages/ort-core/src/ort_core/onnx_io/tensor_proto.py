"""TensorProto to Constant and back: every element type, raw or typed fields, packed sub-byte types, external data."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import onnx

from ort_core.errors import InvalidGraph, MalformedGraph
from ort_core.ir.attributes import SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.types import DataType
from ort_core.onnx_io.external_data import ExternalFiles, parse_location
from ort_core.onnx_io.utf8 import check_text
from ort_core.tensors.packing import pack_bits, unpack_bits

_MAX_ELEMENTS = 1 << 48  # far above any memory; keeps products of hostile dimensions in range
_NARROW_INDICES = frozenset({DataType.INT8, DataType.INT16, DataType.INT32})
_INT32_TYPES = frozenset(
    DataType(n) for n in (2, 3, 4, 5, 6, 9, 10, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28)
)  # fmt: skip


def load_constant(proto: onnx.TensorProto, files: ExternalFiles | None = None) -> Constant:
    """Return the constant of a TensorProto; checks sizes at once and decodes later.

    Raises:
        InvalidGraph: unknown element type, a negative or huge dimension, or data that does not fit the shape.
        Fail: the external file may not or cannot be read.
    """
    try:
        dtype = DataType(proto.data_type)
    except ValueError:
        dtype = DataType.UNDEFINED
    if dtype is DataType.UNDEFINED:
        raise InvalidGraph(f"tensor {proto.name!r} has the unknown element type {proto.data_type}")
    shape = tuple(proto.dims)
    if shape and (min(shape) < 0 or math.prod([size or 1 for size in shape]) > _MAX_ELEMENTS):
        raise InvalidGraph(f"tensor {proto.name!r} has the impossible shape {list(shape)}")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return _external(proto, dtype, shape, files)
    if proto.HasField("segment"):
        raise InvalidGraph(f"tensor {proto.name!r} is stored in segments, which no ONNX version defines how to join")
    _check_stored_size(proto, dtype, shape)
    if dtype is not DataType.STRING and proto.HasField("raw_data"):
        return Constant(dtype, shape, lambda: _from_bytes(np.frombuffer(proto.raw_data, np.uint8), dtype, shape))
    return Constant(dtype, shape, lambda: _from_fields(proto, dtype).reshape(shape))


def storage_nbytes(dtype: DataType, size: int) -> int:
    """Return how many bytes ``size`` elements take in a file (sub-byte types are packed)."""
    return (size * dtype.bits + 7) // 8


def load_sparse(proto: onnx.SparseTensorProto) -> SparseConstant:
    """Return the constant of a SparseTensorProto, whose indices are int64.

    ONNX has no other ones; onnxruntime reads narrower ones, too, and writes the narrowest to files of ORT format.

    Raises:
        InvalidGraph: values, indices and dense shape do not fit together.
    """
    values, indices, shape = load_constant(proto.values), _widened(load_constant(proto.indices)), tuple(proto.dims)
    count = values.size
    fits = indices.shape == (count,) or indices.shape == (count, len(shape))
    if len(values.shape) != 1 or indices.dtype is not DataType.INT64 or not fits or any(d < 0 for d in shape):
        raise InvalidGraph(
            f"sparse tensor {proto.values.name!r}: values {list(values.shape)}, indices {list(indices.shape)} and "
            f"dense shape {list(shape)} do not fit together"
        )
    if math.prod(shape) > _MAX_ELEMENTS:
        raise InvalidGraph(f"sparse tensor {proto.values.name!r} has the impossible shape {list(shape)}")
    positions = indices.array()
    limit = np.array(shape) if positions.ndim == 2 else np.int64(math.prod(shape))
    if positions.size and (positions.min() < 0 or (positions >= limit).any()):
        raise InvalidGraph(f"sparse tensor {proto.values.name!r} has an index outside its shape {list(shape)}")
    return SparseConstant(values, indices, shape)


def _widened(indices: Constant) -> Constant:
    """Return signed integers as int64, others as they are."""
    if indices.dtype not in _NARROW_INDICES:
        return indices
    return Constant(DataType.INT64, indices.shape, lambda: indices.array().astype(np.int64))


def save_constant(constant: Constant, name: str) -> onnx.TensorProto:
    """Return a TensorProto with the data inside it."""
    proto = onnx.TensorProto(name=name, data_type=int(constant.dtype), dims=constant.shape)
    array = constant.array()
    if constant.dtype is DataType.STRING:
        proto.string_data.extend(_encode(item) for item in array.reshape(-1))
    else:
        proto.raw_data = to_bytes(array, constant.dtype)
    return proto


def save_sparse(constant: SparseConstant, name: str) -> onnx.SparseTensorProto:
    """Return a SparseTensorProto."""
    return onnx.SparseTensorProto(
        values=save_constant(constant.values, name), indices=save_constant(constant.indices, ""), dims=constant.shape
    )


def to_bytes(array: np.ndarray, dtype: DataType) -> bytes:
    """Return the bytes of an array as files store them: little-endian, sub-byte types packed from the low bits."""
    array = np.ascontiguousarray(array)
    if dtype.bits < 8:
        return pack_bits(array.reshape(-1).view(np.uint8), dtype.bits).tobytes()
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.tobytes()


def _external(
    proto: onnx.TensorProto, dtype: DataType, shape: tuple[int, ...], files: ExternalFiles | None
) -> Constant:
    if dtype is DataType.STRING:
        raise InvalidGraph(f"tensor {proto.name!r}: strings cannot lie in external data")
    entries = {entry.key: entry.value for entry in proto.external_data}
    check_text(*entries, *entries.values())
    where = parse_location(proto.name, entries)
    files = files or ExternalFiles(None)
    files.check(proto.name, where)
    name, nbytes = proto.name, storage_nbytes(dtype, math.prod(shape))
    return Constant(
        dtype, shape, lambda: _from_bytes(files.read(name, where, nbytes), dtype, shape), where.location, where.offset
    )


def _check_stored_size(proto: onnx.TensorProto, dtype: DataType, shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    if dtype is not DataType.STRING and proto.HasField("raw_data"):
        found, expected, unit = len(proto.raw_data), storage_nbytes(dtype, size), "bytes of raw data"
    else:
        found, expected, unit = len(_field(proto, dtype)), _field_length(dtype, size), "stored elements"
    if found != expected:
        raise MalformedGraph(
            f"tensor {proto.name!r} of type {dtype.text} and shape {list(shape)} needs {expected} {unit}, found {found}"
        )


def _field_length(dtype: DataType, size: int) -> int:
    if dtype.bits and 8 % dtype.bits == 0 and dtype.bits < 8:  # 6-bit elements take an entry each
        return -(-size // (8 // dtype.bits))
    return size * 2 if dtype in (DataType.COMPLEX64, DataType.COMPLEX128) else size


def _field(proto: onnx.TensorProto, dtype: DataType) -> Sequence[object]:
    if dtype is DataType.STRING:
        return proto.string_data
    if dtype in _INT32_TYPES:
        return proto.int32_data
    if dtype is DataType.INT64:
        return proto.int64_data
    if dtype in (DataType.UINT32, DataType.UINT64):
        return proto.uint64_data
    if dtype in (DataType.FLOAT, DataType.COMPLEX64):
        return proto.float_data
    return proto.double_data


def _from_bytes(raw: np.ndarray, dtype: DataType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.bits < 8:
        return unpack_bits(raw, dtype, math.prod(shape)).reshape(shape)
    if raw.ctypes.data % max(1, min(dtype.numpy.alignment, 16)):
        raw = raw.copy()  # an unaligned weight in a file would make every kernel slow, and some instructions fail
    array = raw.view(dtype.numpy)
    if sys.byteorder == "big":
        array = array.byteswap()
    if dtype is DataType.BOOL:
        array = raw != 0
    return array.reshape(shape)


def _from_fields(proto: onnx.TensorProto, dtype: DataType) -> np.ndarray:
    stored = _field(proto, dtype)
    if dtype is DataType.STRING:
        out = np.empty(len(proto.string_data), object)
        out[:] = [_decode(item) for item in proto.string_data]
        return out
    if dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
        parts = np.array(stored, np.float32 if dtype is DataType.COMPLEX64 else np.float64)
        return parts.view(dtype.numpy)
    if 8 % dtype.bits and dtype.bits < 8:
        return (np.array(stored, np.int64) & ((1 << dtype.bits) - 1)).astype(np.uint8).view(dtype.numpy)
    if dtype.bits < 8:
        packed = np.array(stored, np.int64).astype(np.uint8)
        return unpack_bits(packed, dtype, math.prod(proto.dims))
    if dtype in (DataType.FLOAT16, DataType.BFLOAT16):
        return np.array(stored, np.int64).astype(np.uint16).view(dtype.numpy)
    if dtype in _INT32_TYPES and dtype.is_float:
        return np.array(stored, np.int64).astype(np.uint8).view(dtype.numpy)
    if dtype in _INT32_TYPES:
        return np.array(stored, np.int64).astype(dtype.numpy)
    return np.array(stored, dtype.numpy)


def _decode(item: bytes) -> str:
    return item.decode("utf-8", "surrogateescape")  # bytes that are no UTF-8 survive a round trip


def _encode(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
