"""float16 for decoders with a head: which nodes stay in float32, by what the weights of the head can bear."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from onnx import NodeProto

from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger(__name__)
_STORED_AS_FLOAT16 = 1e-6  # weights trained in float16 lose nothing; float32 ones of usual size lose 1e-5 to 1e-3


def auto_mixed_precision(
    onnx_model: OnnxModel,
    op_block_list: Iterable[str],
    *,
    force_fp16_logits: bool = False,
    use_symbolic_shape_infer: bool = True,
) -> dict[str, Any]:
    """Convert a model to float16 in place, but for operators that lose much by it.

    Args:
        onnx_model: a fused model whose first output is the logits.
        op_block_list: operators that stay in float32.
        force_fp16_logits: convert the head even if its weights lose by it.
        use_symbolic_shape_infer: infer types first.

    Returns:
        The arguments that ``convert_float_to_float16`` got.
    """
    blocked = list(op_block_list)
    logits = onnx_model.graph().output[0].name
    head = onnx_model.output_name_to_node().get(logits)
    if head is None or head.op_type != "MatMul":
        log.warning("the logits are not made by a MatMul; whether the head may be float16 is not looked at")
        head = None
    is_half = head is not None and _is_stored_as_float16(onnx_model, head)
    kept, kept_nodes = [], []
    if head is not None and not is_half and not force_fp16_logits:
        kept, kept_nodes = [logits], [head.name]
    if "Add" not in blocked:
        kept_nodes += _sums_between(onnx_model, blocked, kept_nodes)
    arguments: dict[str, Any] = {
        "keep_io_types": kept,
        "op_block_list": blocked,
        "node_block_list": kept_nodes,
        "force_fp16_initializers": is_half,
    }
    log.info("mixed precision: %s", arguments)
    onnx_model.convert_float_to_float16(use_symbolic_shape_infer=use_symbolic_shape_infer, **arguments)
    return arguments


def _is_stored_as_float16(onnx_model: OnnxModel, head: NodeProto) -> bool:
    loss = importlib.import_module("ort_core.quantization.float16").float_to_float16_max_diff
    weights = [onnx_model.get_initializer(name) for name in head.input]
    return any(each is not None and loss(each) < _STORED_AS_FLOAT16 for each in weights)


def _sums_between(onnx_model: OnnxModel, blocked: Sequence[str], kept_nodes: Sequence[str]) -> list[str]:
    """Return names of sums beside a node that stays, and of sums beside those."""
    makers, readers = onnx_model.output_name_to_node(), onnx_model.input_name_to_nodes()
    found: set[str] = set(kept_nodes)
    sums = onnx_model.get_nodes_by_op_type("Add")
    changed = True
    while changed:
        changed = False
        for node in sums:
            beside = [*onnx_model.get_parents(node, makers), *onnx_model.get_children(node, readers)]
            if node.name not in found and any(each.op_type in blocked or each.name in found for each in beside):
                found.add(node.name)
                changed = True
    return [each.name for each in sums if each.name in found and each.name not in kept_nodes]
