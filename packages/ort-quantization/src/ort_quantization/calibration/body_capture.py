"""Operands inside the bodies of If, Loop and Scan, as runs show them: a copy of the model gives them as results.

Before:  body: y = MatMul(t, w)
After:   body: y = MatMul(t, w)  t_seen_0 = Cast(t)        and ``calibration_outputs`` leads t_seen_0 out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper

from ort_quantization.calibration.activation_capture import Providers, Samples, captured
from ort_quantization.calibration.calibration_outputs import SubgraphOutputsState, add_subgraph_outputs
from ort_quantization.models.model_files import opset_of
from ort_quantization.weight_only.matmul_nbits_nodes import TakenNames
from ort_quantization.weight_only.matmul_nbits_sites import scopes

Operand = tuple[int, str]  # graph that gives it (``id``), its name


def captured_anywhere(
    model: ModelProto, folder: str, channels: Mapping[Operand, int], samples: Samples, providers: Providers | None
) -> Iterator[dict[Operand, np.ndarray]]:
    """Yield the operands (…, channels) of each sample's run; those in bodies as (rows, channels), of all turns.

    Args:
        model: unchanged behind the last value.
        folder: where its external data lies.
        channels: size of the last axis of each operand.
        samples: inputs of runs.
        providers: that run the model; the default ones by default.
    """
    names = {operand: operand[1] for operand in channels if operand[0] == id(model.graph)}
    inner = [operand for operand in channels if operand not in names]
    if inner:
        model, given = with_results_of_bodies(model, inner)
        names |= given
    for values in captured(model, folder, list(names.values()), iter(samples), providers):
        yield {
            operand: value if operand not in inner else value.reshape(-1, channels[operand])
            for operand, name in names.items()
            if (value := values.get(name)) is not None
        }


def with_results_of_bodies(model: ModelProto, operands: Sequence[Operand]) -> tuple[ModelProto, dict[Operand, str]]:
    """Return a copy of a model, and the name of the flat float32 result that gives each operand.

    An operand inside a Scan's body's own bodies has none: those of each turn have other lengths.
    """
    copied = ModelProto()
    copied.CopyFrom(model)
    names, seen = TakenNames(copied), dict[str, Operand]()
    pairs = zip(scopes(model.graph), scopes(copied.graph), strict=True)
    for graph, other in [(scope.graph, twin.graph) for scope, twin in pairs]:
        for operand in operands:
            if operand[0] == id(graph):
                seen[_show(other, operand[1], names)] = operand
    state = SubgraphOutputsState(
        lambda node: bool(node.output) and node.output[0] in seen, extremes_only=False, opset=opset_of(model),
        names=frozenset(seen),
    )  # fmt: skip
    found = add_subgraph_outputs(copied.graph, {}, state)
    return copied, {seen[each.tensor]: each.result for each in found}


def _show(graph: GraphProto, name: str, names: TakenNames) -> str:
    """Add a float32 copy of a value to a graph, and return its name."""
    shown = names.new(f"{name}_seen")
    graph.node.append(helper.make_node("Cast", [name], [shown], to=TensorProto.FLOAT))
    graph.value_info.append(helper.make_tensor_value_info(shown, TensorProto.FLOAT, None))
    return shown
