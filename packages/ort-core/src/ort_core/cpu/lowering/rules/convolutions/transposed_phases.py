"""Phases of a transposed convolution's axes: which taps meet in which outputs, and what the pads cut away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.plugin import frozen
from ort_core.plugin.ops import TransposedAxis


@frozen
class Phase:
    """One phase of an axis.

    Attributes:
        first: the first output of it.
        taps: of the window that meet there, in the order of the inputs that they read.
        start: of the input that the first tap reads for the first output; negative: that many before the image.
        dilation: inputs from one of the taps to the next.
        surplus: how many more outputs there are than inputs.
    """

    first: int
    taps: tuple[int, ...]
    start: int
    dilation: int
    surplus: int

    @property
    def behind(self) -> int:
        """How many inputs behind the image the last tap reads for the last output; negative: that many remain."""
        return self.start + (len(self.taps) - 1) * self.dilation + self.surplus


def phases(taps: int, stride: int, dilation: int, pad: int, surplus: int) -> list[Phase]:
    """Cut an axis into phases.

    Args:
        taps: of the window.
        stride: outputs from one input's first tap to the next one's.
        dilation: outputs from one tap to the next.
        pad: outputs that are cut away at the beginning.
        surplus: the axis has ``stride * inputs + surplus`` outputs.

    Raises:
        NotLowered: some outputs get nothing from any input.
    """
    found = []
    for first in range(stride):
        meeting = [k for k in range(taps) if (first + pad - k * dilation) % stride == 0][::-1]
        if not meeting:
            raise NotLowered(f"a window of {taps} leaves gaps at stride {stride}")
        starts = [(first + pad - k * dilation) // stride for k in meeting]
        step = starts[1] - starts[0] if len(starts) > 1 else 1
        found.append(Phase(first, tuple(meeting), starts[0], step, -((first - surplus) // stride)))
    return found


def edge_of(axis: TransposedAxis) -> tuple[int, int]:
    """Return what is cut away before a spatial axis, and how many more outputs than ``stride * size`` there are.

    Raises:
        NotLowered: that depends on a size that only a run knows, or something is added instead.
    """
    size, whole, result, before, after = axis.size, axis.whole, axis.result, axis.before, axis.after
    if size is None or whole is None or result is None:
        raise NotLowered("a transposed convolution of unknown size is not generated")
    surplus, kept = whole - result, result - axis.stride * size
    if not (isinstance(before, int) and isinstance(after, int) and isinstance(kept, int) and isinstance(surplus, int)):
        raise NotLowered("output_shape for images of unknown size is not generated")
    if min(before, after) < 0:
        raise NotLowered("negative pads are not generated")
    if surplus < 0:
        raise NotLowered("the wanted result is larger than what the windows reach")
    return before, kept


def reach_of(axis: Sequence[Phase]) -> tuple[int, int]:
    """Return how far the windows of all phases reach before and behind the images."""
    return max(0, *(-phase.start for phase in axis)), max(0, *(phase.behind for phase in axis))


def joined_phases(phases: Sequence[Phase], outputs: int, lanes: int) -> Phase | None:
    """Return all phases of the last axis as one, whose taps are inputs side by side, or ``None`` where that costs more.

    Outputs of all phases lie side by side in channels-last images, so that one convolution computes them, of few
    channels much faster: it fills vectors with phases. Some of its weights are zeros (``joined_weights``).
    """
    low = min(phase.start for phase in phases)
    high = max(phase.start + (len(phase.taps) - 1) * phase.dilation for phase in phases)
    if len(phases) == 1 or len({phase.surplus for phase in phases}) != 1:
        return None
    apart = sum(len(phase.taps) for phase in phases) * -(-outputs // lanes)
    together = (high - low + 1) * -(-outputs * len(phases) // lanes)
    return Phase(0, tuple(range(high - low + 1)), low, 1, phases[0].surplus) if together <= apart else None


def joined_weights(weights: np.ndarray, phases: Sequence[Phase], joined: Phase) -> np.ndarray:
    """Return ``[phases * outputs][inputs][rows][inputs side by side]`` of ``[outputs][inputs][rows][columns]``."""
    made = np.zeros((len(phases), *weights.shape[:3], len(joined.taps)), weights.dtype)
    for number, phase in enumerate(phases):
        places = [phase.start - joined.start + each * phase.dilation for each in range(len(phase.taps))]
        made[number][..., places] = weights[..., list(phase.taps)]
    return made.reshape(-1, *made.shape[2:])
