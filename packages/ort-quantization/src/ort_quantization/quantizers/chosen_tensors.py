"""The tensors that TensorQuantOverrides may name: those of a graph, and of its bodies where these are quantized."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, TensorProto

from ort_core.model_graphs import graphs_of
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantType
from ort_quantization.tensor_quant_overrides import Overrides, TensorQuantOverridesHelper


def check_overrides(
    overrides: TensorQuantOverridesHelper, graph: GraphProto, values: Iterable[str], has_bodies: bool,
    activation_type: QuantType | int,
) -> None:  # fmt: skip
    """Refuse choices that cannot be followed.

    Args:
        overrides: the choices.
        graph: the main graph of the model.
        values: the names of its values.
        has_bodies: whether bodies of If, Loop and Scan are quantized, too.
        activation_type: what activations are quantized to where nothing is chosen.

    Raises:
        InvalidQuantization: a choice cannot be followed.
    """
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    known = set(values)
    if overrides and not overrides.get_dict().keys() <= {*initializers, *known}:
        inner_tensors, inner_values = _of_bodies(graph)
        if has_bodies:
            initializers, known = {**inner_tensors, **initializers}, known | inner_values
        else:
            _refuse_inner(overrides, {*initializers, *known}, {*inner_tensors, *inner_values})
    is_valid, fault = overrides.is_valid(initializers, known, activation_type)
    if not is_valid:
        raise InvalidQuantization(fault or "")


def overrides_within(overrides: TensorQuantOverridesHelper, graph: GraphProto) -> Overrides:
    """Return the choices for the tensors of a graph and of its bodies."""
    own = {tensor.name for tensor in graph.initializer} | {each.name for each in graph.input}
    own.update(name for node in graph.node for name in node.output if name)
    inner_tensors, inner_values = _of_bodies(graph)
    known = own | inner_tensors.keys() | inner_values
    return {name: chosen for name, chosen in overrides.get_dict().items() if name in known}


def _of_bodies(graph: GraphProto) -> tuple[dict[str, TensorProto], set[str]]:
    """Return the initializers and the names of the other values of all bodies."""
    tensors: dict[str, TensorProto] = {}
    values: set[str] = set()
    for body in list(graphs_of(graph))[1:]:
        tensors.update({tensor.name: tensor for tensor in body.initializer})
        values.update(each.name for each in body.input)
        values.update(name for node in body.node for name in node.output if name)
    return tensors, values


def _refuse_inner(overrides: TensorQuantOverridesHelper, known: set[str], inner: set[str]) -> None:
    for name in overrides:
        if name in inner and name not in known:
            raise InvalidQuantization(
                f"TensorQuantOverrides of tensor {name!r}: it lies in a body of an If, a Loop or a Scan, and bodies "
                "are quantized only with extra_options={'EnableSubgraph': True}"
            )
