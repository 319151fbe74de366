"""The filters of Resize along one axis: which inputs each output mixes, and with what weights.

``resized_axes`` says where outputs stand; weights are computed in float64 from there. Kernels, compiled code and
providers all ask here.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.frozen import frozen
from ort_core.ops.resized_axes import ResizedAxis

_F = np.float64


@frozen
class ResizeFilter:
    """A weight by distance: linear (a triangle) or cubic, widened by ``antialias`` where the axis shrinks."""

    cubic: bool
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def mixed_inputs(self, x: np.ndarray, axis: ResizedAxis) -> tuple[np.ndarray, np.ndarray]:
        """Return for each output the indices of the inputs that it mixes, and their weights.

        Args:
            x: where the outputs stand, ``[made]``.
            axis: its sizes and scale.

        Returns:
            Two arrays ``[made, inputs of an output]``, int64 and float64.
        """
        x = x.astype(_F)
        squeeze = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = math.ceil((2 if self.cubic else 1) / squeeze)
        if not self.cubic and not self.antialias:
            x = np.clip(x, 0, axis.size - 1)
        places = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = self._weight((places.astype(_F) - x[:, None]) * _F(squeeze))
        outside = (places < 0) | (places >= axis.size)
        if self.exclude_outside:
            weights = np.where(outside, _F(0), weights)
        if self.exclude_outside or self.antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(places, 0, axis.size - 1), weights

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        d = np.abs(distance)
        if not self.cubic:
            return np.maximum(1 - d, 0)
        a = _F(self.coefficient)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, _F(0)))
