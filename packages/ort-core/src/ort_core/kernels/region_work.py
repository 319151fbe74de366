"""RegionWork: what one region of a compiled partition computes and moves, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionWork:
    """The work of one region in one run.

    Attributes:
        flops: floating-point or integer operations; a fused multiply-add counts as two.
        nbytes: bytes that must be read and written at least, each value once; ``None`` when unknown.
    """

    flops: int
    nbytes: int | None = None
