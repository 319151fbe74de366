"""Checked equivalence: the model is evaluated before and after each pass on random inputs, and the outputs compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from ort_core.errors import Fail
from ort_core.frozen import frozen
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.model import Model
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value

ModelEvaluator = Callable[[Model, Mapping[str, np.ndarray]], Sequence[object]]
DEFAULT_SIZE = 2  # of a dimension that has neither a number nor a size in ``sizes``
_MAX_INTEGER = 2  # random integers are 0 or 1: small enough to be indices, and masks, in most models


@frozen
class EquivalenceCheck:
    """How to check that passes keep a model's results.

    ``evaluate`` runs a model on named feeds and returns its outputs in order. ``feeds`` overrides the random ones;
    ``sizes`` gives sizes to named dimensions. An output differs when it leaves ``absolute + relative * abs(before)``
    by more than ``share_of_largest`` of its largest finite magnitude: layers multiply what a pass rounds otherwise.
    """

    evaluate: ModelEvaluator
    relative: float
    absolute: float
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    share_of_largest: float = 0.0

    def outputs_of(self, model: Model) -> tuple[object, ...]:
        """Evaluate the model on the feeds."""
        feeds = {**random_feeds(model, self.seed, self.sizes), **self.feeds}
        return tuple(self.evaluate(model, feeds))

    def compare(self, pass_name: str, model: Model, before: Sequence[object], after: Sequence[object]) -> None:
        """Raise ``Fail`` naming the pass and the first output that it changed."""
        for value, old, new in zip(model.graph.outputs, before, after, strict=True):
            difference = self._difference(old, new)
            if difference is not None:
                raise Fail(
                    f"pass {pass_name} changed the result: output {value.name!r} {difference}. The pass is wrong or "
                    f"inexact here; run with disabled_optimizers=[{pass_name!r}] to do without it."
                )

    def _difference(self, old: object, new: object) -> str | None:
        if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
            if len(old) != len(new):
                return f"has {len(new)} elements instead of {len(old)}"
            found = (self._difference(a, b) for a, b in zip(old, new, strict=True))
            return next((difference for difference in found if difference is not None), None)
        if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
            return None if old == new else f"is {new!r} instead of {old!r}"
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"is {new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        if old.dtype == object or old.dtype.kind in "biu":
            return None if np.array_equal(old, new) else "has other elements"
        return self._float_difference(old.astype(np.float64), new.astype(np.float64))

    def _float_difference(self, old: np.ndarray, new: np.ndarray) -> str | None:
        largest = float(np.max(np.abs(old), initial=0.0, where=np.isfinite(old)))
        absolute = self.absolute + self.share_of_largest * largest
        if np.allclose(new, old, rtol=self.relative, atol=absolute, equal_nan=True):
            return None
        off = np.nanmax(np.abs(new - old))
        share = f", {off / largest:.2g} of its largest value" if largest and np.isfinite(off) else ""
        return f"is off by up to {off:.3g}{share}"


def random_feeds(model: Model, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Return random arrays for every tensor input without a default: N(0, 1) floats, small integers, coin flips."""
    generator = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        if value.constant is None and isinstance(value.type, TensorType):
            feeds[value.name] = _random_array(value, generator, sizes or {})
    return feeds


def _random_array(value: Value, generator: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    assert isinstance(value.type, TensorType)
    shape = tuple(_size_of(dim, sizes) for dim in value.type.shape or ())
    dtype = value.type.dtype
    if dtype is DataType.STRING:
        return generator.choice(np.array(["a", "b", "c"], object), shape)
    if dtype is DataType.BOOL:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype.is_integer:
        return np.asarray(generator.integers(0, _MAX_INTEGER, shape)).astype(dtype.numpy)
    return np.asarray(generator.standard_normal(shape)).astype(dtype.numpy)


def _size_of(dim: object, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, SymbolicDim):
        return dim.evaluate({name: sizes.get(name, DEFAULT_SIZE) for name in dim.symbols()})
    return DEFAULT_SIZE
