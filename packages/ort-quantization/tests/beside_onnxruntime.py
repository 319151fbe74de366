"""Compares models that two tools have quantized, and what engines make of them."""

from __future__ import annotations

import functools
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, helper, numpy_helper

import ort_core


def _attribute(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.GRAPH:
        return description(attribute.g)
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t).tobytes()
    value = helper.get_attribute_value(attribute)
    return tuple(value) if isinstance(value, list) else value


def _node(node: onnx.NodeProto) -> tuple:
    attributes = sorted((each.name, _attribute(each)) for each in node.attribute)
    return node.domain, node.op_type, node.name, tuple(node.input), tuple(node.output), tuple(attributes)


def description(graph: onnx.GraphProto) -> tuple:
    """The nodes of a graph, in no order, with the names, types and shapes of its tensors."""
    tensors = frozenset((each.name, each.data_type, tuple(each.dims)) for each in graph.initializer)
    return frozenset(Counter(map(_node, graph.node)).items()), tensors


def tensors_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The tensors of a graph and of those inside it."""
    found = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found.update(tensors_of(attribute.g))
    return found


def assert_same_model(found: Path, expected: Path) -> None:
    """The same nodes with the same names, and tensors of the same numbers; floats to rounding."""
    here, there = onnx.load(found), onnx.load(expected)
    extra = set(map(_node, here.graph.node)) - set(map(_node, there.graph.node))
    missing = set(map(_node, there.graph.node)) - set(map(_node, here.graph.node))
    assert (extra, missing) == (set(), set()), "nodes that only one tool has written: ours, then onnxruntime's"
    ours, theirs = tensors_of(here.graph), tensors_of(there.graph)
    assert ours.keys() == theirs.keys(), f"tensors differ: {ours.keys() ^ theirs.keys()}"
    assert description(here.graph) == description(there.graph)
    for name, values in theirs.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(ours[name], values, rtol=3e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(ours[name], values, err_msg=name)
    imports = [{each.domain: each.version for each in model.opset_import} for model in (here, there)]
    assert imports[0] == imports[1]


def run_onnxruntime(path: Path | str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime makes of a model; on one thread: more would wait by spinning, and the models are small."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def run_onnxruntime_apart(path: Path | str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """As ``run_onnxruntime``, in a process that it may end: it aborts on some files that it should refuse.

    Raises:
        RuntimeError: it ended its process.
    """
    try:
        return _apart().submit(run_onnxruntime, path, feeds).result()
    except BrokenProcessPool as error:
        _apart.cache_clear()
        raise RuntimeError("onnxruntime ended its process") from error


@functools.cache
def _apart() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def run_ours(path: Path | str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ort-core makes of a model."""
    return ort_core.InferenceSession(str(path)).run(None, feeds)


def relative_error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The norm of the difference by that of what is expected, over all results."""
    flat = [[each.astype(float).ravel() for each in results] for results in (found, expected)]
    pairs = list(zip(*flat, strict=True))
    difference = np.sqrt(sum(((here - there) ** 2).sum() for here, there in pairs))
    return float(difference / max(np.sqrt(sum((there**2).sum() for _, there in pairs)), 1e-12))
