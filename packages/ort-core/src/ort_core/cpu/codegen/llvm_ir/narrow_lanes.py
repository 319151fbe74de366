"""Vectors of elements of any stored width, whole or cut off behind the last one that exists."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_first, store_first
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.nests.elementwise_nests import natural_alignment
from ort_core.plugin.ir import DataType


@dataclass(frozen=True, slots=True)
class NarrowLanes:
    """A vector of ``width`` elements of which the first ``count`` exist; the others are neither read nor written."""

    width: int
    count: int

    def read(self, emitter: Emitter, address: IRValue, dtype: DataType) -> IRValue:
        """Load elements from any address; those that do not exist are 0."""
        type_ = vector_type(self.width, STORED[dtype])
        align = natural_alignment(dtype)
        if self.count >= self.width:
            return emitter.load(type_, address, align)
        return load_first(emitter, type_, self.count, address, align)

    def write(self, emitter: Emitter, value: IRValue, address: IRValue, dtype: DataType) -> None:
        """Store the elements that exist."""
        align = natural_alignment(dtype)
        if self.count >= self.width:
            emitter.store(value, address, align)
            return
        store_first(emitter, value, self.count, address, align)


def lanes_of(count: int, width: int) -> tuple[NarrowLanes, ...]:
    """Cut ``count`` elements into vectors; the last one may be part."""
    return tuple(NarrowLanes(width, min(width, count - first)) for first in range(0, count, width))
