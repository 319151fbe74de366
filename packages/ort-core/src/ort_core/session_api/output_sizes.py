"""OutputSizes: a warning, in onnxruntime's words, where a run gives an output of another shape than its model declares.

What a model declares of its outputs is a claim: exporters write the batch that they traced. The run's result stands.
Another element type is an error: only an operator of a user that does not state its types can give one.
Runs of a signature that is known go by one native call, and are warned of once: when the signature was learned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import RuntimeException
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.tensors.device_array import DeviceArray

if TYPE_CHECKING:
    from ort_core.ir.dims import Dim
    from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)


class OutputSizes:
    """What is declared of the shapes of a model's outputs; -1 is a size without a number."""

    def __init__(self, declared: Mapping[str, ValueType | None]) -> None:
        self._names = tuple(declared)
        self._declared = {
            name: tuple(dim if isinstance(dim, int) else -1 for dim in known.shape)
            for name, known in declared.items()
            if isinstance(known, TensorType) and known.shape is not None
        }
        self._types = {
            name: known.dtype
            for name, known in declared.items()
            if isinstance(known, TensorType) and known.dtype is not DataType.UNDEFINED
        }

    def follow(self, computed: Mapping[str, ValueType | None]) -> bool:
        """Return whether every size that is declared as a number is one for all inputs: no run needs to be warned of.

        ``computed`` are the types that inference found, by name.
        """
        return all(
            isinstance(known := computed.get(name), TensorType)
            and known.shape is not None
            and _agree(shape, known.shape)
            for name, shape in self._declared.items()
        )

    def check(self, names: Sequence[str] | None, results: Sequence[RuntimeValue]) -> None:
        """Warn of every result that is not as declared; ``names`` are those of the results, all outputs if ``None``.

        Raises:
            RuntimeException: a result has another element type.
        """
        for name, result in zip(names or self._names, results):
            if not isinstance(result, (np.ndarray, DeviceArray)):
                continue
            if (dtype := self._types.get(name)) is not None and result.dtype != dtype.numpy:
                raise RuntimeException(
                    f"output {name!r} is {result.dtype}, the model declares tensor({dtype.text}). An operator that "
                    "does not state its types gave another: annotate the result of its kernel, or convert with .astype."
                )
            if (declared := self._declared.get(name)) is not None:
                _check(name, declared, tuple(result.shape))


def _check(name: str, declared: tuple[int, ...], found: tuple[int, ...]) -> None:
    if len(declared) == len(found):
        for size, other in zip(declared, found, strict=True):
            if size not in (-1, other):
                break
        else:
            return
    log.warning(
        "Expected shape from model of %s does not match actual shape of %s for output %s",
        _text(declared), _text(found), name,
    )  # fmt: skip


def _agree(declared: Sequence[int], computed: Sequence[Dim]) -> bool:
    return len(declared) == len(computed) and all(size in (-1, other) for size, other in zip(declared, computed))


def _text(shape: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"
