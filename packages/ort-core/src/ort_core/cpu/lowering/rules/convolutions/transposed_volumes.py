"""Transposed convolution of volumes: a plain convolution of volumes for each phase of the three strides.

What a phase is, ``transposed_convolutions`` says. The planes of one phase of all volumes are equally far apart only if
the depth is a multiple of its stride; others run by the reference kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution import convolution_kernel
from ort_core.cpu.codegen.convolutions.convolution_plan import ARGUMENTS, Convolution, Planes, pack_weights
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.lowering.images.layout_steps import as_planes, emit_padded, kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import operand_kind
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.transposed_phases import Phase, reach_of
from ort_core.cpu.lowering.rules.convolutions.volumes import RANK, Triple
from ort_core.cpu.lowering.steps import Argument, pointer
from ort_core.cpu.lowering.views import View, channels_last, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim

F32 = DataType.FLOAT


@dataclass(frozen=True, slots=True)
class TransposedVolumeConvolution:
    """A transposed convolution of channels-last volumes; ``weights`` are as a plain convolution has them.

    ``phases`` are those of each axis. The depth of the result is a multiple of its stride.
    """

    x: View
    weights: np.ndarray
    strides: Triple
    phases: tuple[tuple[Phase, ...], ...]
    groups: int

    @property
    def layout(self) -> tuple[int, ...]:
        """The result lies channels-last."""
        return channels_last(RANK)

    @property
    def operator(self) -> str:
        """Its name in reports."""
        return "ConvTranspose"

    @property
    def result_types(self) -> frozenset[DataType]:
        """Convolutions are float32."""
        return frozenset({F32})

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number per channel."""
        return len(inputs) <= 4 and all(operand_kind(view, shape) is OperandKind.CHANNEL for view in inputs)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps: a border where windows reach beyond the planes, then a convolution for each phase."""
        epilogue = None
        if pending.expression.operation != "input":
            epilogue = Epilogue(pending.expression, (OperandKind.CHANNEL,) * len(pending.inputs))
        (top, bottom), (left, right) = reach_of(self.phases[1]), reach_of(self.phases[2])
        x = as_planes(self.x)
        if top or bottom or left or right:
            x = emit_padded(lowering, x, (top, left, bottom, right))
        for plane, row, column in itertools.product(*self.phases):
            offset = (row.start + top) * x.strides[2] + (column.start + left) * x.strides[3]
            seen = View(x.buffer, x.shape, x.strides, x.offset + offset)
            self._store_phase(lowering, pending, seen, as_planes(target), epilogue, (plane, row, column))

    def _store_phase(
        self, lowering: Lowering, pending: PendingAnchor, x: View, y: View, epilogue: Epilogue | None,
        phase: tuple[Phase, Phase, Phase],
    ) -> None:  # fmt: skip
        machine, (plane, row, column) = lowering.target, phase
        batch, _, *sizes = self.x.shape
        depth, height, width = (size + each.surplus for size, each in zip(sizes, phase, strict=True))
        spec, chosen = self._phase_spec(phase, epilogue, width)
        facts = f"{replace(spec, epilogue=None)!r} {epilogue.structure if epilogue else ''}"
        kernel = kernel_text("conv", facts, lambda name: convolution_kernel(name, spec, machine), is_vectorized=True)
        packed = pack_weights(spec, chosen, machine)
        aligned = aligned_empty(packed.shape)  # the kernels load whole, aligned vectors of weights
        aligned[...] = packed
        weights = lowering.constant_view(aligned, F32)
        first = plane.first * y.strides[0] + row.first * y.strides[2] + column.first * y.strides[3]
        words: list[Argument] = [
            pointer(x), pointer(weights), pointer(View(y.buffer, y.shape, y.strides, y.offset + first)), batch * depth,
            height, width, x.strides[2], sizes[0] * x.strides[0], self.strides[1] * y.strides[2],
            self.strides[0] * y.strides[0], x.shape[2], x.shape[3], 0, 0, x.strides[0], sizes[0], depth,
        ]  # fmt: skip
        assert len(words) == ARGUMENTS.epilogue
        words.extend(pointer(view) for view in pending.inputs)
        reads = [x.buffer, weights.buffer, *(view.buffer for view in pending.inputs)]
        results = batch * depth * height * width * spec.out_channels
        flops = results * (2 * spec.depth)
        moved = moved_nbytes([x, weights, *pending.inputs]) + results * 4
        lowering.emit(kernel, words, reads, [y.buffer], flops // 32 + 1, pending.operators, flops, moved)

    def _phase_spec(
        self, phase: tuple[Phase, Phase, Phase], epilogue: Epilogue | None, width: KnownDim
    ) -> tuple[Convolution, np.ndarray]:
        plane, row, column = phase
        chosen = self.weights[:, :, list(plane.taps)][:, :, :, list(row.taps)][:, :, :, :, list(column.taps)]
        outputs, inputs = chosen.shape[0], chosen.shape[1] * self.groups
        spec = Convolution(
            inputs, outputs, (len(row.taps), len(column.taps)), (1, 1), (row.dilation, column.dilation), self.groups,
            epilogue, y_pixel=self.strides[2] * outputs,
            expected_width=width if isinstance(width, int) and width else None,
            planes=Planes(len(plane.taps), 1, plane.dilation, -plane.start),
        )  # fmt: skip
        return spec, chosen
