"""What a lowering asks of the vendor's libraries before it gives them a step: which layouts, and what they fuse."""

from __future__ import annotations

from typing import Protocol

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.library_steps import AnyLibraryStep


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
