"""Convolutions, poolings and changes of size, in one to three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

Window = tuple[list[int], dict[str, Any]]


def image(g: GraphWriter, *dtypes: et.ElementType, least: int = 3, most: int = 5) -> Value:
    """Return a value with channels and one to three dimensions; now and then a new input."""
    if g.outer is None and len(g.inputs) < 4 and g.chance(0.25):
        rank = g.random.randint(least, most)
        value = g.input(g.choice(dtypes), rank)
    else:
        value = g.pick(*dtypes, least=least, most=most)
    if value.size(1) < 1:
        raise Refused("no channels")
    return value


def window(g: GraphWriter, value: Value, *, pool: bool = False) -> Window:
    """Return a kernel's sizes, and strides, dilations and paddings."""
    count = value.rank - 2
    kernel = [g.choice((1, 1, 2, 3, 3, 5) if count < 3 else (1, 2, 3)) for _ in range(count)]
    found: dict[str, Any] = {}
    if g.chance(0.6):
        found["strides"] = [g.choice((1, 1, 2, 2, 3)) for _ in range(count)]
    if g.chance(0.25):
        found["dilations"] = [g.choice((1, 2, 3)) for _ in range(count)]
    kind = g.random.random()
    if kind < 0.65:
        most = [max(k - 1, 0) if pool else k for k in kernel]
        found["pads"] = [g.random.randint(0, m) for m in most + most]
        if g.chance(0.6):
            found["pads"] = [g.random.randint(0, m) for m in most] * 2
    elif kind < 0.8:
        found["auto_pad"] = g.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return kernel, found


@family(7)
def convolution(g: GraphWriter) -> Value:
    value = image(g, *et.COMMON_FLOATS)
    channels = value.size(1)
    kernel, given = window(g, value)
    groups = g.choice([d for d in (1, 1, 1, 2, 4, channels) if channels % d == 0])
    count = groups * g.choice((1, 1, 2, 3, 4, 8, 16, 17))
    if groups > 1 and count > 66:
        count = groups
    spread = 1 / np.sqrt(max(channels // groups * np.prod(kernel), 1))
    weights = g.weights(value.dtype, count, channels // groups, *kernel, low=-spread, high=spread)
    bias = g.weights(value.dtype, count) if g.chance(0.5) else None
    shape = kernel if g.chance(0.7) else None
    result = g.node(
        "Conv",
        [value, weights, bias],
        group=groups if groups > 1 or g.chance(0.3) else None,
        kernel_shape=shape,
        **given,
    )
    return followed(g, result)


@family(2)
def wide_convolution(g: GraphWriter) -> Value:
    """Convolve windows with channels enough for Winograd's algorithm and for tiles, between changes of their number."""
    value = image(g, et.F32, least=4, most=4)

    groups = g.choice((1, 1, 1, 2, 3))
    value = _convolved(g, value, groups * g.choice((32, 48, 64)), (1, 1))
    for _ in range(g.choice((1, 1, 2))):
        kernel = g.choice(((3, 3), (3, 3), (3, 3), (7, 1), (3, 1), (1, 5)))
        pads = [each // 2 for each in kernel] * 2 if g.chance(0.6) else [g.random.randint(0, 2) for _ in range(4)]
        count = groups * g.choice((32, 32, 64))
        value = followed(g, _convolved(g, value, count, kernel, pads=pads, **({"group": groups} if groups > 1 else {})))
    return _convolved(g, value, g.choice((1, 3, 8)), (1, 1))


@family(1)
def convolution_of_many_channels(g: GraphWriter) -> Value:
    """Convolve windows, dilated ones with taps in the border above all, between changes of the number of channels."""
    value = image(g, et.F32, least=4, most=4)
    if g.chance(0.6):
        value = g.node("Tile", [value, g.constant(np.array([1, 1, g.choice((1, 2, 4)), g.choice((2, 3, 5))]), et.I64)])
    value = _convolved(g, value, g.choice((32, 64, 160, 256)), (1, 1))
    apart = [g.choice((1, 2, 3, 6))] * 2 if g.chance(0.8) else [g.choice((1, 2, 4)) for _ in range(2)]
    pads = apart * 2 if g.chance(0.7) else [g.random.randint(0, each + 1) for each in apart * 2]
    given = {"strides": [2, 2]} if g.chance(0.15) else {}
    value = _convolved(g, value, g.choice((32, 96, 256, 300)), (3, 3), pads=pads, dilations=apart, **given)
    return _convolved(g, followed(g, value), g.choice((1, 3, 8)), (1, 1))


def _convolved(g: GraphWriter, value: Value, count: int, kernel: tuple[int, int], **given: Any) -> Value:
    """Convolve float32 with weights that keep the size of numbers."""
    depth = value.size(1) // given.get("group", 1)
    spread = 1 / np.sqrt(depth * kernel[0] * kernel[1])
    weights = g.weights(et.F32, count, depth, *kernel, low=-spread, high=spread)
    return g.node("Conv", [value, weights, g.weights(et.F32, count) if g.chance(0.5) else None], **given)


@family(2)
def mixed_channels(g: GraphWriter) -> Value:
    """Multiply the channels of an image by one or two matrices, as mixers of tokens and heads do."""
    value = image(g, et.F32, et.F32, et.F16)
    rank = value.rank
    result = g.node("Transpose", [value], perm=[0, *range(2, rank), 1])
    for _ in range(g.choice((1, 1, 2))):
        depth, count = result.size(-1), g.choice((1, 3, 4, 8, 17))
        bound = 1 / np.sqrt(max(depth, 1))
        result = g.node("MatMul", [result, g.weights(value.dtype, depth, count, low=-bound, high=bound)])
        if g.chance(0.6):
            result = g.node("Add", [result, g.weights(value.dtype, count)])
        if g.chance(0.4):
            result = g.node(g.choice(("Relu", "Sigmoid", "Softmax")), [result])
    return g.node("Transpose", [result], perm=[0, rank - 1, *range(1, rank - 1)])


def followed(g: GraphWriter, result: Value) -> Value:
    """Add what stands behind a convolution: normalization, activation, a sum."""
    if g.chance(0.25) and result.dtype in (et.F32, et.F64, et.F16):
        result = batch_norm(g, result)
    if g.chance(0.5):
        result = g.node(g.choice(("Relu", "Sigmoid", "LeakyRelu", "HardSigmoid", "Tanh")), [result])
    if g.chance(0.2):
        result = g.node("Add", [result, g.pick(result.dtype, where=lambda v: v.shapes == result.shapes)])
    return result


def batch_norm(g: GraphWriter, value: Value) -> Value:
    """Add a batch normalization."""
    count = value.size(1)
    parts = [g.weights(value.dtype, count) for _ in range(3)]
    variance = g.constant(g.numbers_of(value.dtype, (count,), 0.3, 2))
    return g.node("BatchNormalization", [value, *parts, variance], epsilon=g.choice((1e-3, 1e-5)))


@family(2)
def batch_normalization(g: GraphWriter) -> Value:
    return batch_norm(g, g.pick(et.F32, et.F32, et.F64, et.F16, least=2))


@family(2)
def transposed_convolution(g: GraphWriter) -> Value:
    value = image(g, et.F32, et.F32, et.F32, et.F16, et.F64)
    channels = value.size(1)
    kernel, given = window(g, value, pool=True)
    groups = g.choice([d for d in (1, 1, 2, channels) if channels % d == 0])
    weights = g.weights(value.dtype, channels, g.choice((1, 2, 3, 8, 17)), *kernel, low=-0.3, high=0.3)
    if g.chance(0.3) and "strides" in given:
        given["output_padding"] = [g.random.randrange(max(s, 1)) for s in given["strides"]]
    bias = g.weights(value.dtype, weights.shapes[0][1] * groups) if g.chance(0.5) else None
    return g.node("ConvTranspose", [value, weights, bias], group=groups, **given)


@family(4)
def pooling(g: GraphWriter) -> Value:
    op_type = g.choice(("MaxPool", "AveragePool", "MaxPool", "AveragePool", "LpPool"))
    dtypes = (et.F32, et.F32, et.F16, et.F64, *((et.U8, et.I8) if op_type == "MaxPool" else ()))
    value = image(g, *dtypes)
    kernel, given = window(g, value, pool=True)
    if op_type != "MaxPool" and g.opset < (19 if op_type == "AveragePool" else 18):
        given.pop("dilations", None)
    if g.chance(0.25) and (op_type != "LpPool" or g.opset >= 18):
        given["ceil_mode"] = 1
    if op_type == "AveragePool":
        given["count_include_pad"] = g.choice((0, 1))
    if op_type == "LpPool":
        given["p"] = g.choice((1, 2))
    outputs = 2 if op_type == "MaxPool" and g.opset > 7 and g.chance(0.15) else 1
    return g.node(op_type, [value], outputs, kernel_shape=kernel, **given)


@family(2)
def global_pooling(g: GraphWriter) -> Value:
    value = image(g, et.F32, et.F32, et.F16, et.F64)
    op_type = g.choice(("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    return g.node(op_type, [value], p=g.choice((1, 2)) if op_type == "GlobalLpPool" else None)


@family()
def squeeze_and_excite(g: GraphWriter) -> Value:
    value = image(g, et.F32, least=4, most=4)
    channels, middle = value.size(1), g.choice((1, 4, 8))
    pooled = g.node("GlobalAveragePool", [value])
    inner = g.node("Relu", [g.node("Conv", [pooled, g.weights(et.F32, middle, channels, 1, 1)])])
    outer = g.node("Conv", [inner, g.weights(et.F32, channels, middle, 1, 1)])
    return g.node("Mul", [value, g.node(g.choice(("Sigmoid", "HardSigmoid")), [outer])])


@family(2)
def resize(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, et.U8, least=3, most=5, filled=True)
    mode = g.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    if mode == "cubic" and value.rank != 4:
        raise Refused("cubic is for images")
    coordinates = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.choice(coordinates)}
    if mode == "nearest":
        given["nearest_mode"] = g.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic" and g.chance(0.5):
        given |= {"cubic_coeff_a": -0.5, "exclude_outside": g.choice((0, 1))}
    if mode == "linear" and g.chance(0.2) and g.opset >= 18 and value.rank == 4:
        given["antialias"] = 1
    count = value.rank - 2
    if g.chance(0.5):
        scales = np.asarray([1, 1, *(g.choice((1, 2, 0.5, 1.5, 3, 0.7)) for _ in range(count))], np.float32)
        return g.node("Resize", [value, None, g.constant(scales)], **given)
    sizes = [value.size(0), value.size(1), *(g.choice((1, 2, 4, 7, 9, 16)) for _ in range(count))]
    return g.node("Resize", [value, None, None, g.constant(np.asarray(sizes, np.int64))], **given)


@family(2)
def scales_that_meet(g: GraphWriter) -> Value:
    """Halve an image, enlarge it again by a number, and let both meet: equal sizes by other formulas, or one of 1."""
    if g.opset < 11:
        raise Refused("modes of Resize are newer")
    value = image(g, et.F32, least=4, most=4)
    if len({shape[1] for shape in value.shapes}) > 1:
        raise Refused("channels that only a run knows")
    if g.chance(0.5):
        value = g.node("Tile", [value, g.constant(np.array([1, 1, g.choice((2, 4)), g.choice((2, 4))]), et.I64)])
    count = g.choice((1, 4, 8, 16, 17))
    fine = _convolved(g, value, count, (1, 1))
    if g.chance(0.5):
        fine = _halved(g, fine)
    enlarged, times = _halved(g, fine), 2
    if g.chance(0.3):
        enlarged, times = _halved(g, enlarged), 4
    scales = g.constant(np.array([1, 1, times, times], np.float32))
    mode = g.choice(({"mode": "nearest", "nearest_mode": "floor"}, {"mode": "linear"}))
    enlarged = g.node("Resize", [enlarged, None, scales], coordinate_transformation_mode="asymmetric", **mode)
    for own, other in zip(fine.shapes, enlarged.shapes, strict=True):
        if any(a != b and 1 not in (a, b) for a, b in zip(own, other, strict=True)):
            raise Refused("sizes that do not meet")
    side = _convolved(g, fine, count, (1, 1)) if g.chance(0.6) else fine
    if g.chance(0.2):
        side = g.node("Expand", [side, g.node("Shape", [enlarged])])
    pair = [side, enlarged] if g.chance(0.5) else [enlarged, side]
    result = g.node(g.choice(("Add", "Add", "Mul", "Sub", "Max")), pair)
    return _convolved(g, result, g.choice((1, 8)), (3, 3), pads=[1] * 4) if g.chance(0.7) else result


def _halved(g: GraphWriter, value: Value) -> Value:
    """Take every second pixel of what a convolution or a pool makes of an image, with a border or without."""
    given = {"strides": [2, 2], "pads": g.choice(([1] * 4, [0] * 4, [0, 0, 1, 1]))}
    kernel = [3, 3] if sum(given["pads"]) == 4 else [2, 2]
    if g.chance(0.4):
        return _convolved(g, value, value.size(1), (kernel[0], kernel[1]), **given)
    return g.node(g.choice(("MaxPool", "AveragePool")), [value], kernel_shape=kernel, **given)


@family()
def depth_and_space(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F64, et.U8, et.F16, rank=4)
    if g.chance(0.5):
        return g.node("DepthToSpace", [value], blocksize=2, mode=g.choice(("DCR", "CRD")))
    return g.node("SpaceToDepth", [value], blocksize=2)


@family()
def grid_sample(g: GraphWriter) -> Value:
    if g.opset < 20:
        raise Refused("other names of modes")
    value = g.pick(et.F32, rank=4, filled=True)
    batch = value.size(0)
    grid = g.weights(et.F32, batch, g.choice((1, 3)), g.choice((2, 5)), 2, low=-1.2, high=1.2)
    return g.node(
        "GridSample", [value, grid], mode=g.choice(("linear", "nearest", "cubic")), align_corners=g.choice((0, 1)),
        padding_mode=g.choice(("zeros", "border", "reflection")),
    )  # fmt: skip
