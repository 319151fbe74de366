"""Arrays under onnxruntime-genai's names."""

from __future__ import annotations

import numpy as np


class Tensor:
    """An array that is passed to and from a generation.

    Args:
        array: whose memory it shares.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.asarray(array)

    def as_numpy(self) -> np.ndarray:
        """Return the array."""
        return self._array

    def shape(self) -> list[int]:
        """Return its shape."""
        return list(self._array.shape)

    def type(self) -> str:
        """Return the name of its element type."""
        return self._array.dtype.name


class NamedTensors(dict[str, Tensor]):
    """Tensors by name."""

    def keys(self) -> list[str]:  # type: ignore[override]  # onnxruntime-genai gives a list
        """Return the names."""
        return list(super().keys())
