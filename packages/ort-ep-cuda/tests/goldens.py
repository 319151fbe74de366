"""Writes what is sent to the device for a few graphs, as text; ``test_lowering`` compares. Run it to accept a change.

python packages/ort-ep-cuda/tests/goldens.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from acme_formulas import GRAPHS, OPERATORS
from graph_cases import CASES

from ort_core.plugin import Claim
from ort_core.plugin.ops import OpLibrary
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_core.testing.environments import session_environment
from ort_core.testing.models import model_of
from ort_ep_cuda.capability import find_capability
from ort_ep_cuda.lowering.lower_partition import lower_partition
from ort_ep_cuda.lowering.program import Program

FOLDER = Path(__file__).parent / "goldens"
NAMES = (
    "attention_as_products", "cast_through_half", "chain_of_elementwise", "convolution_with_bias_and_relu", "gather",
    "layer_norm", "pad", "softmax_along_the_first_axis", "transpose_read_by_elementwise", *GRAPHS,
)  # fmt: skip


def program_of(name: str) -> Program:
    """Return the program of a case, or of a graph of a user's operators."""
    if name in GRAPHS:
        body, shapes = GRAPHS[name]
        return _program(body, '"" : 21, "com.acme" : 1', shapes)
    (case,) = (case for case in CASES if case.name == name)
    return _program(case.body, f'"" : {case.opset}', [array.shape for array in case.feeds.values()])


def _program(body: str, opsets: str, shapes: Sequence[tuple[int, ...]]) -> Program:
    environment = session_environment().with_libraries([OpLibrary("acme", OPERATORS)])
    model = model_of(body, opsets=opsets)
    sizes = {value.name: shape for value, shape in zip(model.graph.inputs, shapes, strict=True)}
    view = view_of(typed_model(model, environment), environment=environment)
    (claim,) = (found for found in find_capability(view, lambda op_type: None) if isinstance(found, Claim))
    request = request_for(view, claim)
    inputs = [sizes[value.name] for value in request.graph.inputs]  # a claim has them in the order of their first use
    return lower_partition(request.graph, request.context, inputs, {})


def text_of(program: Program) -> str:
    """Return a program and the sources of its kernels."""
    return "\n".join([program.describe(), *(kernel.source for kernel in program.kernels())])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in NAMES:
        (FOLDER / f"{each}.txt").write_text(text_of(program_of(each)), encoding="utf-8")
