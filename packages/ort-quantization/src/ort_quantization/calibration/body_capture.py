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
from ort_quantization.calibration.runs_in_pieces import RunsInPieces, has_large_weights
from ort_quantization.models.model_files import opset_of
from ort_quantization.weight_only.matmul_nbits_nodes import TakenNames
from ort_quantization.weight_only.matmul_nbits_sites import scopes

Operand = tuple[int, str]  # graph that gives it (``id``), its name


class OperandRuns:
    """Gives operands of a model, those in bodies too, as runs over samples show them; use it in a ``with`` statement.

    A model whose weights are many runs in pieces, each of which is loaded once: operands are asked for in the order of
    the nodes that read them.

    Args:
        model: unchanged behind the last value.
        folder: where its external data lies.
        channels: size of the last axis of each operand that will be asked for.
        samples: inputs of runs.
        providers: that run the model; the default ones by default.
    """

    def __init__(
        self, model: ModelProto, folder: str, channels: Mapping[Operand, int], samples: Samples,
        providers: Providers | None,
    ) -> None:  # fmt: skip
        self.main = id(model.graph)
        self._model, self._folder, self._samples, self._providers = model, folder, samples, providers
        self._pieces: RunsInPieces | None = None
        if has_large_weights(model.graph):
            given, self._names = self._with_names(list(channels))
            self._pieces = RunsInPieces(given, folder, list(self._names.values()), samples, providers)

    def __enter__(self) -> OperandRuns:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pieces is not None:
            self._pieces.close()

    @property
    def is_in_pieces(self) -> bool:
        """Whether the model is never loaded whole."""
        return self._pieces is not None

    def values(self, channels: Mapping[Operand, int]) -> Iterator[dict[Operand, np.ndarray]]:
        """Yield operands (…, channels) of samples' runs; those in bodies as (rows, channels), of all turns."""
        if self._pieces is None:
            model, names = self._with_names(list(channels))
            found = captured(model, self._folder, list(names.values()), iter(self._samples), self._providers)
        else:
            names = {operand: self._names[operand] for operand in channels}
            found = self._pieces.values(list(names.values()))
        for values in found:
            yield {
                operand: value if operand[0] == self.main else value.reshape(-1, channels[operand])
                for operand, name in names.items()
                if (value := values.get(name)) is not None
            }

    def _with_names(self, operands: Sequence[Operand]) -> tuple[ModelProto, dict[Operand, str]]:
        """Return a model whose main graph has values for operands, and their names."""
        names = {operand: operand[1] for operand in operands if operand[0] == self.main}
        inner = [operand for operand in operands if operand not in names]
        if not inner:
            return self._model, names
        model, given = with_results_of_bodies(self._model, inner)
        return model, names | given


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
