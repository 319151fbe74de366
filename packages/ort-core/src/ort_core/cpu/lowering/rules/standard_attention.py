"""Attention of ai.onnx: three or four axes, masks, a cache, grouped heads, lengths of padded caches."""

from __future__ import annotations

import math

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.lowering.attention_steps import Heads, append, copy_into, emit_attention, split_heads
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node, Value

_MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = 3, 4, 5, 6


def standard_attention(lowering: Lowering, node: Node) -> None:
    """Attention of opset 23 and later."""
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        raise NotLowered("the scores are asked for")
    if node.int_attribute("softmax_precision", 0) == DataType.DOUBLE.value:
        raise NotLowered("the softmax is asked for in double")
    query = _heads(lowering, node.input(0), node.int_attribute("q_num_heads", 0))
    key, value = (_heads(lowering, node.input(i), node.int_attribute("kv_num_heads", 0)) for i in (1, 2))
    key, value, offset = _present(lowering, node, key, value)
    mask = None if node.input(_MASK) is None else lowering.view(node.input(_MASK))
    if mask is not None:
        if not mask.shape:
            raise NotLowered("a mask without axes")
        lowering.require_equal(mask.shape[-1], key.shape[2])  # a shorter one forbids the keys behind it
    lengths = None if node.input(_LENGTHS) is None else lowering.contiguous(node.input(_LENGTHS))
    target = lowering.result_view(node.output)
    out = target if len(target.shape) == 4 else split_heads(target, node.int_attribute("q_num_heads", 0))
    emit_attention(
        lowering, Heads(query, key, value, out, mask, lengths, offset), _facts(node, query, lengths), (node,)
    )
    lowering.set(node.output, target)


def _facts(node: Node, query: View, lengths: View | None) -> AttentionFacts:
    left, right = node.int_attribute("left_window_size", -1), node.int_attribute("right_window_size", -1)
    is_causal = bool(node.int_attribute("is_causal", 0)) or right == 0
    if (right > 0 and not is_causal) or (left >= 0 and not is_causal):
        raise NotLowered("a window that is not causal")
    size = query.shape[3]
    if not isinstance(size, int):
        raise NotLowered("the size of the heads is not known")
    scale = node.float_attribute("scale", 1 / math.sqrt(max(size, 1)))
    softcap = max(node.float_attribute("softcap", 0.0), 0.0)
    return AttentionFacts(
        scale, is_causal=is_causal, window=left + 1 if left >= 0 else 0, softcap=softcap,
        lengths_bits=0 if lengths is None else lengths.dtype.bits,
    )  # fmt: skip


def _present(lowering: Lowering, node: Node, key: View, value: View) -> tuple[View, View, KnownDim]:
    """Return keys and values behind their caches and the length of these; the presents are set to them."""
    offset: KnownDim = 0
    joined = []
    for index, new in ((_PAST_KEY, key), (_PAST_VALUE, value)):
        present = node.outputs[index - 3] if len(node.outputs) > index - 3 else None
        if node.input(index) is None:
            if present is not None:
                target = lowering.result_view(present)
                copy_into(lowering, new, target, (node,))
                lowering.set(present, target)
            joined.append(new)
            continue
        past = lowering.view(node.input(index))
        shape = (new.shape[0], new.shape[1], past.shape[2] + new.shape[2], new.shape[3])
        target = lowering.new_view(new.dtype, shape) if present is None else lowering.result_view(present)
        append(lowering, past, new, target, (node,))
        lowering.set(present, target)
        joined.append(target)
        offset = past.shape[2]
    return joined[0], joined[1], offset


def _heads(lowering: Lowering, value: Value | None, number: int) -> View:
    view = lowering.view(value)
    return view if len(view.shape) == 4 else split_heads(view, number)
