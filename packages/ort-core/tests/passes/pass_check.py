"""What every pass is checked with: it fires as often as expected, verify holds, and onnxruntime finds equal results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx.parser
import onnx.shape_inference
import onnxruntime

from ort_core.ir.constants import Constant
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import walk
from ort_core.onnx_io.load import model_from_proto
from ort_core.onnx_io.save import model_to_bytes
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.ops.registry import SchemaRegistry
from ort_core.passes.base import Pass, PassContext
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.pipelines import build_basic_passes
from ort_core.passes.runner import PipelineReport, run_pipeline

ROUNDING = (1e-5, 1e-6)  # relative, absolute: one or two roundings in another order


def evaluate_with_onnxruntime(model: Model, feeds: Mapping[str, np.ndarray]) -> list[object]:
    """Run a model by onnxruntime with its own optimizer off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model_to_bytes(model), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def evaluate_node(opset_imports: Mapping[str, int]) -> object:
    """Return an evaluator of single nodes that asks onnxruntime."""

    def evaluate(node: Node, inputs: Sequence[object]) -> Sequence[object] | Rejection:
        from ort_core.ir.graph import Graph
        from ort_core.ir.subgraph import copy_node
        from ort_core.ir.values import Value

        graph, values = Graph("one"), {}
        for value, array in zip(node.inputs, inputs, strict=True):
            if value is not None and value not in values:
                values[value] = graph.add_initializer(Value(value.name, constant=Constant.of(array)))
        copy = graph.append(copy_node(node, values))
        graph.set_outputs(list(copy.present_outputs()))
        try:
            return evaluate_with_onnxruntime(Model(graph, dict(opset_imports)), {})
        except Exception as error:  # noqa: BLE001 - the oracle's errors have no common base; any of them is a refusal here
            return Rejection(str(error), node)

    return evaluate


def model_of(body: str, opset: int = 17, ir_version: int = 8, imports: str = "") -> Model:
    """Return the model of a graph in ONNX text, with types by ONNX's own inference."""
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}{imports}]>\n{body}'
    return model_from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def context_of(model: Model, **options: object) -> PassContext:
    """Return a context with ONNX's schemas, and onnxruntime as the evaluator of nodes."""
    options.setdefault("evaluate_node", evaluate_node(model.opset_imports))
    return PassContext(model, SchemaRegistry(find_onnx_schema), **options)  # type: ignore[arg-type]  # names of fields


def named(name: str) -> Pass:
    """Return the basic pass of that name."""
    return next(each for each in build_basic_passes() if each.name == name)


def run_pass(
    name: str,
    model: Model,
    feeds: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    tolerance: tuple[float, float] = ROUNDING,
    with_dead_code: bool = True,
    **options: object,
) -> PipelineReport:
    """Run one pass (and dead code elimination) with every check on; returns the report."""
    check = EquivalenceCheck(evaluate_with_onnxruntime, *tolerance, feeds or {}, sizes or {})
    passes = [named(name)]
    if with_dead_code and name != "DeadCodeElimination":
        passes.append(named("DeadCodeElimination"))
    return run_pipeline(passes, context_of(model, **options), verify=True, equivalence=check)


def op_types(model: Model) -> list[str]:
    """Return the operators of a model in order, nested graphs included."""
    return [node.op_type for node in walk(model.graph)]
