"""The "minimal standard" random sequence x -> 16807 x mod (2**31 - 1), and the distributions drawn from it.

It is the C++ library's ``default_random_engine`` as GCC ships it; onnxruntime draws from it, so a node with a
``seed`` gives onnxruntime's numbers. The sequence is made by doubling: n known terms times 16807**n are the next n.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen

_MULTIPLIER, _MODULUS = 16807, 2**31 - 1
_RANGE = float(_MODULUS - 1)  # number of different values


@frozen
class MinimalStandard:
    """A position in the sequence; drawing returns the values and the position after them."""

    state: int

    @classmethod
    def seeded(cls, seed: int) -> MinimalStandard:
        """Return the start for ``seed``; 0 stands for 1."""
        return cls(seed % _MODULUS or 1)

    def integers(self, count: int) -> tuple[np.ndarray, MinimalStandard]:
        """Return the next ``count`` terms as uint64."""
        terms = np.empty(count, np.uint64)
        known, factor = min(count, 1), _MULTIPLIER
        if known:
            terms[0] = self.state * _MULTIPLIER % _MODULUS
        while known < count:
            more = min(known, count - known)
            terms[known : known + more] = terms[:more] * np.uint64(factor) % np.uint64(_MODULUS)
            known, factor = known + more, factor * factor % _MODULUS
        return terms, MinimalStandard(int(terms[-1])) if count else self

    def uniforms(self, count: int, dtype: np.dtype) -> tuple[np.ndarray, MinimalStandard]:
        """Return ``count`` numbers in [0, 1): one term each for float32, two for float64."""
        if dtype == np.float32:
            terms, after = self.integers(count)
            real = (terms - np.uint64(1)).astype(np.float32) / np.float32(_RANGE)
            return np.minimum(real, np.nextafter(np.float32(1), np.float32(0))), after
        terms, after = self.integers(2 * count)
        low, high = (terms - np.uint64(1)).astype(np.float64).reshape(count, 2).T
        real = (low + high * _RANGE) / (_RANGE * _RANGE)
        return np.minimum(real, np.nextafter(1.0, 0.0)), after

    def normals(self, count: int, dtype: np.dtype) -> tuple[np.ndarray, MinimalStandard]:
        """Return ``count`` standard normal numbers, in pairs by Marsaglia's polar method."""
        pairs = (count + 1) // 2
        accepted = np.empty((0, 2), dtype)
        position = self
        while len(accepted) < pairs:
            missing = pairs - len(accepted)
            uniform, after = position.uniforms(2 * missing, dtype)
            candidates = (2 * uniform - 1).reshape(missing, 2)
            square = np.sum(candidates * candidates, axis=1)
            accepted = np.concatenate([accepted, candidates[(square <= 1) & (square > 0)]])
            position = after
        square = np.sum(accepted * accepted, axis=1, keepdims=True)
        scale = np.sqrt(-2 * np.log(square) / square)
        # of each pair the second number is returned first
        return (accepted * scale)[:, ::-1].reshape(-1)[:count], position
