"""What can be said of a model without running it: size, operators, parameters, and an estimate of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ort_core.ir.attributes import SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.printer import format_type
from ort_core.ir.traversal import graphs_of, reads_of, walk
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.memory.liveness import StepUse, live_intervals

SizeOf = Callable[[Dim, int], int]


def describe_model(model: Model, path: Path) -> dict[str, object]:
    """Return the facts of a model as plain data."""
    graphs = list(graphs_of(model.graph))
    nodes = list(walk(model.graph))
    operators = Counter(node.qualified_name for node in nodes)
    return {
        "model": str(path),
        "file_nbytes": path.stat().st_size,
        "graph": model.graph.name,
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opset_imports.items()},
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "domain": model.domain,
        "model_version": model.model_version,
        "description": model.doc or model.graph.doc,
        "metadata": dict(model.metadata),
        "inputs": [describe_value(value) for value in model.graph.inputs],
        "outputs": [describe_value(value) for value in model.graph.outputs],
        "num_nodes": len(nodes),
        "num_nested_graphs": len(graphs) - 1,
        "functions": [f"{f.domain}::{f.name}" for f in model.functions.values()],
        "operators": dict(operators.most_common()),
        "parameters": describe_parameters(graphs),
    }


def describe_value(value: Value) -> dict[str, object]:
    """Return name, type and shape of an input or output."""
    shape = getattr(value.type, "shape", None)
    return {
        "name": value.name,
        "type": str(value.type) if value.type is not None else None,
        "shape": None if shape is None else [d if isinstance(d, int) or d is None else str(d) for d in shape],
        "text": format_type(value.type),
        "has_default": value.constant is not None,
    }


def describe_parameters(graphs: list[Graph]) -> dict[str, object]:
    """Return how many numbers a model carries, in how many bytes, by element type."""
    constants = [value.constant for graph in graphs for value in graph.initializers if value.constant is not None]
    for graph in graphs:
        for node in graph:
            for attribute in node.attributes.values():
                if isinstance(attribute.value, Constant):
                    constants.append(attribute.value)
                elif isinstance(attribute.value, SparseConstant):
                    constants.append(attribute.value.values)
    by_type: Counter[str] = Counter()
    for constant in constants:
        by_type[constant.dtype.text] += constant.size
    return {
        "count": sum(constant.size for constant in constants),
        "nbytes": sum(_stored_nbytes(constant) for constant in constants),
        "tensors": len(constants),
        "by_type": dict(by_type.most_common()),
        "external": sum(constant.location is not None for constant in constants),
    }


def _stored_nbytes(constant: Constant) -> int:
    return constant.nbytes if constant.dtype.bits == 0 else (constant.size * constant.dtype.bits + 7) // 8


def estimate_memory(model: Model, size_of: SizeOf) -> dict[str, object]:
    """Return the bytes that values of the main graph take at the worst moment of a run in the order of the nodes.

    Needs inferred types. Values whose shape is not known count as nothing; how many there are is in the result.
    """
    graph = model.graph
    nodes = graph.nodes
    steps = [StepUse(reads_of(node), tuple(node.present_outputs())) for node in nodes]
    intervals = live_intervals(steps, graph.outputs)
    change = [0] * (len(nodes) + 2)
    num_unknown = 0
    for value, interval in intervals.items():
        nbytes = _nbytes_of(value, size_of)
        num_unknown += nbytes is None
        change[interval.first] += nbytes or 0
        change[interval.last + 1] -= nbytes or 0
    peak, peak_at, alive = 0, 0, 0
    for index, difference in enumerate(change):
        alive += difference
        if alive > peak:
            peak, peak_at = alive, index
    inputs = sum(_nbytes_of(value, size_of) or 0 for value in graph.inputs if value.constant is None)
    at = nodes[peak_at].describe() if peak_at < len(nodes) else "the end"
    return {
        "inputs_nbytes": inputs,
        "peak_values_nbytes": peak,
        "peak_at": at,
        "num_values_of_unknown_size": num_unknown,
    }


def _nbytes_of(value: Value, size_of: SizeOf) -> int | None:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    count = 1
    for axis, dim in enumerate(value.type.shape):
        if dim is None:
            return None
        try:
            count *= size_of(dim, axis)
        except (ZeroDivisionError, KeyError):
            return None
    return count * max(1, value.type.dtype.bits // 8)
