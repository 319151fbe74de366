"""The element types of random graphs, and the window within which a result of each may lie.

A window is relative to a value: a few dozen of the type's own steps for what is computed in it, a few steps for half
types, whose sums run in float32. Integers, booleans, text and the very narrow types have no window: they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto


@dataclass(frozen=True)
class ElementType:
    """An element type: its short name, ONNX's number, numpy's type, the relative window (0: exact)."""

    name: str
    onnx: int
    numpy: np.dtype
    window: float = 0.0

    @property
    def is_float(self) -> bool:
        """Whether values are computed with roundings."""
        return self.window > 0

    @property
    def least(self) -> float:
        """The least float above zero that every engine keeps: the least float32 is often flushed, halves are not."""
        if not self.is_float:
            return 0.0
        return float(max(np.finfo(np.float32).tiny, ml_dtypes.finfo(self.numpy).smallest_subnormal))


def _row(name: str, onnx: int, numpy: object, window: float = 0.0) -> ElementType:
    return ElementType(name, onnx, np.dtype(numpy), window)


F64 = _row("f64", TensorProto.DOUBLE, np.float64, 64 * 2.0**-52)
F32 = _row("f32", TensorProto.FLOAT, np.float32, 64 * 2.0**-23)
ROUNDED_F32 = _row("f32", TensorProto.FLOAT, np.float32, 2.0**-7)  # where a session may round it to bfloat16: by 2**-9
F16 = _row("f16", TensorProto.FLOAT16, np.float16, 4 * 2.0**-10)
BF16 = _row("bf16", TensorProto.BFLOAT16, ml_dtypes.bfloat16, 4 * 2.0**-7)
I64, I32 = _row("i64", TensorProto.INT64, np.int64), _row("i32", TensorProto.INT32, np.int32)
I16, I8 = _row("i16", TensorProto.INT16, np.int16), _row("i8", TensorProto.INT8, np.int8)
U64, U32 = _row("u64", TensorProto.UINT64, np.uint64), _row("u32", TensorProto.UINT32, np.uint32)
U16, U8 = _row("u16", TensorProto.UINT16, np.uint16), _row("u8", TensorProto.UINT8, np.uint8)
BOOL = _row("b", TensorProto.BOOL, np.bool_)
I4, U4 = _row("i4", TensorProto.INT4, ml_dtypes.int4), _row("u4", TensorProto.UINT4, ml_dtypes.uint4)
F8E4 = _row("f8e4", TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)
F8E5 = _row("f8e5", TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2)
TEXT = _row("text", TensorProto.STRING, object)

FLOATS = (F32, F64, F16, BF16)
COMMON_FLOATS = (F32, F32, F32, F16, F64)  # weights of a choice: most graphs are float32
SIGNED, UNSIGNED = (I64, I32, I16, I8), (U8, U16, U32, U64)
INTEGERS = (*SIGNED, *UNSIGNED)
NARROW = (I4, U4, F8E4, F8E5)
ALL = (*FLOATS, *INTEGERS, BOOL, *NARROW, TEXT)
_BY_NUMPY = {each.numpy: each for each in ALL}
_BY_ONNX = {each.onnx: each for each in ALL}


def of_array(array: np.ndarray) -> ElementType | None:
    """Return the element type of an array, ``None`` for one that graphs here do not use."""
    return _BY_NUMPY.get(array.dtype)


def of_number(number: int) -> ElementType | None:
    """Return the element type with ONNX's number."""
    return _BY_ONNX.get(number)
