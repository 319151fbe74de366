"""LogSoftmax of infinities: its plan, evaluated by numpy operator by operator, gives what the specification says.

Needs no DirectML: the operators of the plan mean what IEEE 754 says. The rig's cases show that the library's do, too.
"""

from __future__ import annotations

import numpy as np
import pytest
from lowered_plans import plans
from lowered_programs import OPSET

import ort_core as ort
from ort_core.testing.models import model_of
from ort_core.tolerances import compare
from ort_ep_directml.lowering.plan import GraphPlan, PlanNode, Source, Tensor
from ort_ep_directml.schema.enumerators import ReduceFunction
from ort_ep_directml.schema.operators import OPERATORS

INF, NAN = np.inf, np.nan
ROWS = np.array([
    [0, 1, 2, 3], [-INF, 1, -INF, 2], [-INF] * 4, [INF, 0, 1, -INF], [INF, INF, 0, 0], [NAN, 0, -INF, 1],
    [-65504, -65504, -INF, -65504], [6e4, -6e4, 0, -INF], [-INF, -INF, -INF, 5],
], np.float32)  # fmt: skip


def evaluated(plan: GraphPlan, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a plan of differences, exponentials, logarithms, casts and reductions."""
    buffers: dict[Source, np.ndarray] = {Source("input", place): np.ravel(x) for place, x in enumerate(inputs)}
    with np.errstate(all="ignore"):
        for place, node in enumerate(plan.nodes):
            buffers[Source("node", place)] = np.ravel(_result(node, buffers))
    return [_seen(buffers[port.source], port.tensor).reshape(port.shape) for port in plan.outputs]


def _result(node: PlanNode, buffers: dict[Source, np.ndarray]) -> np.ndarray:
    tensors = [node.fields[field.name] for field in OPERATORS[node.kind].fields if field.kind == "in"]
    read = [_seen(buffers[source], tensor) for source, tensor in zip(node.sources, tensors, strict=True)]
    [made] = node.output_tensors()
    if node.kind == "REDUCE":
        fold = {ReduceFunction.MAX: np.max, ReduceFunction.SUM: np.sum}[ReduceFunction(node.fields["Function"])]
        return fold(read[0], axis=tuple(node.fields["Axes"]), keepdims=True)
    if node.kind == "CAST":
        return read[0].astype(made.dtype.numpy)
    functions = {"ELEMENT_WISE_SUBTRACT": np.subtract, "ELEMENT_WISE_EXP": np.exp, "ELEMENT_WISE_LOG": np.log}
    return functions[node.kind](*read)


def _seen(buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
    assert buffer.dtype == tensor.dtype.numpy
    if tensor.strides is None:
        return buffer.reshape(tensor.sizes)
    return np.lib.stride_tricks.as_strided(buffer, tensor.sizes, [s * buffer.itemsize for s in tensor.strides])


@pytest.mark.parametrize(("axis", "opset"), [(1, OPSET), (0, OPSET), (-1, OPSET), (1, 11)])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_infinities_are_as_in_the_specification(kind: str, axis: int, opset: int) -> None:
    x = (ROWS if axis else ROWS.T.copy()).astype(np.float16 if kind == "float16" else np.float32)
    rows, columns = x.shape
    text = f"g ({kind}[{rows},{columns}] x) => ({kind}[{rows},{columns}] y) {{ y = LogSoftmax<axis={axis}>(x) }}"
    [plan] = plans(text, opset)
    [found] = evaluated(plan, [x])
    model = model_of(text, opsets=f'"" : {opset}')
    [expected] = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})
    facts = compare(found, expected, "approximate")
    assert facts.passes, facts
    along = 1 if axis else 0
    masked = np.isneginf(x) & np.isfinite(x).any(along, keepdims=True) & ~np.isposinf(x).any(along, keepdims=True)
    assert np.isneginf(found[masked & ~np.isnan(x).any(along, keepdims=True)]).all(), "what is masked stays so"
