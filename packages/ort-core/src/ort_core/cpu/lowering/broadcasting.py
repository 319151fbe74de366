"""known_strides(): how an operand is read over a larger shape, or the reason why no one knows before the run."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View, broadcast_strides
from ort_core.plugin.ir import KnownDim


def known_strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    """Return the strides to read a view over ``shape``.

    Raises:
        NotLowered: only a run tells which of the view's sizes are 1.
    """
    strides = broadcast_strides(view, shape)
    if strides is None:
        whether = f"whether {sizes_text(view.shape)} broadcasts to {sizes_text(shape)}"
        raise NotLowered(f"{whether} is only known at run time")
    return strides


def sizes_text(shape: Sequence[KnownDim]) -> str:
    """Return a shape as reasons write it: ``[N, 8]``."""
    return f"[{', '.join(map(str, shape))}]"
