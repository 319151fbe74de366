"""Quantizes a model here and by onnxruntime's tool, and tells every difference of files, results and refusals."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import logging
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization as tool
from beside_onnxruntime import _node, relative_error, run_onnxruntime_apart, run_ours, tensors_of
from drawn_options import Choices, with_types
from float_models import feeds_of
from onnx import TensorProto

import ort_quantization
from ort_core.model_graphs import graphs_of

SAMPLES = 3
_UNLOADABLE = ("no operator of QuantFormat.QOperator", "quantize_dynamic writes weights of 8 bits")
"""Refusals of files that onnxruntime's tool writes, and no engine loads."""
_UNFORESEEN = (AssertionError, AttributeError, KeyError, TypeError, IndexError)


class Reader(tool.CalibrationDataReader):
    """Gives three random samples."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.samples = [feeds_for(model, seed) for seed in range(SAMPLES)]
        self.left = iter(self.samples)

    def get_next(self):
        return next(self.left, None)

    def __len__(self):
        return SAMPLES

    def set_range(self, start_index, end_index):
        self.left = iter(self.samples[start_index:end_index])


def feeds_for(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Random inputs, but none for weights that are listed as inputs."""
    weights = {each.name for each in model.graph.initializer}
    return {name: value for name, value in feeds_of(model, seed).items() if name not in weights}


@dataclass
class Judgement:
    """What differs between two tools.

    Attributes:
        kind: ``equal``, ``refused`` by both, or what differs first.
        differences: a line for each.
        errors: of ours and of onnxruntime's tool.
        reason: why files may differ.
    """

    kind: str = "equal"
    differences: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    reason: str = ""

    def add(self, kind: str, difference: str) -> None:
        self.kind = kind if self.kind == "equal" else self.kind
        self.differences.append(difference)


def quantize_with(package: ModuleType, source: Path, target: Path, choices: Choices, own: dict[str, Any]) -> None:
    """Quantize a file by one of the two packages.

    Args:
        package: ``ort_quantization`` or ``onnxruntime.quantization``.
        source: a float model.
        target: the file to write.
        choices: what ``drawn_choices`` gives.
        own: further extra options, for this package alone.
    """
    given = with_types(package, copy.deepcopy(choices))
    way = given.pop("way")
    if way in ("nbits", "bnb4"):
        _by_blocks(package, way, source, target, given)
        return
    given["extra_options"] = {**given.pop("extra"), **own}
    kinds, method = package.QuantType, package.CalibrationMethod[given.pop("method")]
    activations, given["weight_type"] = kinds[given.pop("activations")], kinds[given.pop("weights")]
    if way == "dynamic":
        package.quantize_dynamic(source, target, **given)
        return
    given |= {"calibrate_method": method, "activation_type": activations}
    reader = Reader(onnx.load(source))
    if way == "qdq_config":
        given.pop("nodes_to_quantize", None)
        overrides = given["extra_options"].pop("TensorQuantOverrides", None)
        config = package.get_qdq_config(source, reader, tensor_quant_overrides=overrides, **given)
        package.quantize(source, target, config)
        return
    form = package.QuantFormat.QDQ if way == "qdq" else package.QuantFormat.QOperator
    package.quantize_static(source, target, reader, quant_format=form, **given)


def _by_blocks(package: ModuleType, way: str, source: Path, target: Path, given: dict[str, Any]) -> None:
    model = onnx.load(source)
    if way == "bnb4":
        module = importlib.import_module(f"{package.__name__}.matmul_bnb4_quantizer")
        quantizer = module.MatMulBnb4Quantizer(model, given.pop("quant_type"), given.pop("block_size"), **given)
    else:
        module = importlib.import_module(f"{package.__name__}.matmul_nbits_quantizer")
        given["quant_format"] = package.QuantFormat[given["quant_format"]]
        method, axes = given.pop("method"), given.pop("quant_axes", None)
        if "op_types_to_quantize" in given:
            given["op_types_to_quantize"] = tuple(given["op_types_to_quantize"])
        if axes:
            given["quant_axes"] = tuple(axes.items())
        config = _config(module, method, given)
        quantizer = module.MatMulNBitsQuantizer(model, algo_config=config, **given)
    quantizer.process()
    quantizer.model.save_model_to_file(target, False)


def _config(module: ModuleType, method: str, given: dict[str, Any]) -> Any:
    common = {"quant_format": given["quant_format"], "op_types_to_quantize": given.get("op_types_to_quantize")}
    if method == "HQQ":
        return module.HQQWeightOnlyQuantConfig(given["block_size"], given["bits"], 1, **common)
    if method in ("RTN", "KQuant"):
        return getattr(module, f"{method}WeightOnlyQuantConfig")({}, **common)
    return None


def attempt(package: ModuleType, source: Path, target: Path, choices: dict[str, Any], own: dict[str, Any]):
    """Quantize; return the exception, ``None`` if there is none."""
    level = logging.root.level
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # onnxruntime's calibrators print
            quantize_with(package, source, target, choices, own)
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is compared
        return error
    finally:
        logging.disable(logging.NOTSET)
        logging.root.setLevel(level)
    return None


def judged(model: onnx.ModelProto, choices: dict[str, Any], folder: Path) -> Judgement:
    """Quantize a model by both tools and compare all that they make of it."""
    found = Judgement()
    source, here, there = (folder / name for name in ("float.onnx", "here.onnx", "there.onnx"))
    onnx.save(model, source)
    ours = attempt(ort_quantization, source, here, choices, {"KeepFragileValues": False})
    theirs = attempt(tool, source, there, choices, {})
    found.errors = [f"{type(each).__name__}: {each}"[:400] if each is not None else "" for each in (ours, theirs)]
    if ours is not None or theirs is not None:
        _compare_refusals(found, ours, theirs)
        if ours is None:
            _judge_alone(found, source, here, model)
        return found
    found.reason = _reason(model, choices)
    _compare_files(found, onnx.load(here), onnx.load(there), is_exact=choices.get("method") in (None, "MinMax"))
    _compare_results(found, model, source, here, there)
    return found


def _reason(model: onnx.ModelProto, choices: Choices) -> str:
    """Why files differ although neither is wrong, or onnxruntime's is; docs/howto/quantize_models.md tells of most."""
    graph = model.graph
    shapes = {each.name: list(each.dims) for each in graph.initializer}
    opset = model.opset_import[0].version
    kinds = {node.op_type for node in graph.node}
    if choices["way"] == "dynamic" and opset < 11:
        return "zero points of onnxruntime's nodes before opset 11 leave the type"
    overrides = choices.get("extra", {}).get("TensorQuantOverrides", {}).values()
    has_channels = choices.get("per_channel") or any("axis" in each for listed in overrides for each in listed)
    if choices["way"] in ("qdq", "qdq_config") and has_channels and opset < 13:
        return "DequantizeLinear has channels from opset 13 on"
    if choices.get("weights", "").startswith("QFLOAT8") and has_channels:
        return "onnxruntime's tool gives a channel of one number the scale 0: its deviation"
    if "CalibMaxIntermediateOutputs" in choices.get("extra", ()):
        return "onnxruntime's calibrators forget samples by this limit"
    if any(each.data_type == TensorProto.FLOAT16 for each in graph.initializer):
        return "halves: QLinear operators give float32, and QuantizeLinear takes float16 from opset 19 on"
    if any("convert" in each for listed in overrides for each in listed) and opset < 21:
        return "16 bits that a value is converted to need opset 21, too"
    if choices["way"] == "bnb4" and "Scan" in kinds:
        return "vectors times weights stay as they are here"
    if choices["way"] == "nbits":
        return _reason_of_blocks(choices, kinds, opset, any(node.name for node in graph.node))
    for node in graph.node:
        factors = {each.name: each.f for each in node.attribute if each.name in ("alpha", "beta")}
        if node.op_type == "Gemm" and any(factor != 1 for factor in factors.values()):
            return "onnxruntime's tool divides a Gemm's bias by its factor"
        if node.op_type == "Gemm" and len(node.input) > 2 and len(shapes.get(node.input[2], ())) > 1:
            return "channels of a bias (1, N) are its last axis"
        if choices.get("per_channel") and node.op_type == "MatMul" and len(shapes.get(node.input[1], (1, 1))) != 2:
            return "vectors and stacks of weights have no axis of channels that products take"
    return ""


def _reason_of_blocks(choices: Choices, kinds: set[str], opset: int, has_names: bool) -> str:
    """The same for weights in blocks."""
    is_linear = choices["quant_format"] == "QDQ"
    if opset < 21 and (is_linear or "Gather" in choices.get("op_types_to_quantize", ())):
        return "onnxruntime's tool states opset 21 without converting the model"
    if is_linear and kinds & {"Scan", "Loop", "If"}:
        return "vectors times weights stay as they are here, and weights of pairs move into bodies"
    if is_linear and choices["bits"] == 8:
        return "onnxruntime's tool leaves 8 bits in QDQ out"
    if choices["method"] in ("RTN", "KQuant") and kinds & {"If", "Loop"}:
        return "these methods of onnxruntime's tool do not look into bodies"
    if choices["method"] in ("RTN", "KQuant") and choices["bits"] != 4:
        return "these methods of onnxruntime's tool write 4 bits whatever its quantizer is asked for"
    if choices["method"] in ("RTN", "KQuant") and not has_names:
        return "these methods of onnxruntime's tool name nodes"
    return ""


def _is_said(error: Exception) -> bool:
    """Whether code raised an error on purpose: what numpy or Python raise is no sentence for the user."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (frames[-1].line or "").startswith("raise")


def _compare_refusals(found: Judgement, ours: Exception | None, theirs: Exception | None) -> None:
    if ours is not None and not _is_said(ours):
        found.add("ours stumbles", found.errors[0])
    elif ours is None:
        found.kind = "only theirs refuses"
    elif str(ours).startswith(_UNLOADABLE):
        found.kind = "refused"
    elif theirs is None:
        found.add("only ours refuses", found.errors[0])
    elif isinstance(ours, type(theirs)) or isinstance(theirs, _UNFORESEEN) or "must be 8-bit before" in str(theirs):
        found.kind = "refused"
    else:
        found.add("other exception", " | ".join(found.errors))


def _judge_alone(found: Judgement, source: Path, here: Path, model: onnx.ModelProto) -> None:
    """Where only ours gives a file: it has to run in both engines, alike and near the float model."""
    feeds = feeds_for(model)
    small, error = _run(run_ours, here, feeds)
    if small is None:
        found.add("ours does not run", error)
        return
    exact = run_ours(source, feeds)
    loss = _error_of(small, exact)
    if not loss < 1:
        found.add("far from float", f"loss {loss:.3g}")
    other, error = _run(run_onnxruntime_apart, here, feeds)
    if other is None:
        found.differences.append(f"onnxruntime does not run it: {error}")
    elif _error_of(small, other) > max(loss, 0.02):
        found.add("engines differ", f"{_error_of(small, other):.3g}, loss {loss:.3g}")


def _compare_files(found: Judgement, here: onnx.ModelProto, there: onnx.ModelProto, is_exact: bool) -> None:
    ours, theirs = _nodes(here.graph), _nodes(there.graph)
    for which, nodes in (("ours", ours - theirs), ("theirs", theirs - ours)):
        for each in sorted(nodes, key=str)[:6]:
            found.add("nodes", f"only {which}: {str(each)[:300]}")
    imports = [_imports(model) for model in (here, there)]
    if any(node.domain == "com.microsoft" for node in there.graph.node):
        imports[1].setdefault("com.microsoft", 1)  # onnxruntime's RTN writes such nodes without an import
    if imports[0] != imports[1]:
        found.add("opsets", f"{imports[0]} and {imports[1]}")
    mine, other = tensors_of(here.graph), tensors_of(there.graph)
    if mine.keys() != other.keys():
        found.add("tensors", f"{sorted(mine.keys() - other.keys())[:5]} and {sorted(other.keys() - mine.keys())[:5]}")
    for name in mine.keys() & other.keys():
        _compare_tensors(found, name, mine[name], other[name], is_exact)


def _nodes(graph: onnx.GraphProto) -> set[tuple]:
    """The nodes of a graph; axes of DequantizeLinear are counted from the front, as onnxruntime's tool does mostly."""
    ranks = {each.name: len(each.dims) for each in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "DequantizeLinear" and attribute.name == "axis" and attribute.i < 0:
                attribute.i += ranks.get(node.input[0], 0)
    return set(map(_node, graph.node))


def _imports(model: onnx.ModelProto) -> dict[str, int]:
    """The operator sets whose operators a model has; tools import others, too."""
    used = {node.domain for graph in graphs_of(model.graph) for node in graph.node}
    return {each.domain: each.version for each in model.opset_import if each.domain in used}


def _compare_tensors(found: Judgement, name: str, mine: np.ndarray, other: np.ndarray, is_exact: bool) -> None:
    if (mine.dtype, mine.shape) != (other.dtype, other.shape):
        found.add("types", f"{name}: {mine.dtype}{mine.shape} and {other.dtype}{other.shape}")
        return
    if not mine.size or mine.dtype.kind in "bOU":
        return
    a, b = mine.astype(float), other.astype(float)
    # Ranges come from two engines, whose sums differ in the last bits: so do ties of zero points, and wide biases.
    if mine.dtype.kind in "iu" or mine.dtype.kind == "V":
        limit = 1.0 if mine.dtype.itemsize < 4 else max(1.0, 2e-5 * float(np.abs(b).max()))
        limit = limit if is_exact else 0.1 * max(float(np.abs(b).max()), 30.0)
    else:
        limit = (2e-5 if is_exact else 0.1) * max(float(np.abs(b).max()), 1e-30)
    worst = np.nanmax(np.abs(a - b)) if np.array_equal(np.isnan(a), np.isnan(b)) else np.inf
    if not worst <= limit:
        firsts = f"{mine.ravel()[:3]} and {other.ravel()[:3]}"
        found.add("numbers", f"{name} {mine.dtype}{mine.shape}: {worst:.4g} (limit {limit:.3g}) {firsts}")


def _compare_results(found: Judgement, model: onnx.ModelProto, source: Path, here: Path, there: Path) -> None:
    """Both files in both engines."""
    feeds = feeds_for(model)
    exact, _ = _run(run_onnxruntime_apart, source, feeds)
    if exact is None:
        exact = run_ours(source, feeds)
    results = {}
    for which, path in (("ours", here), ("theirs", there)):
        for engine, run in (("here", run_ours), ("there", run_onnxruntime_apart)):
            results[which, engine], error = _run(run, path, feeds)
            if error:
                results[which, engine, "error"] = error
    if results["ours", "there"] is None and results["theirs", "there"] is not None:
        found.add("ours does not run there", results["ours", "there", "error"])
    for which in ("ours", "theirs"):
        mine, other = results[which, "here"], results[which, "there"]
        if mine is None and other is not None:
            found.add("does not run here", f"{which}: {results[which, 'here', 'error']}")
        elif mine is not None and other is not None:
            limit = max(_error_of(other, exact), 0.02)
            if not _error_of(mine, other) <= limit:
                found.add("engines differ", f"{which}: {_error_of(mine, other):.3g}, loss {limit:.3g}")


def _run(run, path: Path, feeds: dict[str, np.ndarray]):
    try:
        return run(path, feeds), ""
    except Exception as error:  # noqa: BLE001 - what engines refuse is compared
        return None, f"{type(error).__name__}: {error}"[:400]


def _error_of(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The relative error over results of floats; indices follow from values that may be equal."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a.dtype.kind == "f"]
    if not pairs or any(a.shape != b.shape for a, b in pairs):
        return 0.0 if not pairs else np.inf
    if any(not np.isfinite(b).all() for _, b in pairs):
        return 0.0
    return relative_error([a for a, _ in pairs], [b for _, b in pairs])
