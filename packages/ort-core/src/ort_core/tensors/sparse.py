"""SparseArray: the run-time value of an ONNX sparse tensor, in coordinate form."""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen


@frozen
class SparseArray:
    """Non-zero values and where they stand.

    ``values`` has shape [nnz]; ``indices`` is int64, either [nnz] (positions in the flattened dense tensor) or
    [nnz, rank] (coordinates); ``shape`` is the dense shape.
    """

    values: np.ndarray
    indices: np.ndarray
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.values.dtype

    def linear_indices(self) -> np.ndarray:
        """Return positions in the flattened dense tensor, int64 [nnz]."""
        if self.indices.ndim == 1:
            return self.indices
        return np.ravel_multi_index(tuple(self.indices.T), self.shape).astype(np.int64)

    def dense(self) -> np.ndarray:
        """Return the dense array: zeros, or empty texts, where no value stands."""
        size = int(np.prod(self.shape, dtype=np.int64))
        out = np.full(size, "", object) if self.values.dtype == object else np.zeros(size, self.values.dtype)
        out[self.linear_indices()] = self.values
        return out.reshape(self.shape)
