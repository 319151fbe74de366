"""The choices that a caller makes by name: element types, formats and modes of quantized models."""

from __future__ import annotations

from enum import Enum
from typing import Self

import numpy as np
from ml_dtypes import float8_e4m3fn, int4, uint4
from onnx import TensorProto

from ort_quantization.errors import InvalidQuantization

MICROSOFT = "com.microsoft"
"""The domain of contributed operators."""


class _Named(Enum):
    """An enumeration that prints as its name and is found by it."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls, name: str) -> Self:
        """Return the member of a name.

        Raises:
            ValueError: there is none of that name.
        """
        if name not in cls.__members__:
            raise ValueError(f"{name!r} is no {cls.__name__}; known: {', '.join(cls.__members__)}")
        return cls[name]


class QuantizationMode(_Named):
    """Whether products read integers that are quantized while the model runs, or by parameters known before."""

    IntegerOps = 0
    QLinearOps = 1


class QuantizedValueType(_Named):
    """Where a quantized value comes from."""

    Input = 0
    Initializer = 1


class QuantFormat(_Named):
    """How a statically quantized model is written: quantized operators, or pairs of Quantize and DequantizeLinear."""

    QOperator = 0
    QDQ = 1


class QuantType(_Named):
    """The element types that weights and activations are quantized to."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def tensor_type(self) -> int:
        """The number of ONNX's element type."""
        return _TENSOR_TYPES[self]


_TENSOR_TYPES: dict[QuantType, int] = {
    QuantType.QInt8: TensorProto.INT8,
    QuantType.QUInt8: TensorProto.UINT8,
    QuantType.QFLOAT8E4M3FN: TensorProto.FLOAT8E4M3FN,
    QuantType.QInt16: TensorProto.INT16,
    QuantType.QUInt16: TensorProto.UINT16,
    QuantType.QInt4: TensorProto.INT4,
    QuantType.QUInt4: TensorProto.UINT4,
}

NUMPY_TYPES: dict[int, np.dtype] = {
    TensorProto.INT8: np.dtype(np.int8),
    TensorProto.UINT8: np.dtype(np.uint8),
    TensorProto.INT16: np.dtype(np.int16),
    TensorProto.UINT16: np.dtype(np.uint16),
    TensorProto.FLOAT8E4M3FN: np.dtype(float8_e4m3fn),
    TensorProto.INT4: np.dtype(int4),
    TensorProto.UINT4: np.dtype(uint4),
}
"""numpy's type of each quantized element type; 4-bit numbers take a byte each until a tensor packs them."""

Range = tuple[int, int]

RANGES: dict[int, Range] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT4: (-8, 7),
}
"""The numbers of each integer type."""

SYMMETRIC_RANGES: dict[int, Range] = {TensorProto.INT8: (-127, 127), TensorProto.INT16: (-32767, 32767)}
"""Where zero lies in the middle; other types keep their whole range."""

REDUCED_RANGES: dict[int, Range] = {
    TensorProto.UINT8: (0, 127),
    TensorProto.INT8: (-64, 64),
    TensorProto.UINT16: (0, 32767),
    TensorProto.INT16: (-16384, 16384),
    TensorProto.UINT4: (0, 7),
    TensorProto.INT4: (-4, 3),
}
"""One bit less: sums of two products of bytes then fit 16 bits, for processors that add them so."""


def tensor_type_of(chosen: QuantType | int) -> int:
    """Return ONNX's number of an element type that is given by name or by number.

    Raises:
        InvalidQuantization: it is no element type.
    """
    if isinstance(chosen, QuantType):
        return chosen.tensor_type
    if not isinstance(chosen, int) or chosen not in TensorProto.DataType.values():
        hint = f"; write QuantType.{chosen}" if str(chosen) in QuantType.__members__ else ""
        raise InvalidQuantization(f"{chosen!r} is no element type: a QuantType is expected{hint}")
    return int(chosen)


def type_name(tensor_type: int) -> str:
    """Return ONNX's name of an element type, such as ``INT8``."""
    return TensorProto.DataType.Name(tensor_type)
