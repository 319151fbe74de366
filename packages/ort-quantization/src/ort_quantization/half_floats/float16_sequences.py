"""Sequences and optionals have one type: no operator casts them, so whoever makes or reads one takes the same floats.

Where a node keeps float32, or an input or output of the model does, all that share such a value with it keep it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from onnx import GraphProto, NodeProto

from ort_core.model_graphs import graphs_of, inner_graphs


def nodes_of_float_sequences(
    graph: GraphProto, is_float: Callable[[NodeProto], bool], kept: Collection[str]
) -> tuple[frozenset[tuple[str, ...]], frozenset[str]]:
    """Return the nodes, by their outputs, that stay float32 for values that no operator casts, and those values.

    Args:
        graph: of a model with types inferred.
        is_float: whether a node stays float32 by itself.
        kept: names of inputs and outputs of the graph that do.
    """
    stated = [each for inner in graphs_of(graph) for each in (*inner.value_info, *inner.input, *inner.output)]
    names = {each.name for each in stated if each.type.WhichOneof("value") in ("sequence_type", "optional_type")}
    if not names:
        return frozenset(), frozenset()
    touching = [(node, found) for inner in graphs_of(graph) for node in inner.node if (found := names & _touched(node))]
    floats = names & set(kept)
    floats.update(*(found for node, found in touching if is_float(node)))
    size = -1
    while len(floats) > size:
        size = len(floats)
        floats.update(*(found for _, found in touching if found & floats))
    return frozenset(tuple(node.output) for node, found in touching if found & floats), frozenset(floats)


def _touched(node: NodeProto) -> set[str]:
    """Return the values that a node reads and makes, and those that its bodies begin and end with."""
    ends = (each.name for inner in inner_graphs(node) for each in (*inner.input, *inner.output))
    return {*node.input, *node.output, *ends}
