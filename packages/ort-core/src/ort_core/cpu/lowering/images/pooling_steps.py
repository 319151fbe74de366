"""The step that pools channels-last images."""

from __future__ import annotations

from dataclasses import replace

from ort_core.cpu.codegen.images.pooling import ARGUMENTS, Pooling, pooling_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text, pixel_pitch
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import Argument, pointer
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import Node


def emit_pooling(lowering: Lowering, node: Node, spec: Pooling, x: View, y: View) -> None:
    """Append the step that pools channels-last images of rank 4; both may be some of the channels of others."""
    machine = lowering.target
    spec = replace(spec, x_pixel=pixel_pitch(x), y_pixel=pixel_pitch(y))
    kernel_code = kernel_text("pool", repr(spec), lambda name: pooling_kernel(name, spec, machine), is_vectorized=True)
    words: list[Argument] = [
        pointer(x), pointer(y), y.shape[0], y.shape[2], y.shape[3], x.shape[2], x.shape[3], x.strides[2], x.strides[0],
        y.strides[2], y.strides[0],
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.epilogue
    lowering.emit(
        kernel_code, words, [x.buffer], [y.buffer], count_of(x.shape), (node,), count_of(x.shape), moved_nbytes([x, y])
    )  # fmt: skip
