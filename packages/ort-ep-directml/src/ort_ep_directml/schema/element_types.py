"""Element types of DirectML's tensors, and which of ONNX's they are."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import DataType


class ElementType(enum.IntEnum):
    """Element types, numbered as in ``DML_TENSOR_DATA_TYPE``."""

    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self]

    @property
    def text(self) -> str:
        """The name in plans."""
        return self.name.lower()

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype of one element.

        Raises:
            KeyError: four bits have none.
        """
        return _NUMPY[self]


_BITS = {
    **{ElementType(n): 32 for n in (1, 3, 6)},
    **{ElementType(n): 16 for n in (2, 4, 7)},
    **{ElementType(n): 8 for n in (5, 8)},
    **{ElementType(n): 64 for n in (9, 10, 11)},
    **{ElementType(n): 4 for n in (12, 13)},
}
_NUMPY = {each: np.dtype(each.name.lower()) for each in ElementType if _BITS[each] >= 8}

FROM_ONNX: Mapping[DataType, ElementType] = {
    DataType.FLOAT: ElementType.FLOAT32,
    DataType.FLOAT16: ElementType.FLOAT16,
    DataType.DOUBLE: ElementType.FLOAT64,
    DataType.UINT8: ElementType.UINT8,
    DataType.UINT16: ElementType.UINT16,
    DataType.UINT32: ElementType.UINT32,
    DataType.UINT64: ElementType.UINT64,
    DataType.INT8: ElementType.INT8,
    DataType.INT16: ElementType.INT16,
    DataType.INT32: ElementType.INT32,
    DataType.INT64: ElementType.INT64,
    DataType.BOOL: ElementType.UINT8,
}
"""Element types of ONNX that DirectML has; booleans are bytes that hold 0 or 1."""
