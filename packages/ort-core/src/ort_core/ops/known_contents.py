"""What is known without a run of the elements of small integer tensors: shapes, and what is made of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.values import Value
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.infer_rule import InferenceRules
from ort_core.ops.last_inference import LastInference
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.shape_inference import infer_types
from ort_core.ops.symbolic_values import SymbolicValue

_SHAPE_OPERATORS = frozenset({"Shape", "Size"})


def known_contents(
    graph: Graph,
    schemas: SchemaRegistry,
    opset_imports: Mapping[str, int],
    last: LastInference | None = None,
) -> Mapping[Value, SymbolicValue]:
    """Return the elements of integer tensors, as numbers and symbolic sizes, by value.

    Walks the graph only if it asks for a shape. Types of values become more precise where more is known.

    Args:
        graph: a graph of a model, or of a part of one, whose values have types.
        schemas: where operators are looked up.
        opset_imports: versions of the domains.
        last: what was found of the graph before; nodes that have not changed since are not inferred again.
    """
    if not any(node.op_type in _SHAPE_OPERATORS and not node.domain for node in graph.nodes):
        return {}
    after = None if last is None else last.report
    return infer_types(Model(graph, dict(opset_imports)), schemas, inference_rules(), after=after).values


@functools.cache
def inference_rules() -> InferenceRules:
    """Return what ONNX's and onnxruntime's operators do to shapes."""
    return build_rules()
