"""What kernels of every family do with addresses: offsets by strides, and copies of bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer


def strided_offset(emitter: Emitter, indices: Sequence[IRValue], strides: Sequence[IRValue]) -> IRValue:
    """Return the sum of the products of indices and strides, in elements."""
    offset: IRValue = integer(0)
    for index, stride in zip(indices, strides):
        offset = emitter.add(offset, emitter.mul(index, stride))
    return offset


def copy_bytes(emitter: Emitter, to: IRValue, source: IRValue, nbytes: IRValue) -> None:
    """Copy bytes to where none of them lie."""
    emitter.declarations["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
    emitter.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to.text}, ptr {source.text}, i64 {nbytes.text}, i1 false)")
