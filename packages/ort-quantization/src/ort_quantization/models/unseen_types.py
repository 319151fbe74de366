"""Nodes whose rule in onnx reads a type that may be missing, which ends the process: unseen until it is known.

Such a node has another name while onnx infers shapes or converts a model, as if nobody knew its operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx
from onnx import ModelProto, NodeProto

from ort_core.model_graphs import graphs_of

_ML = "ai.onnx.ml"
_READERS = frozenset(
    [(_ML, "DictVectorizer"), (_ML, "LabelEncoder"), (_ML, "TreeEnsemble"), ("", "RegexFullMatch"), ("", "SequenceMap")]
)
_UNSEEN = "OfUnknownType"  # behind the name of an operator


def inferred_seen(model: ModelProto) -> ModelProto:
    """Return a model of less than 2 GB with the shapes that onnx infers: again where they tell types that were missing.

    The model given is as before.
    """
    hidden = -1
    while True:
        with unseen(model) as count:
            found = onnx.shape_inference.infer_shapes(model)
        show(found)
        if count in (0, hidden):
            return found
        model, hidden = found, count


@contextmanager
def unseen(model: ModelProto) -> Iterator[int]:
    """Hide the nodes of a model whose first input has no known type, and tell how many; show them again behind."""
    typed = _typed(model)
    hidden = [node for node in _readers(model) if node.input[:1] and node.input[0] not in typed]
    hidden += [node for function in model.functions for node in function.node if _is_reader(node)]
    for node in hidden:
        node.op_type += _UNSEEN
    try:
        yield len(hidden)
    finally:
        show(model)


def show(model: ModelProto) -> None:
    """Give the nodes of a model that are unseen their own names again."""
    of_functions = (node for function in model.functions for node in function.node)
    for node in (*of_functions, *(node for graph in graphs_of(model.graph) for node in graph.node)):
        node.op_type = node.op_type.removesuffix(_UNSEEN)


def _readers(model: ModelProto) -> Iterator[NodeProto]:
    return (node for graph in graphs_of(model.graph) for node in graph.node if _is_reader(node))


def _is_reader(node: NodeProto) -> bool:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type) in _READERS


def _typed(model: ModelProto) -> set[str]:
    """Return the names of values whose type a model tells."""
    found: set[str] = set()
    for graph in graphs_of(model.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        found.update(each.name for each in values if each.type.WhichOneof("value"))
        found.update(each.name for each in graph.initializer)
    return found
