"""What a lowering asks of the vendor's libraries before it gives them a step: which layouts, and what they fuse."""

from __future__ import annotations

from typing import Protocol

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep
from ort_ep_cuda.lowering.program import FunctionCall
from ort_ep_cuda.lowering.values.growing import grows


class Libraries(Protocol):
    """The libraries of one device under the options of one session."""

    @property
    def fuses(self) -> bool:
        """Whether any library fuses anything."""

    def prefers_channels_last(self, dtype: DataType) -> bool:
        """Return whether convolutions of an element type run faster over images with their channels last."""

    def refuse(self, step: AnyLibraryStep) -> str | None:
        """Return why a step with an epilogue, or an attention, is not run by a library; ``None`` where it is.

        Never asked of plain products and convolutions, which always run.
        """


def has_open_sizes(step: AnyLibraryStep | FunctionCall) -> bool:
    """Return whether a size or an offset of a step's tensors grows."""
    views = step.operands if not isinstance(step, FunctionCall) else (*step.inputs, *step.outs)
    return any(
        grows(number) for view in views if view is not None for number in (*view.shape, *view.strides, view.offset)
    )


class FixedSizesOnly:
    """The libraries, not asked for steps whose sizes grow: their plans are made for sizes."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self.fuses = libraries.fuses

    def prefers_channels_last(self, dtype: DataType) -> bool:
        """Return what the libraries say."""
        return self._libraries.prefers_channels_last(dtype)

    def refuse(self, step: AnyLibraryStep) -> str | None:
        """Return that a size grows, or what the libraries say."""
        return "its sizes grow" if has_open_sizes(step) else self._libraries.refuse(step)


class NothingFused:
    """Plain products and convolutions only."""

    fuses = False

    def prefers_channels_last(self, dtype: DataType) -> bool:
        """Return ``False``."""
        return False

    def refuse(self, step: AnyLibraryStep) -> str | None:
        """Return that no library is there."""
        return f"no library that fuses is there for {type(step).__name__}"


NOTHING_FUSED = NothingFused()
