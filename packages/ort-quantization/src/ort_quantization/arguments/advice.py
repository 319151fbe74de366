"""What a caller is told of a quantization that does not do what was likely meant: names that nothing has, no change."""

from __future__ import annotations

import difflib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from onnx import ModelProto, NodeProto, TensorProto

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import PREPARED, is_marked
from ort_quantization.quantized_types import type_name

log = logging.getLogger(__name__)

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_OF_GEMM = frozenset({"MatMul", "Add", "Transpose"})  # dynamic quantization writes Gemm so, whatever becomes of it
_TOLD = 5  # names in a message
_BOUNDARIES = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


def _nodes(model: ModelProto) -> Iterable[NodeProto]:
    return (node for graph in graphs_of(model.graph) for node in graph.node)


def count_operators(model: ModelProto) -> Counter[str]:
    """Return how often a model has each operator, in bodies of nodes too."""
    return Counter(node.op_type for node in _nodes(model))


def advise_on_choices(
    model: ModelProto, nodes_to_quantize: Iterable[str] | None, nodes_to_exclude: Iterable[str] | None
) -> None:
    """Say which names of nodes were chosen that no node has, and that the model was quantized before.

    Args:
        model: to be quantized.
        nodes_to_quantize: as the caller gave them.
        nodes_to_exclude: as the caller gave them.
    """
    names = {node.name for node in _nodes(model)}
    for choice, given in (("nodes_to_quantize", nodes_to_quantize), ("nodes_to_exclude", nodes_to_exclude)):
        for name in given or ():
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                log.warning("%s has %r, and no node has that name%s", choice, name, hint)
    if any(node.op_type in _BOUNDARIES for node in _nodes(model)):
        log.warning("the model has QuantizeLinear or DequantizeLinear nodes: was it quantized before?")


def advise_on_convolutions(before: Counter[str], chosen: Iterable[str]) -> None:
    """Say that convolutions by ranges that are found while the model runs are slower than those of floats.

    Args:
        before: the operators of the float model.
        chosen: operators to quantize.
    """
    if before["Conv"] and "Conv" in chosen:
        log.warning(
            "dynamic quantization makes %d Conv nodes smaller and slower: each finds the range of what it reads "
            "first. Static quantization, with samples, is for convolutions; op_types_to_quantize=['MatMul'] "
            "(--op-type MatMul) leaves them as they are",
            before["Conv"],
        )


def advise_on_channels(weights: Sequence[str]) -> None:
    """Say which weights get one scale although scales by channel were asked for: they have no axis of channels.

    Args:
        weights: as they are to be shown.
    """
    if weights:
        count = "1 weight has no axis of channels and gets" if len(weights) == 1 else (
            f"{len(weights)} weights have no axis of channels and get"
        )  # fmt: skip
        log.warning("%s one scale: %s", count, told(weights))


def told(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f", and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more


def advise_preparation(model: ModelProto) -> None:
    """Say that a model which was not prepared is quantized less well than one that was."""
    if not is_marked(model, PREPARED):
        log.warning("the model was not prepared: quant_pre_process gives it shapes and folds what can be folded")


def advise_without_change(before: Counter[str], model: ModelProto, chosen: Iterable[str]) -> None:
    """Say that nothing was quantized, and why that may be.

    Args:
        before: the operators of the float model.
        model: quantized.
        chosen: operators to quantize.
    """
    new = count_operators(model) - before
    if any(name not in _OF_GEMM for name in new):
        return
    log.warning("nothing was quantized: %s", _reason(before, model, set(chosen)))


_QUANTIZED = ("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "MatMulNBits")


def _reason(before: Counter[str], model: ModelProto, chosen: set[str]) -> str:
    quantized = sorted(name for name in before if name.startswith(_QUANTIZED) or name.endswith("Integer"))
    if quantized:
        return f"the model has quantized operators already ({', '.join(quantized)})"
    if not chosen & before.keys():
        return f"the model has none of the operators {', '.join(sorted(chosen))}; it has {', '.join(sorted(before))}"
    types = {tensor.data_type for graph in graphs_of(model.graph) for tensor in graph.initializer if len(tensor.dims)}
    types |= {each.type.tensor_type.elem_type for each in model.graph.input}
    if types and not types.intersection(_FLOATS):
        found = ", ".join(sorted(type_name(each) for each in types))
        return f"its values are {found}, and only FLOAT and FLOAT16 are quantized; convert the model first"
    return "no chosen operator reads or gives what can be quantized; look at nodes_to_quantize and nodes_to_exclude"
