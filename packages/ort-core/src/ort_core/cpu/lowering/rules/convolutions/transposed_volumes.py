"""Transposed convolution of volumes: a plain convolution of volumes for each phase of the three strides.

What a phase is, ``transposed_convolutions`` says. The planes of one phase of all volumes are equally far apart only if
the depth is a multiple of its stride; others run by the reference kernels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution, Planes
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.lowering.images.layout_steps import as_planes, emit_padded
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import ConvolvedImages, TransposedBase, emit_convolution
from ort_core.cpu.lowering.rules.convolutions.transposed_phases import Phase, reach_of
from ort_core.cpu.lowering.rules.convolutions.volumes import RANK, Triple
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import DataType, KnownDim

F32 = DataType.FLOAT


@dataclass(frozen=True, slots=True)
class TransposedVolumeConvolution(TransposedBase):
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
        plane, row, column = phase
        batch, _, *sizes = self.x.shape
        depth, height, width = (size + each.surplus for size, each in zip(sizes, phase, strict=True))
        spec, chosen = self._phase_spec(phase, epilogue, width)
        first = plane.first * y.strides[0] + row.first * y.strides[2] + column.first * y.strides[3]
        begun = View(y.buffer, y.shape, y.strides, y.offset + first)
        seen = ConvolvedImages(
            x, begun, (batch * depth, height, width), sizes[0] * x.strides[0], self.strides[1] * y.strides[2],
            self.strides[0] * y.strides[0], (x.strides[0], sizes[0], depth),
        )  # fmt: skip
        emit_convolution(lowering, pending, spec, chosen, seen)

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
