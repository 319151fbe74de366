"""The files beside a model that hold its tensors: what must not be written over while the model is to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

from ort_core.onnx_io.proto_graphs import graphs_of
from ort_core.onnx_io.read_proto import read_proto


def data_files(path: Path) -> frozenset[Path]:
    """Return the files that tensors of a model lie in, links resolved; none is opened. Raises as ``read_proto``."""
    model, _ = read_proto(path)
    nodes: list[Sequence[onnx.NodeProto]] = [function.node for function in model.functions]
    graphs = [*graphs_of(model.graph), *(graph for each in nodes for graph in _bodies(each))]
    found = [tensor for graph in graphs for tensor in graph.initializer]
    found += [tensor for each in (*nodes, *(graph.node for graph in graphs)) for tensor in _held(each)]
    names = {entry.value for tensor in found for entry in tensor.external_data if entry.key == "location"}
    return frozenset((folder / name).resolve() for folder in {path.parent, path.resolve().parent} for name in names)


def _bodies(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from graphs_of(graph)


def _held(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
