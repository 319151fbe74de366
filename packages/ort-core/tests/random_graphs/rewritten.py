"""Cases rewritten by the tools: with weights quantized, in float16, or with fused operators.

The truth of the first two is that of the rewritten graph, and onnxruntime runs the same one. The truth of a fused one
is that of the graph before: such cases keep their graph, and engines get what ``fused`` makes of it.

What a tool refuses, and graphs whose rewritten form has no truth (a rounding to integers hangs on a last bit), stay as
they are; ``flags`` say what became of a case.
"""

from __future__ import annotations

import importlib.util
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from ort_core.model_graphs import graphs_of
from random_graphs.into_functions import has_functions
from random_graphs.triples import NoTruth
from random_graphs.writer import CUSTOM_DOMAIN

if TYPE_CHECKING:
    from random_graphs.cases import Case

SHARE = 0.2  # of all graphs
_QUANTIZED = frozenset(["MatMul", "Gemm", "Conv", "LSTM", "Attention", "EmbedLayerNormalization"])
QUANTIZED_FORMS = frozenset([
    "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "DequantizeLinear", "QAttention", "QEmbedLayerNormalization",
])  # fmt: skip
FUSED = "fused"
_HALVES = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}


def rewritten(case: Case) -> Case:
    """Return the case of a share of seeds as a tool rewrites it."""
    chooser = random.Random(case.seed ^ 0x700)
    if chooser.random() >= SHARE:
        return case
    name = chooser.choice([*sorted(_TOOLS), FUSED, FUSED])
    if name == FUSED:
        can = importlib.util.find_spec("ort_transformers") is not None and not has_functions(case.seed)
        return replace(case, flags=(*case.flags, FUSED)) if can else case
    package, tool = _TOOLS[name]
    if importlib.util.find_spec(package) is None:
        return case
    copy = ModelProto()
    copy.CopyFrom(case.model)
    try:
        model = tool(copy, chooser)
    except (ValueError, NotImplementedError) as reason:
        return replace(case, flags=(*case.flags, f"not {name}: {str(reason)[:80]}"))
    if model is None or model.graph.node == case.model.graph.node:
        return case
    changed = replace(case, model=model, flags=(*case.flags, name))
    feeds = [_as_declared(each, model) for each in case.feeds]
    changed = replace(changed, feeds=feeds)
    try:
        changed.truths()
    except NoTruth:
        return case
    return changed


def fused(model: ModelProto) -> ModelProto:
    """Return what the fusions of ort_transformers make of a model."""
    from ort_transformers.optimizer import optimize_model

    return optimize_model(model, "bert", opt_level=0).model


def _dynamically(model: ModelProto, chooser: random.Random) -> ModelProto | None:
    from ort_quantization import QuantType, quantize_dynamic

    if not _QUANTIZED & {node.op_type for node in model.graph.node}:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        quantize_dynamic(
            model, path, per_channel=chooser.random() < 0.5, reduce_range=chooser.random() < 0.5,
            weight_type=chooser.choice((QuantType.QInt8, QuantType.QUInt8)),
        )  # fmt: skip
        found = onnx.load(path)
    is_quantized = QUANTIZED_FORMS & {node.op_type for graph in graphs_of(found.graph) for node in graph.node}
    return found if is_quantized else None


def _in_halves(model: ModelProto, chooser: random.Random) -> ModelProto | None:
    from ort_quantization.float16 import convert_float_to_float16

    if any(each.domain == CUSTOM_DOMAIN for each in model.opset_import):
        return None  # users' operators take the types that they say
    if any(node.op_type == "ConvStateReplay" for graph in graphs_of(model.graph) for node in graph.node):
        return None  # its offsets count bytes of the elements that are there now
    if TensorProto.FLOAT not in {each.type.tensor_type.elem_type for each in model.graph.input}:
        return None
    keeps = chooser.random() < 0.5
    stays = [chooser.choice(model.graph.node).name] if chooser.random() < 0.3 else None
    return convert_float_to_float16(model, keep_io_types=keeps, node_block_list=stays)


_TOOLS: Mapping[str, tuple[str, Callable[[ModelProto, random.Random], ModelProto | None]]] = {
    "in float16": ("ort_quantization", _in_halves),
    "quantized dynamically": ("ort_quantization", _dynamically),
}


def _as_declared(feeds: Mapping[str, Any], model: ModelProto) -> dict[str, Any]:
    """Return feeds in the types that a model declares now."""
    types = {each.name: element_type(each) for each in model.graph.input}
    return {
        name: [_cast(each, types[name]) for each in given] if isinstance(given, list) else _cast(given, types[name])
        for name, given in feeds.items()
        if name in types
    }


def _cast(given: Any, kind: int) -> Any:
    """Return an array of float32 as one of a half type, where that is asked for; anything else as it is."""
    if not isinstance(given, np.ndarray) or given.dtype != np.float32 or kind not in _HALVES:
        return given
    return given.astype(_HALVES[kind])


def element_type(info: ValueInfoProto) -> int:
    """Return the element type of a tensor, or of the tensors of a sequence; 0 of a map."""
    kind = info.type.sequence_type.elem_type if info.type.HasField("sequence_type") else info.type
    return kind.tensor_type.elem_type
