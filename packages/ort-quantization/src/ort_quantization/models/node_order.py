"""Nodes behind those whose results they read, as ONNX asks; files of other orders are read, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from onnx import GraphProto, NodeProto

from ort_core.model_graphs import copy_of, graphs_of, reads_of, sort_graph
from ort_quantization.errors import InvalidQuantization


def put_in_order(graph: GraphProto, *, is_deep: bool = True) -> None:
    """Put the nodes of a graph, and of those inside it, in order; what is in order stays as it is.

    Args:
        graph: changed in place.
        is_deep: the graphs inside, too.

    Raises:
        InvalidQuantization: nodes read their own results.
    """
    for each in reversed(list(graphs_of(graph)) if is_deep else [graph]):  # inner ones first: outer nodes are copied
        refused = sort_graph(each)
        if refused is not None:
            raise InvalidQuantization(refused.reason)


def put_in_waves(graph: GraphProto) -> None:
    """Put the nodes of a graph in the order of onnxruntime's tool, which goes by who can run when.

    First what reads nothing, then what reads inputs and initializers, by the names of these, then the readers of their
    results, the first ones first.

    Args:
        graph: changed in place.

    Raises:
        InvalidQuantization: nodes read their own results.
    """
    made = {name for node in graph.node for name in node.output if name}
    reads = [tuple(dict.fromkeys(reads_of(node))) for node in graph.node]
    readers: dict[str, list[int]] = {}
    for place, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(place)
    missing = [len(names) for names in reads]
    order = [place for place, count in enumerate(missing) if not count]
    _give(sorted(readers.keys() - made), readers, missing, order)
    for place in order:  # grows
        _give(graph.node[place].output, readers, missing, order)
    if len(order) < len(missing):
        put_in_order(graph, is_deep=False)  # which says what is wrong
        return
    copies = [copy_of(graph.node[place]) for place in order]
    del graph.node[:]
    graph.node.extend(copies)


def _give(names: Iterable[str], readers: Mapping[str, list[int]], missing: list[int], order: list[int]) -> None:
    for name in names:
        for place in readers.get(name, ()):
            missing[place] -= 1
            if not missing[place]:
                order.append(place)


def name_apart(graph: GraphProto) -> None:
    """Give nodes that share a name names of their own: what quantizing adds is named after nodes.

    Engines refuse such graphs, but not the tools that write them. The first keeps its name.
    """
    for each in graphs_of(graph):
        taken = {node.name for node in each.node}
        seen: set[str] = set()
        for node in each.node:
            name, number = node.name, 1
            while node.name and node.name in seen:
                if f"{name}_{number}" not in taken:
                    node.name = f"{name}_{number}"
                number += 1
            taken.add(node.name)
            seen.add(node.name)


def put_early(graph: GraphProto, results: Collection[str]) -> None:
    """Put nodes right behind the one that gives what they read, whose memory is free when nothing else reads it.

    Args:
        graph: in order; changed in place.
        results: of nodes that read one value each, beside initializers.
    """
    early = [node for node in graph.node if node.output[0] in results]
    others = [node for node in graph.node if node.output[0] not in results]
    given = {name for node in others for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in early:
        readers.setdefault(next((name for name in node.input if name in given), ""), []).append(node)
    ordered = readers.pop("", [])
    for node in others:
        ordered.append(node)
        for name in node.output:
            ordered += readers.pop(name, [])
    ordered = [copy_of(node) for node in ordered]  # of the graph that is emptied now
    del graph.node[:]
    graph.node.extend(ordered)
