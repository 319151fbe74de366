"""What every pass is checked with: it fires as often as expected, verify holds, and onnxruntime finds equal results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx.parser
import onnx.shape_inference
import onnxruntime

from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import evaluate_node
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.onnx_io.load import model_from_proto
from ort_core.onnx_io.save import model_to_bytes
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.shape_inference import infer_types
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
    options.intra_op_num_threads = 1  # more would wait by spinning
    session = onnxruntime.InferenceSession(model_to_bytes(model), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def model_of(body: str, opset: int = 17, ir_version: int = 8, imports: str = "") -> Model:
    """Return the model of a graph in ONNX text, with types by ONNX's own inference."""
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}{imports}]>\n{body}'
    return model_from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def context_of(model: Model, **options: object) -> PassContext:
    """Return a context with ONNX's schemas, inference and the reference kernels."""
    schemas = SchemaRegistry(find_onnx_schema)
    rules = build_rules()
    evaluation = EvaluationContext(reference_kernels(), schemas, model.opset_imports, model.functions)
    options.setdefault("evaluate_node", lambda node, inputs: evaluate_node(node, inputs, evaluation))
    options.setdefault("infer", lambda model: infer_types(model, schemas, rules).values)
    return PassContext(model, schemas, **options)  # type: ignore[arg-type]  # names of fields


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


def assert_fires(name: str, body: str, expected: list[str], opset: int = 17, **options: object) -> Model:
    """Assert that a pass changes a graph to the ``expected`` operators, with equal results; returns the model."""
    model = model_of(body, opset, imports=str(options.pop("imports", "")))
    report = run_pass(name, model, **options)  # type: ignore[arg-type]  # names of parameters
    reasons = [rejection for each in report.reports for rejection in each.rejections]
    assert name in report.counts(), f"{name} did nothing; refused: {reasons}"
    assert op_types(model) == expected
    return model


def assert_stays(name: str, body: str, opset: int = 17, **options: object) -> None:
    """Assert that a pass leaves a graph as it is."""
    model = model_of(body, opset, imports=str(options.pop("imports", "")))
    before = op_types(model)
    report = run_pass(name, model, with_dead_code=False, **options)  # type: ignore[arg-type]  # names of parameters
    assert name not in report.counts(), f"{name} changed what it should leave: {op_types(model)}"
    assert op_types(model) == before
