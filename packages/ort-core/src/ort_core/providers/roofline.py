"""Roofline: how fast a device can compute and move data, measured; what a profile compares regions with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ort_core.frozen import frozen


@frozen
class Bandwidth:
    """Bytes per second over data of a size: small data lies in caches.

    Attributes:
        nbytes: size of the data that was read and written over and over.
        bytes_per_s: what one pass moved per second.
    """

    nbytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a device reached when it did nothing else.

    Attributes:
        num_threads: threads that took part; 1 for devices without.
        flops_per_s: float32 operations per second, a fused multiply-add counted as two.
        bandwidths: by size of the data, smallest first; not empty.
        by_kind: operations per second by the kind of arithmetic (``RegionWork.arithmetic``), where it was measured.
    """

    num_threads: int
    flops_per_s: float
    bandwidths: tuple[Bandwidth, ...]
    by_kind: Mapping[str, float] = field(default_factory=dict)

    def bytes_per_s(self, nbytes: int) -> float:
        """Return what data of that size can move at: the figure of the smallest measured size that holds it."""
        return next((b.bytes_per_s for b in self.bandwidths if b.nbytes >= nbytes), self.bandwidths[-1].bytes_per_s)

    def flops_of(self, arithmetic: str) -> float | None:
        """Return the operations per second of a kind of arithmetic, ``None`` where nobody measured it."""
        return self.flops_per_s if arithmetic == "float32" else self.by_kind.get(arithmetic)

    def least_seconds(self, flops: int, nbytes: int | None, arithmetic: str = "float32") -> float | None:
        """Return the time below which nothing can do that work here (the roofline model, Williams et al. 2009).

        ``None`` where the arithmetic has no measured ceiling, so that nothing can be said.
        """
        moving = nbytes / self.bytes_per_s(nbytes) if nbytes else 0.0
        per_second = self.flops_of(arithmetic)
        if per_second is None:
            return None
        return max(flops / per_second, moving)
