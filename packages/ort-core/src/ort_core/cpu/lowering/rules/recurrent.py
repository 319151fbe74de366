"""LSTM, GRU and RNN: one product for the input's share of all steps, then one step that walks through time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.codegen.quantized.integer_dot import WORD, packed_words
from ort_core.cpu.codegen.recurrent.byte_tiles import MOST_UNITS
from ort_core.cpu.codegen.recurrent.recurrent import (
    ARGUMENTS,
    Cell,
    Phase,
    padded_units,
    recurrent_kernel,
)
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import dequantized_constant, quantized_constant
from ort_core.cpu.lowering.rules.products import constant_product
from ort_core.cpu.lowering.sequences.recurrent_cells import cell_phases, gate_names
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import Buffer, Place, View, count_of, dense_strides
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import element

F32 = DataType.FLOAT
_MICROSOFT = "com.microsoft"  # the domain in which DynamicLstmAsLstm writes


@frozen
class _Integers:
    """Weights of 8 bits [..., K] less their zero points, and the scale of each row [...]."""

    levels: np.ndarray
    scales: np.ndarray

    def real(self) -> np.ndarray:
        """Return the floats."""
        return self.levels.astype(np.float32) * self.scales[..., None]


@frozen
class _Layer:
    """A node's constants and sizes: weights [directions, gates, units, .], biases [directions, 2, gates, units].

    ``stored`` are the recurrent weights as the integers that they are in the file.
    """

    node: Node
    gates: int
    directions: int
    hidden: int
    padded: int
    w: np.ndarray
    r: np.ndarray
    b: np.ndarray
    peepholes: np.ndarray | None
    is_batch_first: bool
    stored: _Integers | None

    @property
    def resets_late(self) -> bool:
        """Whether a GRU's reset gate works on the product, not on its operand."""
        return self.node.op_type == "GRU" and self.node.int_attribute("linear_before_reset", 0) != 0


def recurrent(lowering: Lowering, node: Node) -> None:
    """LSTM, GRU and RNN with constant weights."""
    layer = _layer(lowering, node)
    x, steps, batch = _input(lowering, layer)
    shares, share_step, share_row = _shares(lowering, layer, x)
    has_cell = node.op_type == "LSTM"
    given = [_present(node, 5), _present(node, 6) if has_cell else None]
    initial = [_initial(lowering, layer, value, batch) for value in given]
    outputs = [*node.outputs, None, None, None][:3]
    wanted = (outputs[0] is not None, outputs[1] is not None, has_cell and outputs[2] is not None)
    lengths = _present(node, 4)
    cell = Cell(
        _phases(lowering, layer), layer.gates, _vectors(layer).shape[1], has_cell, lengths is not None,
        (initial[0] is not None, initial[1] is not None), wanted, layer.stored is not None,
    )  # fmt: skip
    lasts = [_last(lowering, layer, value, batch) for value in outputs[1:]]
    targets = [_result(lowering, layer, outputs[0], steps, batch), *lasts]
    kernel = recurrent_kernel(cell, lowering.target)
    states = Buffer(F32, cell.states * layer.directions * layer.padded * batch, Place.ARENA)
    length_view = None if lengths is None else _lengths(lowering, lengths, batch)
    weights = lowering.constant_view(_packed(layer, cell, lowering.target), F32)
    vectors = lowering.constant_view(_vectors(layer), F32)
    is_reverse = node.string_attribute("direction", "forward") == "reverse"
    strides = targets[0].strides if targets[0] is not None else (0, 0, 0, 0)
    result = (strides[1], strides[2], strides[0]) if layer.is_batch_first else strides[:3]
    state_axes: tuple[KnownDim, KnownDim] = (layer.hidden, layer.directions * layer.hidden)
    if not layer.is_batch_first:
        state_axes = (layer.hidden * batch, layer.hidden)
    words: dict[int, Argument] = {
        ARGUMENTS.shares: pointer(shares), ARGUMENTS.weights: pointer(weights), ARGUMENTS.vectors: pointer(vectors),
        ARGUMENTS.states: Pointer(states), ARGUMENTS.error: Pointer(lowering.error_buffer()),
        ARGUMENTS.steps: steps, ARGUMENTS.batch: batch, ARGUMENTS.hidden: layer.hidden,
        ARGUMENTS.directions: layer.directions, ARGUMENTS.backwards: int(is_reverse),
        ARGUMENTS.share_step: share_step, ARGUMENTS.share_row: share_row, ARGUMENTS.result_step: result[0],
        ARGUMENTS.result_direction: result[1], ARGUMENTS.result_row: result[2],
        ARGUMENTS.state_direction: state_axes[0], ARGUMENTS.state_row: state_axes[1],
    }  # fmt: skip
    optional = [
        (ARGUMENTS.lengths, length_view), (ARGUMENTS.first_hidden, initial[0]), (ARGUMENTS.first_cell, initial[1]),
        (ARGUMENTS.result, targets[0]), (ARGUMENTS.last_hidden, targets[1]), (ARGUMENTS.last_cell, targets[2]),
    ]  # fmt: skip
    for position, view in optional:
        words[position] = pointer(weights if view is None else view)
    reads = [shares.buffer, *(v.buffer for v in (length_view, *initial) if v is not None)]
    writes = [states, *(v.buffer for v in targets if v is not None)]
    flops = steps * batch * (2 * layer.directions * layer.gates * layer.hidden * layer.hidden)
    arguments = [words[position] for position in range(ARGUMENTS.count)]
    lowering.emit(
        KernelText(kernel.name, kernel), arguments, reads, writes, flops, (node,), flops, is_divisible=False,
        most_pieces=layer.directions * batch,
    )  # fmt: skip
    for value, view in zip(outputs, targets, strict=True):
        if view is not None:
            lowering.set(value, view)


def _phases(lowering: Lowering, layer: _Layer) -> tuple[Phase, ...]:
    """Return the phases of a layer's cell, the same objects for layers that say the same of it."""
    node, has_peepholes = layer.node, layer.peepholes is not None
    said = tuple([(each.name, repr(each.value)) for each in node.attributes.values()])
    return lowering.remembered(
        ("phases", node.op_type, said, has_peepholes), lambda: cell_phases(node, layer.resets_late, has_peepholes)
    )


def _layer(lowering: Lowering, node: Node) -> _Layer:
    gates = len(gate_names(node.op_type))
    (w, _), (r, stored) = (_weights(lowering, node.input(index)) for index in (1, 2))
    if w is None or r is None:
        raise NotLowered("the weights are not constant float32 or float16")
    directions = 2 if node.string_attribute("direction", "forward") == "bidirectional" else 1
    hidden = r.shape[-1]
    if w.ndim != 3 or w.shape[:2] != (directions, gates * hidden) or r.shape != (directions, gates * hidden, hidden):
        raise NotLowered(f"the weights' shapes {w.shape} and {r.shape} do not fit")
    if hidden == 0 or w.shape[2] == 0:
        raise NotLowered("a layer of no units is not generated")
    b = _constant(lowering, _present(node, 3), (directions, 2 * gates * hidden), "biases")
    b = np.zeros((directions, 2 * gates * hidden), np.float32) if b is None else b
    has_peepholes = node.op_type == "LSTM" and _present(node, 7) is not None
    p = _constant(lowering, _present(node, 7), (directions, 3 * hidden), "peepholes") if has_peepholes else None
    return _Layer(
        node, gates, directions, hidden, padded_units(hidden, lowering.target),
        w.reshape(directions, gates, hidden, -1), r.reshape(directions, gates, hidden, hidden),
        b.reshape(directions, 2, gates, hidden), None if p is None else p.reshape(directions, 3, hidden),
        node.int_attribute("layout", 0) != 0, stored,
    )  # fmt: skip


def _present(node: Node, index: int) -> Value | None:
    return node.input(index) if index < len(node.inputs) else None


def _constant(lowering: Lowering, value: Value | None, shape: tuple[int, ...], what: str) -> np.ndarray | None:
    if value is None:
        return None
    array = _widened(lowering, value)
    if array is None or array.shape != shape:
        raise NotLowered(f"the {what} are not constant float32 or float16 of shape {shape}")
    return array


def _widened(lowering: Lowering, value: Value | None) -> np.ndarray | None:
    """Return a constant's numbers as float32, in which layers of float16 are computed, too; None if it has none."""
    array = lowering.constant_of(value)
    return (
        array.astype(np.float32, copy=False) if array is not None and array.dtype in (np.float32, np.float16) else None
    )


def _weights(lowering: Lowering, value: Value | None) -> tuple[np.ndarray | None, _Integers | None]:
    """Return weights in float32, and the integers that ``DynamicLstmAsLstm`` keeps of an operator of 8 bits."""
    plain = _widened(lowering, value)
    if plain is not None or value is None:
        return plain, None
    maker = value.producer
    if maker is None or maker.op_type != "Reshape":
        return dequantized_constant(lowering, maker), None
    found, sizes = quantized_constant(lowering, maker.input(0)), lowering.constant_of(maker.input(1))
    if found is None or sizes is None or found.integers.ndim != 2 or found.axis != 0:
        return None, None
    shape = tuple(int(size) for size in sizes)
    if math.prod(shape) != found.integers.size or shape[-1] != found.integers.shape[1]:
        return None, None
    if maker.inputs[0] is None or maker.inputs[0].producer is None or maker.inputs[0].producer.domain != _MICROSOFT:
        return found.real().reshape(shape), None  # floats of the model's own: their states are not rounded
    levels = found.integers.astype(np.int64) - found.zero_points[:, None]
    if min(levels.min(initial=0), -1 - levels.max(initial=0)) < -128 or shape[-1] > MOST_UNITS:
        return found.real().reshape(shape), None
    scales = np.broadcast_to(found.scales, len(levels)).reshape(shape[:-1])
    stored = _Integers(levels.astype(np.int8).reshape(shape), scales)
    return stored.real(), stored


def _input(lowering: Lowering, layer: _Layer) -> tuple[View, KnownDim, KnownDim]:
    """Return X in its own order of axes, whichever of time and batch comes first in memory, and both sizes."""
    view = lowering.view(layer.node.input(0))
    if len(view.shape) != 3 or view.dtype is not F32:
        raise NotLowered("X is not float32 of rank 3")
    lowering.require_equal(view.shape[2], layer.w.shape[3])
    steps, batch = (view.shape[1], view.shape[0]) if layer.is_batch_first else view.shape[:2]
    if not view.is_contiguous and not view.transposed((1, 0, 2)).is_contiguous:
        view = lowering.contiguous(layer.node.input(0))
    return view, steps, batch


def _shares(lowering: Lowering, layer: _Layer, x: View) -> tuple[View, KnownDim, KnownDim]:
    """Append the product of X and all gates' weights plus biases; return it and its strides by step and by row."""
    turned = not x.is_contiguous
    dense = x.transposed((1, 0, 2)) if turned else x
    columns = layer.directions * layer.gates * layer.padded
    weights = np.zeros((layer.directions, layer.gates, layer.padded, layer.w.shape[3]), np.float32)
    weights[:, :, : layer.hidden] = layer.w
    bias = np.zeros((layer.directions, layer.gates, layer.padded), np.float32)
    bias[:, :, : layer.hidden] = layer.b[:, 0]
    joined = layer.b[:, 1].copy()
    if layer.resets_late:
        joined[:, 2] = 0  # the candidate's recurrent bias is reset, too, so it cannot join the input's
    bias[:, :, : layer.hidden] += joined
    shape = (*dense.shape[:2], columns)
    product = constant_product(lowering, dense, weights.reshape(columns, -1).T, layer.node.op_type, is_weight=True)
    added = lowering.constant_view(bias.reshape(-1), F32)
    pending = PendingAnchor(product, element(0, F32) + element(1, F32), (added,), shape, (layer.node,))
    target = lowering.new_view(F32, shape)
    product.store(lowering, pending, target)
    outer, inner = target.strides[:2]
    time_first = turned if layer.is_batch_first else not turned
    return (target, outer, inner) if time_first else (target, inner, outer)


def _packed(layer: _Layer, cell: Cell, target: Target) -> np.ndarray:
    """Return the recurrent weights in panels, flat: [direction, phase, panel, k, gate, lane], or see ``byte_tiles``."""
    if layer.stored is None:
        parts = [panels.reshape(-1) for panels in _panels(layer, cell, layer.r, target.lanes)]
        packed = aligned_empty((sum(part.size for part in parts),))
        return np.concatenate(parts, out=packed)
    levels = layer.stored.levels.reshape(layer.r.shape)
    words = -(-layer.hidden // WORD)
    wide = np.zeros((*levels.shape[:3], words * WORD), np.int8)
    wide[..., : layer.hidden] = levels
    grouped = wide.view(np.int32)  # words of four units each
    scales = layer.stored.scales.astype(np.float32).reshape(*levels.shape[:3], 1)
    sums = 128 * levels.sum(axis=-1, keepdims=True, dtype=np.int32)
    parts = []
    kinds = (_panels(layer, cell, each, target.lanes) for each in (scales, sums, grouped))
    for heads, offsets, bytes_ in zip(*kinds, strict=True):
        by_word = packed_words(bytes_.view(np.int8).reshape(len(bytes_), -1, WORD), target)
        rows = (heads.view(np.int8), offsets.view(np.int8), by_word.reshape(len(bytes_), -1))
        parts.append(np.concatenate(rows, axis=1).reshape(-1))
    packed = aligned_empty((sum(part.size for part in parts) // 4,))
    np.concatenate(parts, out=packed.view(np.int8))
    return packed


def _panels(layer: _Layer, cell: Cell, weights: np.ndarray, lanes: int) -> Iterator[np.ndarray]:
    """Yield the panels of each phase of each direction, padded with zeros: [panel, k * gate * lane]."""
    count, depth = layer.padded // lanes, weights.shape[3]
    wide = np.zeros((layer.directions, layer.gates, layer.padded, depth), weights.dtype)
    wide[:, :, : layer.hidden] = weights
    for direction in wide:
        for phase in cell.phases:
            chosen = direction[list(phase.gates)].reshape(len(phase.gates), count, lanes, depth)
            yield np.ascontiguousarray(chosen.transpose(1, 3, 0, 2)).reshape(count, -1)


def _vectors(layer: _Layer) -> np.ndarray:
    """Return the constant vectors that expressions read, [directions, vectors, padded]: peepholes or inner bias."""
    rows = np.zeros((layer.directions, 0, layer.hidden), np.float32)
    if layer.peepholes is not None:
        rows = layer.peepholes
    elif layer.resets_late:
        rows = layer.b[:, 1, 2:3]
    wide = np.zeros((*rows.shape[:2], layer.padded), np.float32)
    wide[:, :, : layer.hidden] = rows
    return wide


def _initial(lowering: Lowering, layer: _Layer, value: Value | None, batch: KnownDim) -> View | None:
    if value is None:
        return None
    view = lowering.contiguous(value)
    _check_state(lowering, layer, view.shape, batch)
    if view.dtype is not F32:
        raise NotLowered("an initial state that is not float32 is not generated")
    return view


def _check_state(lowering: Lowering, layer: _Layer, shape: tuple[KnownDim, ...], batch: KnownDim) -> None:
    if len(shape) != 3:
        raise NotLowered("a state that is not of rank 3 is not generated")
    for found, wanted in zip(shape, _state_shape(layer, batch), strict=True):
        lowering.require_equal(found, wanted)


def _state_shape(layer: _Layer, batch: KnownDim) -> tuple[KnownDim, ...]:
    if layer.is_batch_first:
        return (batch, layer.directions, layer.hidden)
    return (layer.directions, batch, layer.hidden)


def _lengths(lowering: Lowering, value: Value, batch: KnownDim) -> View:
    view = lowering.contiguous(value)
    if view.dtype is not DataType.INT32 or len(view.shape) != 1:
        raise NotLowered("sequence_lens is not a vector of int32")
    lowering.require_equal(view.shape[0], batch)
    return view


def _result(lowering: Lowering, layer: _Layer, value: Value | None, steps: KnownDim, batch: KnownDim) -> View | None:
    """Return where every step's states go: inside a group as [time, batch, direction, unit], as models read them."""
    if value is None:
        return None
    directions, hidden = layer.directions, layer.hidden
    if lowering.is_output(value) or layer.is_batch_first:
        by_step: tuple[KnownDim, ...] = (steps, directions, batch)
        first = (batch, steps, directions) if layer.is_batch_first else by_step
        return lowering.result_view(value, (*first, hidden))
    shape = (steps, batch, directions, hidden)
    buffer = Buffer(F32, count_of(shape), Place.ARENA)
    return View(buffer, shape, dense_strides(shape)).transposed((0, 2, 1, 3))


def _last(lowering: Lowering, layer: _Layer, value: Value | None, batch: KnownDim) -> View | None:
    """Return where a last state goes, of the sizes that the kernel writes: what the graph infers is a claim."""
    if value is None:
        return None
    shape = _state_shape(layer, batch)
    _check_state(lowering, layer, tensor_type(value)[1], batch)
    return lowering.result_view(value, shape)
