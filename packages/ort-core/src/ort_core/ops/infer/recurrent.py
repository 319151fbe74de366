"""Recurrent layers: RNN, GRU, LSTM."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import Shape
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext


def recurrent_shapes(ctx: InferenceContext, *, batch_first: bool) -> tuple[Shape, Shape]:
    """Return the shapes of the outputs of all steps and of the last step."""
    x, recurrence = ctx.shape_of_rank(0, 3), ctx.shape_of_rank(2, 3)
    hidden: Dim = ctx.optional_int_of("hidden_size")
    if not hidden:
        hidden = None if recurrence is None else recurrence[2]
    direction = ctx.string_of("direction", "forward").lower()
    if direction not in ("forward", "reverse", "bidirectional"):
        ctx.refuse(f"direction {direction!r} must be forward, reverse or bidirectional")
    count = 2 if direction == "bidirectional" else 1
    first, second = (None, None) if x is None else x[:2]
    if batch_first:
        return (first, second, count, hidden), (first, count, hidden)
    return (first, count, second, hidden), (count, second, hidden)


@infer_rule("RNN", "GRU", "LSTM")
def infer_recurrent(ctx: InferenceContext) -> None:
    """Y holds the outputs of all steps, Y_h (and Y_c) the last states."""
    every, last = recurrent_shapes(ctx, batch_first=ctx.int_of("layout") == 1)
    ctx.set_shape(0, every)
    ctx.set_shape(1, last)
    ctx.set_shape(2, last)


@infer_rule("GRUUnit")
def infer_gru_unit(ctx: InferenceContext) -> None:
    """The new hidden state has the shape of the old one."""
    ctx.set_shape(0, ctx.shape(0))
