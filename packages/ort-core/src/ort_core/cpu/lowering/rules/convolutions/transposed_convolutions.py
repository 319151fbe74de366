"""Transposed convolution as channels-last anchors: one plain convolution for each phase of the strides.

Output row ``o`` adds ``x[i] * w[k]`` over all ``i * stride + k * dilation - pad = o``. For the outputs
``o = phase + stride * m`` the taps that meet are the same for every ``m``, and they read
``i = m + (phase + pad - k * dilation) / stride``: a convolution of stride 1 with some of the taps, reversed, whose
results lie ``stride`` rows apart. The same holds for columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import PAIR, Convolution, PairConvolution
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.lowering.images.layout_steps import as_images, emit_padded, words_of
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import dequantized_constant
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import ConvolvedImages, TransposedBase, emit_convolution
from ort_core.cpu.lowering.rules.convolutions.rounded_images import rounded_images, takes_pairs
from ort_core.cpu.lowering.rules.convolutions.transposed_columns import transposed_by_columns
from ort_core.cpu.lowering.rules.convolutions.transposed_phases import (
    Phase,
    edge_of,
    joined_phases,
    joined_weights,
    phases,
    reach_of,
)
from ort_core.cpu.lowering.rules.convolutions.transposed_volumes import TransposedVolumeConvolution
from ort_core.cpu.lowering.rules.convolutions.volumes import ONES, volumes
from ort_core.cpu.lowering.rules.images.images import biased, images, pair
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, channels_last
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.ops import node_transposed

F32 = DataType.FLOAT


@dataclass(frozen=True, slots=True)
class TransposedConvolutionAnchor(TransposedBase):
    """A transposed convolution of channels-last images (rank 4; a 1-D one has height 1).

    ``weights`` are ``[outputs][inputs / groups][rows][columns]``, as a plain convolution has them.
    """

    x: View
    weights: np.ndarray
    strides: tuple[int, int]
    rows: tuple[Phase, ...]
    columns: tuple[Phase, ...]
    groups: int
    rank: int
    is_paired: bool = False  # the images are ``words_of`` such in bfloat16

    @property
    def layout(self) -> tuple[int, ...]:
        """The result lies channels-last."""
        return channels_last(self.rank)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps: a border where windows reach beyond the images, then a convolution for each phase."""
        y = as_images(target)
        epilogue = None
        if pending.expression.operation != "input":
            epilogue = Epilogue(pending.expression, (OperandKind.CHANNEL,) * len(pending.inputs))
        top, bottom = reach_of(self.rows)
        left, right = reach_of(self.columns)
        x = self.x
        if top or bottom or left or right:
            x = emit_padded(lowering, x, (top, left, bottom, right))
        joined = joined_phases(self.columns, len(self.weights), lowering.target.lanes) if self.groups == 1 else None
        if joined is not None:
            pending = replace(
                pending, inputs=tuple(self._repeated(lowering, view, pending.shape) for view in pending.inputs)
            )
        for row in self.rows:
            for column in self.columns if joined is None else (joined,):
                offset = (row.start + top) * x.strides[2] + (column.start + left) * x.strides[3]
                offset = offset * PAIR if self.is_paired else offset  # of words it counts the halves
                seen = View(x.buffer, x.shape, x.strides, x.offset + offset)
                chosen = self.weights[:, :, list(row.taps)]
                if joined is None:
                    chosen = chosen[..., list(column.taps)]
                else:
                    chosen = joined_weights(chosen, self.columns, joined)
                self._store_phase(lowering, pending, seen, y, epilogue, row, column, chosen)

    def _repeated(self, lowering: Lowering, view: View, shape: Sequence[KnownDim]) -> View:
        """Return an epilogue's operand, a number for each channel, once for each phase of the columns."""
        strides = broadcast_strides(view, shape)
        assert strides is not None
        repeated = (len(self.columns), len(self.weights))
        spread = View(view.buffer, repeated, (0, strides[1]), view.offset)
        return lowering.copied(spread).reshaped((repeated[0] * repeated[1], *[1] * (self.rank - 2)))

    def _store_phase(
        self, lowering: Lowering, pending: PendingAnchor, x: View, y: View, epilogue: Epilogue | None, row: Phase,
        column: Phase, chosen: np.ndarray,
    ) -> None:  # fmt: skip
        vertical, horizontal = self.strides
        outputs, inputs = chosen.shape[0], chosen.shape[1] * self.groups
        pixel = horizontal * len(self.weights)
        height, width = self.x.shape[2] + row.surplus, self.x.shape[3] + column.surplus
        make = PairConvolution if self.is_paired else Convolution
        words = inputs // PAIR if self.is_paired else inputs
        window, dilations = (len(row.taps), len(column.taps)), (row.dilation, column.dilation)
        spec = make(
            words, outputs, window, (1, 1), dilations, self.groups, epilogue, y_pixel=pixel,
            expected_width=width if isinstance(width, int) and width else None,
        )  # fmt: skip
        first = row.first * y.strides[2] + column.first * y.strides[3]
        begun = View(y.buffer, y.shape, y.strides, y.offset + first)
        sizes = (y.shape[0], height, width)
        seen = ConvolvedImages(x, begun, sizes, x.strides[0], vertical * y.strides[2], y.strides[0])
        emit_convolution(lowering, pending, spec, chosen, seen)


def transposed_convolution(lowering: Lowering, node: Node) -> None:
    """ConvTranspose with constant weights, of rank 3 to 5; a bias is part of the epilogue."""
    weights, dtype, shape = _weights_of(lowering, node.input(1)), *tensor_type(node.output)
    if weights is None or weights.ndim not in (3, 4, 5) or dtype is not F32:
        raise NotLowered("only float32 transposed convolutions of 1 to 3 axes with constant weights are generated")
    if not np.isfinite(weights).all():
        raise NotLowered("infinite weights times the zeros beside images are not numbers, and nothing is beside them")
    groups, rank = node.int_attribute("group", 1), weights.ndim
    is_paired = takes_pairs(lowering, node)
    if not is_paired and transposed_by_columns(lowering, node, weights):
        return
    if is_paired and (source := node.input(0)) is not None:
        x = words_of(rounded_images(lowering, source, weights.shape[0]))
    else:
        x = volumes(lowering, node.input(0)) if rank == 5 else images(lowering, node.input(0))
    if rank == 3:
        weights = weights[:, :, None]
    strides, dilations = (_by_axis(node.ints_attribute(name), rank) for name in ("strides", "dilations"))
    axes, first = [], max(4 - rank, 0)
    edges = [edge_of(each) for each in node_transposed(node, x.shape[2 + first :], weights.shape[2 + first :])]
    for axis, (size, taps) in enumerate(zip(x.shape[2:], weights.shape[2:])):
        stride, dilation, spatial = strides[axis], dilations[axis], axis - first
        pad, surplus = edges[spatial] if spatial >= 0 else (0, 0)
        axes.append(tuple(phases(taps, stride, dilation, pad, surplus)))
        if spatial >= 0:
            lowering.require_equal(shape[2 + spatial], size * stride + surplus)
        if rank == 5 and axis == 0 and surplus % stride:
            raise NotLowered(f"a depth that is not a multiple of its stride {stride} is not generated")
    inputs, each = weights.shape[:2]
    plain = weights.reshape(groups, inputs // groups, each, *weights.shape[2:]).swapaxes(1, 2)
    plain = plain.reshape(groups * each, inputs // groups, *weights.shape[2:])
    anchor = _anchor(x, plain, strides, axes, groups, rank, is_paired=is_paired)
    value, operands = biased(lowering, node, groups * each, rank)
    lowering.set(node.output, PendingAnchor(anchor, value, operands, shape, (node,)))


def _weights_of(lowering: Lowering, value: Value | None) -> np.ndarray | None:
    """Return constant weights as float32, also such as a model holds quantized."""
    constant = lowering.constant_of(value)
    return dequantized_constant(lowering, value.producer) if constant is None and value is not None else constant


def _by_axis(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    return pair(values, rank) if rank < 5 else values or ONES


def _anchor(
    x: View,
    weights: np.ndarray,
    strides: Sequence[int],
    axes: Sequence[tuple[Phase, ...]],
    groups: int,
    rank: int,
    *,
    is_paired: bool,
) -> TransposedConvolutionAnchor | TransposedVolumeConvolution:
    if rank == 5:
        depth, height, width = strides
        return TransposedVolumeConvolution(x, weights, (depth, height, width), tuple(axes), groups)
    return TransposedConvolutionAnchor(x, weights, (strides[0], strides[1]), axes[0], axes[1], groups, rank, is_paired)
