"""ResultBorder: what a provider returns is compared with what was inferred, before anything reads it.

A result of another element type or shape would be read as what was inferred: as garbage, or behind its end. Sizes are
compared where they are numbers, or follow from sizes of what was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import EPFail
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.types import DataType, TensorType
from ort_core.tensors.device_array import DeviceArray

if TYPE_CHECKING:
    from ort_core.ir.types import Shape
    from ort_core.ir.values import Value
    from ort_core.tensors.runtime_value import RuntimeValue

_Signature = tuple[tuple[int, ...] | None, ...]
MAX_KNOWN = 64  # signatures of shapes whose expected results are kept


class ResultBorder:
    """The border behind some nodes of a provider. Safe from many threads.

    Args:
        provider: its name, for errors.
        place: what ran, for errors, such as ``partition 'cuda-0'``.
        reads: what it is given, in order.
        writes: what it returns, in order; ``None`` where nobody wants a result.
    """

    def __init__(
        self, provider: str, place: str, reads: Sequence[Value | None], writes: Sequence[Value | None]
    ) -> None:
        self._provider, self._place = provider, place
        self._reads, self._writes = tuple(reads), tuple(writes)
        self._shapes: dict[_Signature, tuple[Shape | None, ...]] = {}

    def check(self, arguments: Sequence[RuntimeValue], results: Sequence[RuntimeValue]) -> None:
        """Compare results.

        Raises:
            EPFail: one is not what was inferred; the message names the provider, the node and both.
        """
        signature = tuple([_shape_of(value) for value in arguments])
        expected = self._shapes.get(signature)
        if expected is None:
            expected = self._expected(signature)
            if len(self._shapes) < MAX_KNOWN:
                self._shapes[signature] = expected
        for value, result, shape in zip(self._writes, results, expected):
            if value is not None and isinstance(value.type, TensorType):
                self._check(value, value.type, shape, result)

    def _check(self, value: Value, known: TensorType, shape: Shape | None, result: RuntimeValue) -> None:
        if not isinstance(result, (np.ndarray, np.generic, DeviceArray)):
            raise self._wrong(value, known, shape, f"a {type(result).__name__}")
        is_other_type = known.dtype is not DataType.UNDEFINED and result.dtype != known.dtype.numpy
        if is_other_type or not _fits(tuple(result.shape), shape):
            raise self._wrong(value, known, shape, f"{result.dtype}{list(result.shape)}")

    def _wrong(self, value: Value, known: TensorType, shape: Shape | None, found: str) -> EPFail:
        sizes = "of any shape" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"
        node = value.producer
        made = "" if node is None else f", result of {node.describe()}"
        return EPFail(
            f"{self._provider} returned {found} for {value.name!r} of {self._place}{made}; expected "
            f"{known.dtype.text}{sizes}. It is a fault of the provider: run the model without it, and tell its authors."
        )

    def _expected(self, signature: _Signature) -> tuple[Shape | None, ...]:
        sizes = self._sizes(signature)
        return tuple(
            tuple(_size(dim, sizes) for dim in value.type.shape)
            if value is not None and isinstance(value.type, TensorType) and value.type.shape is not None
            else None
            for value in self._writes
        )

    def _sizes(self, signature: _Signature) -> dict[str, int]:
        """Return the named sizes that what was given tells; one that it tells twice and differently is unknown."""
        found: dict[str, int] = {}
        unknown: set[str] = set()
        for value, shape in zip(self._reads, signature, strict=False):
            known = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
            if shape is None or known is None or len(known) != len(shape):
                continue
            for dim, size in zip(known, shape, strict=True):
                if isinstance(dim, SymbolicDim) and dim.name is not None and found.setdefault(dim.name, size) != size:
                    unknown.add(dim.name)
        return {name: size for name, size in found.items() if name not in unknown}


def _shape_of(value: RuntimeValue) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, (np.ndarray, DeviceArray)) else None


def _size(dim: int | SymbolicDim | None, sizes: dict[str, int]) -> int | None:
    try:
        found = dim.substitute(sizes) if isinstance(dim, SymbolicDim) else dim
    except ZeroDivisionError:
        return None
    return found if isinstance(found, int) else None


def _fits(found: tuple[int, ...], expected: Shape | None) -> bool:
    if expected is None:
        return True
    return len(found) == len(expected) and all(e is None or e == size for size, e in zip(found, expected, strict=True))
