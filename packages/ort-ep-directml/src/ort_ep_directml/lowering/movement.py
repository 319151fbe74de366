"""Operators that move elements: views where strides can say it, copies where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.ops import slice_range
from ort_ep_directml.lowering.attributes import axis_of, constant_ints, from_front
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import element_type
from ort_ep_directml.lowering.operand import Operand, expanded, reinterpreted, transposed
from ort_ep_directml.lowering.plan import Scalar
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import DepthSpaceOrder, PaddingMode
from ort_ep_directml.schema.operators import parse_level

_WRAP_LEVEL = parse_level("6.4")
_PADDING_MODES = {
    "constant": PaddingMode.CONSTANT,
    "edge": PaddingMode.EDGE,
    "reflect": PaddingMode.REFLECTION,
    "wrap": PaddingMode.WRAP,
}


def _same(to: EmissionState, node: Node) -> Operand:
    return to.operand(node.input(0))


def _reshaped(to: EmissionState, node: Node) -> Operand:
    return to.reshape(to.operand(node.input(0)), to.sizes(node.output))


def _bit_cast(to: EmissionState, node: Node) -> Operand:
    x, dtype = to.operand(node.input(0)), element_type(node.output)
    if dtype is None or dtype.bits != x.dtype.bits:
        raise Refused("BitCast to another width is left to others")
    if DataType.BOOL in (dtype_of(node.input(0)), dtype_of(node.output)):
        raise Refused("a boolean of DirectML is a byte that holds 0 or 1, no bit pattern")
    return reinterpreted(x, dtype)


def _dropout(to: EmissionState, node: Node) -> list[Operand]:
    training = to.context.constant(node.input(2))
    if node.input(2) is not None and (training is None or training.any()):
        raise Refused("Dropout that is or may be training has random numbers")
    x = to.operand(node.input(0))
    found = [x]
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        found.append(expanded(to.scalar(ElementType.UINT8, 1), x.sizes))
    return found


def _transpose(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    return transposed(x, node.ints_attribute("perm") or tuple(reversed(range(x.rank))))


def _expand(to: EmissionState, node: Node) -> Operand:
    return expanded(to.operand(node.input(0)), to.sizes(node.output))


def _concat(to: EmissionState, node: Node) -> Operand:
    parts = [to.operand(value) for value in node.present_inputs() if 0 not in to.sizes(value)]
    axis = axis_of(node, parts[0].rank, 1)
    sizes = list(parts[0].sizes)
    sizes[axis] = sum(part.sizes[axis] for part in parts)
    if len(parts) == 1:
        return parts[0]
    return to.emit("JOIN", (parts[0].dtype, sizes), Inputs=parts, Axis=axis)


def sliced(
    to: EmissionState, x: Operand, offsets: Sequence[int], windows: Sequence[int], steps: Sequence[int]
) -> Operand:
    """Append a slice: of each dimension a window of elements, walked by steps, backwards where they are negative."""
    sizes = [-(-window // abs(step)) for window, step in zip(windows, steps, strict=True)]
    if tuple(sizes) == x.sizes and all(step > 0 for step in steps):
        return x
    fields = {"InputWindowOffsets": offsets, "InputWindowSizes": windows, "InputWindowStrides": steps}
    return to.emit("SLICE1", (x.dtype, sizes), Input=x, **{name: tuple(each) for name, each in fields.items()})


def _slice(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    starts = constant_ints(to, node, 1, "starts")
    if starts is None:
        raise Refused("Slice lacks its starts")
    axes = constant_ints(to, node, 3, "axes") or tuple(range(len(starts)))
    steps = constant_ints(to, node, 4, "steps") or (1,) * len(starts)
    offsets, windows, strides = [0] * x.rank, list(x.sizes), [1] * x.rank
    for start, end, axis, step in zip(starts, _ends(to, node, len(starts)), axes, steps, strict=True):
        place = from_front(axis, x.rank)
        if end is None and step < 0:
            raise Refused("a Slice that walks back to an end that is not a constant is left to others")
        walked = slice_range(x.sizes[place], start, x.sizes[place] if end is None else end, step)
        walked = walked if end is not None else walked[: to.sizes(node.output)[place]]
        if not walked:
            raise Refused("the slice holds no element; DirectML has no empty tensors")
        offsets[place], windows[place] = min(walked), max(walked) - min(walked) + 1
        strides[place] = step if len(walked) > 1 else 1
    return sliced(to, x, offsets, windows, strides)


def _ends(to: EmissionState, node: Node, count: int) -> tuple[int | None, ...]:
    """Return the ends of a slice; ``None`` where they are not constants, and the sizes of the result tell them."""
    value = node.input(2)
    if value is not None and to.context.constant(value) is None:
        return (None,) * count
    ends = constant_ints(to, node, 2, "ends")
    if ends is None:
        raise Refused("Slice lacks its ends")
    return ends


def _split(to: EmissionState, node: Node) -> list[Operand]:
    x = to.operand(node.input(0))
    axis = axis_of(node, x.rank, 0)
    parts, start = [], 0
    for value in node.outputs:
        sizes = to.sizes(value)
        offsets = [start if place == axis else 0 for place in range(x.rank)]
        parts.append(sliced(to, x, offsets, sizes, (1,) * x.rank))
        start += sizes[axis]
    return parts


def padded(
    to: EmissionState, x: Operand, before: Sequence[int], after: Sequence[int], value: float, mode: PaddingMode
) -> Operand:
    """Append a padding by at least 0 elements."""
    sizes = [size + low + high for size, low, high in zip(x.sizes, before, after, strict=True)]
    if tuple(sizes) == x.sizes:
        return x
    fill = {"PaddingValueDataType": int(x.dtype), "PaddingValue": Scalar(x.dtype, value)}
    ends = {"StartPadding": tuple(before), "EndPadding": tuple(after)}
    return to.emit("PADDING1", (x.dtype, sizes), Input=x, PaddingMode=int(mode), **fill, **ends)


def _pad(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    pads = constant_ints(to, node, 1, "pads")
    if pads is None:
        raise Refused("Pad lacks its pads")
    axes = constant_ints(to, node, 3, "axes") or tuple(range(x.rank))
    before, after = [0] * x.rank, [0] * x.rank
    for place, axis in enumerate(axes):
        before[from_front(axis, x.rank)], after[from_front(axis, x.rank)] = pads[place], pads[place + len(axes)]
    mode = _PADDING_MODES[node.string_attribute("mode", "constant")]
    _check_padding(to, x, before, after, mode)
    low = [max(-amount, 0) for amount in before]
    windows = [size - left - max(-amount, 0) for size, left, amount in zip(x.sizes, low, after, strict=True)]
    if min(windows, default=1) < 1:
        raise Refused("Pad takes away more than there is")
    x = sliced(to, x, low, windows, (1,) * x.rank)
    grown = [max(amount, 0) for amount in before], [max(amount, 0) for amount in after]
    return padded(to, x, *grown, _pad_value(to, node), mode)


def _check_padding(
    to: EmissionState, x: Operand, before: Sequence[int], after: Sequence[int], mode: PaddingMode
) -> None:
    if mode is PaddingMode.WRAP and to.context.level < _WRAP_LEVEL:
        raise Refused("padding that wraps around needs feature level 6.4")
    if mode is PaddingMode.REFLECTION and any(
        max(pair) >= size for *pair, size in zip(before, after, x.sizes, strict=True)
    ):
        raise Refused("Pad reflects more than once, which DirectML does not")


def _pad_value(to: EmissionState, node: Node) -> float:
    value = node.input(2)
    if value is None:
        return node.float_attribute("value", 0.0)
    array = to.context.constant(value)
    if array is None:
        raise Refused(f"the padding {value.name!r} is not a constant, and DirectML has it in the operator")
    number: float = array.reshape(()).item()
    return number


def _tile(to: EmissionState, node: Node) -> Operand:
    x, sizes = to.operand(node.input(0)), to.sizes(node.output)
    repeats = tuple(made // size for made, size in zip(sizes, x.sizes, strict=True))
    if all(count == 1 for count in repeats):
        return x
    return to.emit("TILE", (x.dtype, sizes), Input=x, Repeats=repeats)


def _exchange(operation: str) -> Callable[[EmissionState, Node], Operand]:
    """Return the rule of DepthToSpace or SpaceToDepth: blocks of channels become space, or the other way round."""

    def lower(to: EmissionState, node: Node) -> Operand:
        is_column_first = node.string_attribute("mode", "DCR") == "CRD"
        order = DepthSpaceOrder.COLUMN_ROW_DEPTH if is_column_first else DepthSpaceOrder.DEPTH_COLUMN_ROW
        x, block = to.operand(node.input(0)), node.int_attribute("blocksize", 1)
        made = (x.dtype, to.sizes(node.output))
        return to.emit(operation, made, Input=x, BlockSize=block, Order=int(order))

    return lower


def _trilu(to: EmissionState, node: Node) -> Operand:
    x, is_upper = to.operand(node.input(0)), bool(node.int_attribute("upper", 1))
    diagonals = np.arange(x.sizes[-1], dtype=np.int64) - np.arange(x.sizes[-2], dtype=np.int64)[:, None]
    array = np.zeros((), np.int64) if node.input(1) is None else to.context.constant(node.input(1))
    if array is not None:
        place = int(array.reshape(()))
        mask = to.constant((diagonals >= place if is_upper else diagonals <= place).astype(np.uint8))
    else:
        sizes, place_given = diagonals.shape, to.reshape(to.operand(node.input(1)), ())
        kind = "GREATER_THAN_OR_EQUAL" if is_upper else "LESS_THAN_OR_EQUAL"
        parts = {"A": to.constant(diagonals), "B": expanded(place_given, sizes)}
        mask = to.emit(f"ELEMENT_WISE_LOGICAL_{kind}", (ElementType.UINT8, sizes), **parts)
    zero = expanded(to.scalar(x.dtype, 0), x.sizes)
    return to.emit("ELEMENT_WISE_IF", (x.dtype, x.sizes), Condition=expanded(mask, x.sizes), A=x, B=zero)


def _reverse_sequence(to: EmissionState, node: Node) -> Operand:
    x, lengths = to.operand(node.input(0)), to.operand(node.input(1))
    time, batch = node.int_attribute("time_axis", 0), node.int_attribute("batch_axis", 1)
    places = [1] * x.rank
    places[batch] = x.sizes[batch]
    shaped = to.reshape(to.cast(lengths, ElementType.UINT32), places)
    every = expanded(shaped, [1 if axis == time else size for axis, size in enumerate(x.sizes)])
    return to.emit("REVERSE_SUBSEQUENCES", (x.dtype, x.sizes), Input=x, SequenceLengths=every, Axis=time)


MOVEMENT: Mapping[str, Rule] = {
    "BitCast": Rule(_bit_cast),
    "Concat": Rule(_concat, oldest=4),
    "DepthToSpace": Rule(_exchange("DEPTH_TO_SPACE1")),
    "Dropout": Rule(_dropout, outputs=2, oldest=7),
    "Expand": Rule(_expand, required=2),
    "Flatten": Rule(_reshaped),
    "Identity": Rule(_same),
    "Pad": Rule(_pad, oldest=2),
    "Reshape": Rule(_reshaped, required=2, oldest=5),
    "ReverseSequence": Rule(_reverse_sequence, required=2),
    "Slice": Rule(_slice),
    "SpaceToDepth": Rule(_exchange("SPACE_TO_DEPTH1")),
    "Split": Rule(_split, outputs=1 << 16, oldest=2),
    "Squeeze": Rule(_reshaped),
    "Tile": Rule(_tile, required=2, oldest=6),
    "Transpose": Rule(_transpose),
    "Trilu": Rule(_trilu),
    "Unsqueeze": Rule(_reshaped),
}
"""Rules by operator."""
