"""What every fusion is checked with.

It fires as often as expected, ``verify`` holds after each pass, and three evaluations agree with onnxruntime on the
model before: onnxruntime on the fused model (so that saved models run there), our kernels on the fused model, and the
bodies of the fused nodes in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx.parser
from pass_check import evaluate_with_onnxruntime

from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import BoundGraph
from ort_core.kernels.kernel import Unguarded
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.kernels.registry import KernelRegistry
from ort_core.onnx_io.load import model_from_proto
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.ops.contrib_schemas import find_contrib_schema
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.shape_inference import infer_types
from ort_core.passes.base import Pass, PassContext
from ort_core.passes.equivalence import random_feeds
from ort_core.passes.extended import EXTENDED_PASSES, STANDARD_FUSIONS
from ort_core.passes.remove_dead_code import DeadCodeElimination
from ort_core.passes.runner import PipelineReport, run_pipeline
from ort_core.tolerances import ToleranceName, tolerance

PASSES: dict[str, Pass] = {each.name: each for each in (*STANDARD_FUSIONS, *EXTENDED_PASSES)}
_FUSED_IN_STANDARD = {"SimplifiedLayerNormalization"}
_rules = functools.cache(build_rules)


def infer(model: Model) -> None:
    """Fill in the types of a model."""
    infer_types(model, SchemaRegistry(find_onnx_schema, find_contrib_schema), _rules())


def typed_model(body: str, opset: int = 17) -> Model:
    """Return the model of a graph in ONNX text, with inferred types."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n{body}'
    model = model_from_proto(onnx.parser.parse_model(text))
    infer(model)
    return model


def ops_of(model: Model) -> list[str]:
    """Return the operators of a model in order."""
    return [node.op_type for node in walk(model.graph)]


def run_passes(model: Model, *names: str | Pass, dead_code: bool = True) -> PipelineReport:
    """Run passes, as they are or by name, and dead code elimination behind them, verifying after each."""
    passes = [PASSES[each] if isinstance(each, str) else each for each in names]
    context = PassContext(model, SchemaRegistry(find_onnx_schema, find_contrib_schema), infer=infer)
    return run_pipeline([*passes, DeadCodeElimination()] if dead_code else passes, context, verify=True)


def evaluate_with_kernels(model: Model, feeds: Mapping[str, np.ndarray], kernels: KernelRegistry) -> list[object]:
    """Run a model by numpy kernels; what they lack is run by its body."""
    context = EvaluationContext(kernels, SchemaRegistry(find_onnx_schema, find_contrib_schema), model.opset_imports)
    graph: Graph = model.graph
    bound = BoundGraph(graph, context)
    inputs = [feeds.get(value.name) for value in graph.inputs]
    return list(bound.run(inputs, {}, Unguarded()))


def fires(
    names: str | Pass | Sequence[str],
    body: str,
    expected: Sequence[str] | None = None,
    *,
    opset: int = 17,
    feeds: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    within: ToleranceName = "approximate",
    steps: float = 0.0,
    in_onnxruntime: bool = True,
) -> Model:
    """Check that the passes change the model as expected and keep its results; returns the fused model.

    ``steps`` allows integer results that far off, and float ones an absolute difference of as much.
    """
    model = typed_model(body, opset)
    arrays = {**random_feeds(model, 0, sizes), **(feeds or {})}
    before = evaluate_with_onnxruntime(model, arrays)
    wanted = (names,) if isinstance(names, (str, Pass)) else tuple(names)
    report = run_passes(model, *wanted)
    last = wanted[-1].name if isinstance(wanted[-1], Pass) else wanted[-1]
    assert last in report.counts(), f"{last} did nothing: {[r.rejections for r in report.reports]}"
    if expected is not None:
        assert ops_of(model) == list(expected)
    results = {
        "our kernels": evaluate_with_kernels(model, arrays, reference_kernels()),
        "the bodies": evaluate_with_kernels(model, arrays, _without_microsoft_kernels_of_bodies(model)),
    }
    if in_onnxruntime:
        results["onnxruntime"] = evaluate_with_onnxruntime(model, arrays)
    for who, found in results.items():
        for value, old, new in zip(model.graph.outputs, before, found, strict=True):
            assert_close(f"{value.name} by {who}", old, new, within, steps)
    return model


def _without_microsoft_kernels_of_bodies(model: Model) -> KernelRegistry:
    """Return the standard kernels and those of operators without a body, in the model or in bodies."""
    needed = set(_without_body(model.graph))
    registry = KernelRegistry()
    for domain, op_type, specs in reference_kernels().operators():
        if (domain == "" and op_type not in _FUSED_IN_STANDARD) or (domain, op_type) in needed:
            for spec in specs:
                registry.add(spec)
    return registry


def _without_body(graph: Graph) -> Iterator[tuple[str, str]]:
    for node in walk(graph):
        if node.body is not None:
            yield from _without_body(node.body)
        elif node.domain:
            yield node.domain, node.op_type


def assert_close(name: str, expected: object, found: object, within: ToleranceName, steps: float = 0.0) -> None:
    """Check one output."""
    assert isinstance(expected, np.ndarray)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    limit = tolerance(within, expected.dtype)
    wide_expected, wide_found = expected.astype(np.float64), found.astype(np.float64)
    scale = max(1.0, float(np.abs(wide_expected).max(initial=0.0)))
    np.testing.assert_allclose(
        wide_found, wide_expected, rtol=limit.relative, atol=max(limit.absolute * scale, steps), err_msg=name
    )


def stays(names: str | Pass | Sequence[str], body: str, *, opset: int = 17, because: str | None = None) -> None:
    """Check that the last of the passes refuses, and with a reason that contains ``because`` where that is given."""
    model = typed_model(body, opset)
    wanted = (names,) if isinstance(names, (str, Pass)) else tuple(names)
    report = run_passes(model, *wanted, dead_code=False)
    last = wanted[-1].name if isinstance(wanted[-1], Pass) else wanted[-1]
    assert last not in report.counts(), f"{last} fired: {ops_of(model)}"
    if because is not None:
        reasons = [r.reason for each in report.reports if each.name == last for r in each.rejections]
        assert any(because in reason for reason in reasons), reasons
