"""The protocol's element types, and tensors as its bytes.

Numbers lie in little-endian order without gaps; of BYTES each element is its length in four bytes and then itself.
Source: the Open Inference Protocol, version 2, "Tensor Data" and the binary tensor data extension.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ort_serve.failures import InvalidRequest

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Datatype:
    """One element type.

    Attributes:
        name: the protocol's name, such as ``FP32``.
        dtype: numpy's; object for BYTES, whose elements are str.
        element: its name in ``tensor(...)``, onnxruntime's texts of types.
        config_name: its name in Triton's model configurations.
    """

    name: str
    dtype: np.dtype
    element: str
    config_name: str

    @property
    def is_text(self) -> bool:
        """Whether elements have lengths of their own."""
        return self.name == "BYTES"


_ROWS = (
    ("BOOL", np.bool_, "bool", "TYPE_BOOL"),
    ("UINT8", np.uint8, "uint8", "TYPE_UINT8"),
    ("UINT16", np.uint16, "uint16", "TYPE_UINT16"),
    ("UINT32", np.uint32, "uint32", "TYPE_UINT32"),
    ("UINT64", np.uint64, "uint64", "TYPE_UINT64"),
    ("INT8", np.int8, "int8", "TYPE_INT8"),
    ("INT16", np.int16, "int16", "TYPE_INT16"),
    ("INT32", np.int32, "int32", "TYPE_INT32"),
    ("INT64", np.int64, "int64", "TYPE_INT64"),
    ("FP16", np.float16, "float16", "TYPE_FP16"),
    ("FP32", np.float32, "float", "TYPE_FP32"),
    ("FP64", np.float64, "double", "TYPE_FP64"),
    ("BF16", ml_dtypes.bfloat16, "bfloat16", "TYPE_BF16"),
    ("BYTES", np.object_, "string", "TYPE_STRING"),
)
DATATYPES = {name: Datatype(name, np.dtype(dtype), element, config) for name, dtype, element, config in _ROWS}
BY_ELEMENT = {datatype.element: datatype for datatype in DATATYPES.values()}
BY_CONFIG_NAME = {datatype.config_name: datatype for datatype in DATATYPES.values()}
_BY_DTYPE = {datatype.dtype: datatype for datatype in DATATYPES.values()}


def datatype_named(name: object) -> Datatype:
    """Return the element type of a request's text.

    Raises:
        InvalidRequest: there is none of that name.
    """
    found = DATATYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidRequest(f"datatype {name!r} is not one of the protocol's: {', '.join(DATATYPES)}")
    return found


def datatype_of(array: np.ndarray) -> Datatype:
    """Return the element type of a result.

    Raises:
        InvalidRequest: the protocol has none for it, such as 4-bit integers.
    """
    found = _BY_DTYPE.get(array.dtype) or (DATATYPES["BYTES"] if array.dtype.kind in "OSU" else None)
    if found is None:
        raise InvalidRequest(f"the protocol has no datatype for {array.dtype}; ask for other outputs of this model")
    return found


def count_of(shape: Sequence[int]) -> int:
    """Return the number of elements."""
    return math.prod(shape)


def array_from_bytes(name: str, datatype: Datatype, shape: tuple[int, ...], raw: bytes | memoryview) -> np.ndarray:
    """Return the tensor that ``raw`` holds, without a copy where numbers lie aligned; not writable then.

    Raises:
        InvalidRequest: the count of bytes is not that of the shape, or a text is broken.
    """
    if datatype.is_text:
        return _texts(name, shape, raw)
    expected = count_of(shape) * datatype.dtype.itemsize
    if len(raw) != expected:
        raise InvalidRequest(
            f"input {name!r}: {datatype.name} of shape {list(shape)} takes {expected} bytes; found {len(raw)}"
        )
    if datatype.name == "BOOL":  # any byte but 0 is true; numpy must not see other bytes as booleans
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    flat = np.frombuffer(raw, datatype.dtype)
    if sys.byteorder == "big":
        flat = flat.byteswap()
    return (flat if flat.flags.aligned else flat.copy()).reshape(shape)


def array_to_bytes(array: np.ndarray) -> bytes:
    """Return a tensor's bytes; for BYTES with each element's length before it."""
    if array.dtype.kind in "OSU":
        parts: list[bytes] = []
        for item in array.ravel():
            text = item if isinstance(item, bytes) else text_of(item).encode()
            parts += (_LENGTH.pack(len(text)), text)
        return b"".join(parts)
    if sys.byteorder == "big":
        return array.byteswap().tobytes()
    return array.tobytes()


def text_of(item: object) -> str:
    """Return an element of a result's BYTES. What is no Unicode is written with backslashes."""
    if isinstance(item, bytes):
        return item.decode("utf-8", "backslashreplace")
    return str(item).encode("utf-8", "backslashreplace").decode()


def decoded_text(name: str, raw: bytes | memoryview) -> str:
    """Return one element of BYTES as text.

    Raises:
        InvalidRequest: it is not UTF-8, which the strings of ONNX are.
    """
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"input {name!r}: an element of BYTES is not UTF-8 ({error.reason} at byte {error.start}), which ONNX's "
            "strings are; send binary data as UINT8"
        ) from error


def _texts(name: str, shape: tuple[int, ...], raw: bytes | memoryview) -> np.ndarray:
    found: list[str] = []
    count, at, end = count_of(shape), 0, len(raw)
    view = memoryview(raw)
    while at < end:
        if end - at < _LENGTH.size:
            raise InvalidRequest(
                f"input {name!r}: {end - at} bytes are left where the length of an element is expected"
            )
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > end - at:
            raise InvalidRequest(f"input {name!r}: an element says {length} bytes, {end - at} are left")
        if len(found) == count:
            raise InvalidRequest(f"input {name!r}: more than the {count} elements of shape {list(shape)}")
        found.append(decoded_text(name, view[at : at + length]))
        at += length
    if len(found) != count:
        raise InvalidRequest(f"input {name!r}: {len(found)} elements, shape {list(shape)} has {count}")
    array = np.empty(count, object)
    array[:] = found
    return array.reshape(shape)
