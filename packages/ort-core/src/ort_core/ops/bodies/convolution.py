"""Convolutions and poolings with an activation, an addend, or channels last."""

from __future__ import annotations

from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results, activated
from ort_core.ops.bodies.writer import BodyWriter

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode")


def window_attributes(w: BodyWriter) -> dict[str, object]:
    """Return the attributes of windows that a node states."""
    return {
        name: w.node.attributes[name].value
        for name in _WINDOW
        if name in w.node.attributes and w.node.attributes[name].value != ()
    }


def channels_first(w: BodyWriter, x: Value, rank: int) -> Value:
    """Return (N, spatial..., C) as (N, C, spatial...)."""
    return w.transpose(x, 0, rank - 1, *range(1, rank - 1))


def channels_last(w: BodyWriter, x: Value, rank: int) -> Value:
    """Return (N, C, spatial...) as (N, spatial..., C)."""
    return w.transpose(x, 0, *range(2, rank), 1)


def _convolved(w: BodyWriter, x: Value, weights: Value, addend: Value | None) -> Value:
    inputs = (x, weights, w.find_wide(2)) if w.has(2) else (x, weights)
    total = w.sum(w.op("Conv", *inputs, **window_attributes(w)), addend)
    parameters = w.attribute("activation_params")
    alpha, beta = (*(parameters if isinstance(parameters, tuple) else ()), None, None)[:2]
    return activated(
        w, total, w.computing(), w.string_of("activation"),
        None if alpha is None else float(alpha), None if beta is None else float(beta),
    )  # fmt: skip


def fused_conv(w: BodyWriter) -> Results:
    """Y = activation(Conv(X, W) + B + Z)."""
    return [w.narrow(_convolved(w, w.wide(0), w.wide(1), w.find_wide(3)))]


def nhwc_fused_conv(w: BodyWriter) -> Results:
    """FusedConv on (N, spatial..., C); the weights stay (M, C / group, kernel...)."""
    rank = w.rank(0)
    addend = w.find_wide(3)
    moved = None if addend is None else channels_first(w, addend, rank)
    return [w.narrow(channels_last(w, _convolved(w, channels_first(w, w.wide(0), rank), w.wide(1), moved), rank))]


def nhwc_conv(w: BodyWriter) -> Results:
    """Conv on (N, spatial..., C) with weights (M, kernel..., C / group)."""
    rank = w.rank(0)
    x, weights = (channels_first(w, w.wide(index), rank) for index in (0, 1))
    return [w.narrow(channels_last(w, _convolved(w, x, weights, None), rank))]


def nhwc_max_pool(w: BodyWriter) -> Results:
    """MaxPool on (N, spatial..., C)."""
    rank = w.rank(0)
    pooled = w.op("MaxPool", channels_first(w, w.input(0), rank), **window_attributes(w))
    return [channels_last(w, pooled, rank)]


def qlinear_conv(w: BodyWriter) -> Results:
    """QLinearConv of ai.onnx, channels last on request."""
    rank, last = w.rank(0), bool(w.int_of("channels_last"))
    x = channels_first(w, w.input(0), rank) if last else w.input(0)
    inputs = [x, *(w.find(index) for index in range(1, 9 if w.has(8) else 8))]
    made = w.op("QLinearConv", *inputs, **window_attributes(w))
    return [channels_last(w, made, rank) if last else made]
