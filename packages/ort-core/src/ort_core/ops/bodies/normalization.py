"""Layer, group and root-mean-square normalization with the additions and gates that are fused with them."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results, silu
from ort_core.ops.bodies.writer import BodyWriter, NoBody

_LAYER_NORMALIZATION = 17  # the opset that has it


def layer_norm(
    w: BodyWriter, x: Value, scale: Value, shift: Value | None, epsilon: float, outputs: int = 1
) -> list[Value]:
    """Return x normalized over its last axis; on request its mean and inverse deviation, too."""
    if w.opset >= _LAYER_NORMALIZATION:
        inputs = (x, scale) if shift is None else (x, scale, shift)
        return w.ops("LayerNormalization", *inputs, outputs=outputs, axis=-1, epsilon=epsilon)
    mean = w.reduce("ReduceMean", x, [-1])
    centered = w.op("Sub", x, mean)
    inverse = _inverse_root(w, w.reduce("ReduceMean", w.op("Mul", centered, centered), [-1]), epsilon)
    scaled = w.op("Mul", w.op("Mul", centered, inverse), scale)
    return [w.sum(scaled, shift), mean, inverse][:outputs]


def rms_norm(w: BodyWriter, x: Value, epsilon: float, axes: Sequence[int] = (-1,)) -> tuple[Value, Value]:
    """Return x / rms(x) over its last axis, and 1 / rms(x)."""
    inverse = _inverse_root(w, w.reduce("ReduceMean", w.op("Mul", x, x), axes), epsilon)
    return w.op("Mul", x, inverse), inverse


def _inverse_root(w: BodyWriter, squares: Value, epsilon: float) -> Value:
    added = w.op("Add", squares, w.constant(epsilon, DataType.FLOAT))
    return w.op("Div", w.constant(1, DataType.FLOAT), w.op("Sqrt", added))


def _statistics_are_float(w: BodyWriter) -> None:
    if w.computing() is not DataType.FLOAT:
        raise NoBody(f"the body of {w.node.op_type} computes in float32, its input is {w.dtype(0).text}")


def skip_layer_normalization(w: BodyWriter) -> Results:
    """Y = LayerNorm(X + skip + bias); also the mean, the inverse deviation and the sum."""
    _statistics_are_float(w)
    total = w.sum(w.wide(0), w.wide(1), w.find_wide(4))
    count = 3 if w.wants(2) else 2 if w.wants(1) else 1
    made = layer_norm(w, total, w.wide(2), w.find_wide(3), w.float_of("epsilon"), count)
    statistics = [made[index] if index < len(made) else None for index in (1, 2)]
    return [w.narrow(made[0]), *statistics, w.narrow(total) if w.wants(3) else None]


def skip_simplified_layer_normalization(w: BodyWriter) -> Results:
    """Y = S / rms(S) * gamma with S = X + skip + bias; the mean output is zero, as there is none."""
    _statistics_are_float(w)
    total = w.sum(w.wide(0), w.wide(1), w.find_wide(3))
    normal, inverse = rms_norm(w, total, w.float_of("epsilon"))
    result = w.narrow(w.op("Mul", normal, w.wide(2)))
    mean = w.op("Sub", inverse, inverse) if w.wants(1) else None
    return [result, mean, inverse if w.wants(2) else None, w.narrow(total) if w.wants(3) else None]


def simplified_layer_normalization(w: BodyWriter) -> Results:
    """Y = X / rms(X) * scale over the axes from ``axis`` on, in the type of scale."""
    _statistics_are_float(w)
    axis, rank = w.int_of("axis", -1), w.rank(0)
    normal, inverse = rms_norm(w, w.wide(0), w.float_of("epsilon"), range(axis % rank, rank))
    return [w.narrow(w.op("Mul", normal, w.wide(1)), 1), inverse if w.wants(1) else None]


def _grouped(w: BodyWriter, x: Value, rank: int) -> Value:
    """Return a wide image, normalized by groups of channels, scaled, shifted and activated."""
    last = bool(w.int_of("channels_last", 1))
    moved = w.transpose(x, 0, rank - 1, *range(1, rank - 1)) if last else x
    rows = w.reshape(moved, 0, w.int_of("groups"), -1)
    mean = w.reduce("ReduceMean", rows, [-1])
    centered = w.op("Sub", rows, mean)
    inverse = _inverse_root(w, w.reduce("ReduceMean", w.op("Mul", centered, centered), [-1]), w.float_of("epsilon"))
    normal = w.op("Reshape", w.op("Mul", centered, inverse), w.op("Shape", moved))
    column = [-1, *[1] * (rank - 2)]
    scaled = w.op("Mul", normal, w.reshape(w.wide(1), *column))
    result = w.op("Add", scaled, w.reshape(w.wide(2), *column))
    if w.int_of("activation"):
        result = silu(w, result)
    return w.transpose(result, 0, *range(2, rank), 1) if last else result


def group_norm(w: BodyWriter) -> Results:
    """Y = activation(GroupNorm(X)); activation 1 is SiLU."""
    _statistics_are_float(w)
    return [w.narrow(_grouped(w, w.wide(0), w.rank(0)))]


def skip_group_norm(w: BodyWriter) -> Results:
    """S = X + skip + bias; Y = activation(GroupNorm(S)). A skip of (N, C) is repeated over the image."""
    _statistics_are_float(w)
    last = bool(w.int_of("channels_last", 1))
    skip, bias = w.wide(3), w.find_wide(4)
    if w.rank(3) == 2:
        skip = w.unsqueeze(skip, 1, 2) if last else w.unsqueeze(skip, 2, 3)
    if bias is not None and not last:
        bias = w.unsqueeze(bias, 1, 2)
    total = w.sum(w.wide(0), skip, bias)
    return [w.narrow(_grouped(w, total, w.rank(0))), w.narrow(total) if w.wants(1) else None]


def gated_rms_norm(w: BodyWriter) -> Results:
    """Y = X / rms(X) * scale * activation(gate), the mean square over each group of len(scale) elements."""
    _statistics_are_float(w)
    width = w.size(w.input(1), 0)
    groups = w.reshape(w.wide(0), *[0] * (w.rank(0) - 1), -1, width)
    normal = w.op("Mul", rms_norm(w, groups, w.float_of("epsilon"))[0], w.wide(1))
    flat = w.op("Reshape", normal, w.op("Shape", w.input(0)))
    gate = w.wide(2)
    weight = w.op("Sigmoid", gate) if w.string_of("activation") == "sigmoid" else silu(w, gate)
    return [w.narrow(w.op("Mul", flat, weight))]


def branchwise_rms_norm(w: BodyWriter) -> Results:
    """Y = X / rms(X) * scale within each branch; X is (..., C, H), or (..., C*H) when num_branches is C."""
    _statistics_are_float(w)
    branches = w.int_of("num_branches")
    x = w.wide(0)
    if branches:
        x = w.reshape(x, *[0] * (w.rank(0) - 1), branches, -1)
    normal = rms_norm(w, x, w.float_of("epsilon"))[0]
    if w.has(1):
        normal = w.op("Mul", normal, _branch_scale(w, branches))
    return [w.narrow(w.op("Reshape", normal, w.op("Shape", w.input(0))) if branches else normal)]


def _branch_scale(w: BodyWriter, branches: int) -> Value:
    scale, shape, whole = w.wide(1), w.shape(1), w.shape(0)
    if shape is None or whole is None or not isinstance(shape[-1], int) or not isinstance(whole[-1], int):
        raise NoBody("the sizes of scale and of the last axis are not known")
    count = branches or whole[-2]
    width = whole[-1] // branches if branches else whole[-1]
    if len(shape) == 1 and shape[0] != width:
        if not isinstance(count, int):
            raise NoBody("the number of branches is not known")
        return w.reshape(scale, count, width)
    return scale
