"""OutputSizes: a warning, in onnxruntime's words, where a run gives an output of another shape than its model declares.

What a model declares of its outputs is a claim: exporters write the batch that they traced. The run's result stands.
Runs of a signature that is known go by one native call, and are warned of once: when the signature was learned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.ir.types import TensorType, ValueType
from ort_core.tensors.device_array import DeviceArray

if TYPE_CHECKING:
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

    def check(self, names: Sequence[str] | None, results: Sequence[RuntimeValue]) -> None:
        """Warn of every result that is not as declared; ``names`` are those of the results, all outputs if ``None``."""
        for name, result in zip(names or self._names, results):
            declared = self._declared.get(name)
            if declared is not None and isinstance(result, (np.ndarray, DeviceArray)):
                _check(name, declared, tuple(result.shape))


def _check(name: str, declared: tuple[int, ...], found: tuple[int, ...]) -> None:
    if len(declared) == len(found) and all(size in (-1, other) for size, other in zip(declared, found, strict=True)):
        return
    log.warning(
        "Expected shape from model of %s does not match actual shape of %s for output %s",
        _text(declared), _text(found), name,
    )  # fmt: skip


def _text(shape: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"
