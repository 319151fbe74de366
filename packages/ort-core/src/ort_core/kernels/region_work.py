"""RegionWork: what one region of a compiled partition computes and moves, for reports."""

from __future__ import annotations

from ort_core.frozen import frozen


@frozen
class RegionWork:
    """The work of one region in one run.

    Attributes:
        flops: floating-point or integer operations; a fused multiply-add counts as two.
        nbytes: bytes that must be read and written at least, each value once; ``None`` when unknown.
        arithmetic: the kind of most of the operations: ``float32``, ``float64``, ``bfloat16``, ``int8``.
        step: the provider's name of the region among those of its partition; empty where it has none.
    """

    flops: int
    nbytes: int | None = None
    arithmetic: str = "float32"
    step: str = ""
