"""The operators of ai.onnx.preview.training: optimizers return what they were given, updated."""

from __future__ import annotations

from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext

TRAINING = "ai.onnx.preview.training"
_INPUTS_PER_TENSOR = {"Adagrad": (3, (0, 2)), "Momentum": (3, (0, 2)), "Adam": (4, (0, 2, 3))}


@infer_rule("Adagrad", "Momentum", "Adam", domain=TRAINING)
def infer_optimizer(ctx: InferenceContext) -> None:
    """Inputs are rate, step, then the tensors, the gradients and the states; outputs are tensors and states."""
    groups, kept = _INPUTS_PER_TENSOR[ctx.node.op_type]
    count, rest = divmod(ctx.input_count - 2, groups)
    if rest or count < 1:
        ctx.refuse(f"{ctx.input_count - 2} tensors do not form groups of {groups}")
    for place, group in enumerate(kept):
        for index in range(count):
            ctx.set_type(place * count + index, ctx.type_of(2 + group * count + index))


@infer_rule("Gradient", domain=TRAINING)
def infer_gradient(ctx: InferenceContext) -> None:
    """One gradient per tensor named in ``xs``, of its type; these are the first inputs."""
    for index in range(ctx.output_count):
        ctx.set_type(index, ctx.type_of(index))
