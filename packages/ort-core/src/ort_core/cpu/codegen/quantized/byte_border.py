"""Copies channels-last images of bytes into larger ones with a border of one value, read when the kernel runs."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.addresses import copy_bytes
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue


@dataclass(frozen=True, slots=True)
class ByteBorderArguments:
    """Positions in the argument table; strides and sizes count bytes, ``top`` .. ``bottom`` rows.

    ``value`` points to the byte that fills the border. ``left``, ``inner`` and ``right`` are the bytes of a row before,
    in and behind the image. Images of the target lie one behind the other.
    """

    source: int = 0
    target: int = 1
    value: int = 2
    batch: int = 3
    height: int = 4
    source_row: int = 5
    source_image: int = 6
    top: int = 7
    bottom: int = 8
    left: int = 9
    inner: int = 10
    right: int = 11


def byte_border_kernel(name: str, *, copies: bool = True) -> list[Emitter]:
    """Return the kernel; without ``copies`` it writes the border alone, and ``source`` is not read."""
    emitter, at = kernel_emitter(name), ByteBorderArguments()
    args = emitter.parameter("args")
    source, target, value = (emitter.argument(args, i, "ptr") for i in (at.source, at.target, at.value))
    batch, height, top, bottom = (emitter.argument(args, i) for i in (at.batch, at.height, at.top, at.bottom))
    left, inner, right = (emitter.argument(args, i) for i in (at.left, at.inner, at.right))
    rows = emitter.add(emitter.add(height, top), bottom)
    row_nbytes = emitter.add(emitter.add(left, inner), right)
    with share_of(emitter, emitter.mul(batch, rows)) as unit:
        image, row = divide(emitter, unit, rows)
        line = emitter.element(target, emitter.mul(unit, row_nbytes), "i8")
        fill = emitter.load("i8", value, 1)
        source_row = emitter.sub(row, top)
        with emitter.either(emitter.compare("ult", source_row, height)) as branch:
            offset = emitter.add(
                emitter.mul(image, emitter.argument(args, at.source_image)),
                emitter.mul(source_row, emitter.argument(args, at.source_row)),
            )
            middle = emitter.element(line, left, "i8")
            _fill(emitter, line, fill, left)
            if copies:
                copy_bytes(emitter, middle, emitter.element(source, offset, "i8"), inner)
            _fill(emitter, emitter.element(middle, inner, "i8"), fill, right)
            with branch.otherwise():
                _fill(emitter, line, fill, row_nbytes)
    return [emitter]


def _fill(emitter: Emitter, to: IRValue, value: IRValue, count: IRValue) -> None:
    emitter.declarations["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"] = None
    emitter.line(f"call void @llvm.memset.p0.i64(ptr {to.text}, {value.typed}, i64 {count.text}, i1 false)")
