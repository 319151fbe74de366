"""Attention: a product of queries and keys, one kernel for scale, cap, mask and softmax, a product with the values.

Query heads that share a head of keys and values are rows of one product, so that keys are never repeated in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, cast, lift, row_value, select, tanh, unary
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.double_math import exponential
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products import PRODUCT_TYPES, multiply
from ort_ep_cuda.lowering.row_kernel import RowStage, launch_rows
from ort_ep_cuda.lowering.tensors import LazyTensor, join
from ort_ep_cuda.lowering.views import Shape, TensorView

_KNOWN = frozenset(
    {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"}
)


def refuse_attention(node: Node) -> str | None:
    """Return why an attention is not generated: caches, windows, scores as output, or a mask of fewer keys."""
    value = node.input(0)
    assert value is not None
    if element_type(value) not in PRODUCT_TYPES:
        return f"Attention of {element_type(value).text} is not generated"
    unknown = sorted(set(node.attributes) - _KNOWN)
    if unknown:
        return f"Attention with the attribute {unknown[0]!r} is not generated"
    if any(node.input(index) is not None for index in range(4, len(node.inputs))):
        return "Attention with a cache or with lengths of sequences is not generated"
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        return "Attention with its scores as output is not generated"
    mask = node.input(3)
    if mask is not None and element_type(mask) not in (*PRODUCT_TYPES, DataType.BOOL):
        return f"Attention with a mask of {element_type(mask).text} is not generated"
    return _refuse_mask_of_fewer_keys(node)


def _refuse_mask_of_fewer_keys(node: Node) -> str | None:
    mask, keys = (getattr(value.type, "shape", None) if (value := node.input(k)) else None for k in (3, 1))
    if node.input(3) is None:
        return None
    if not mask or not keys or mask[-1] is None or mask[-1] != keys[-2]:
        return "Attention whose mask is not known to be as long as the keys is not generated"
    return None


@dataclass(frozen=True, slots=True)
class _Heads:
    """Queries ``[batch, heads, rows, size]``, keys and values ``[batch, shared, columns, size]``."""

    q: TensorView
    k: TensorView
    v: TensorView

    @property
    def scores(self) -> Shape:
        return (*self.q.shape[:3], self.k.shape[2])


def lower_attention(facts: LoweredNode) -> None:
    """Store softmax(scale * q k' + mask) v; keys and values are outputs, too, where they are asked for."""
    node = facts.node
    query_heads = node.int_attribute("q_num_heads", 0)
    shared_heads = node.int_attribute("kv_num_heads", 0)
    heads = _Heads(_split(facts, 0, query_heads), _split(facts, 1, shared_heads), _split(facts, 2, shared_heads))
    weights = _weights(facts, heads, _scores(facts, heads))
    _store_product(facts, heads, weights)
    for value, view in zip(node.outputs[1:3], (heads.k, heads.v), strict=False):
        if value is not None:
            facts.builder.stored(LazyTensor.of(view), facts.builder.result(value, view.shape))


def _split(facts: LoweredNode, index: int, heads: int) -> TensorView:
    """Return an operand with an axis of heads; ``[batch, rows, heads * size]`` is split."""
    view = facts.builder.view(facts.value(index))
    if len(view.shape) == 4:
        return view
    if not heads or view.shape[2] % heads:
        raise InvalidArgument(f"{facts.node.describe()}: {view.shape[2]} channels cannot be split into {heads} heads")
    dense = facts.builder.dense(facts.value(index))
    batch, rows, channels = dense.shape
    return TensorView.dense(dense.buffer, dense.dtype, (batch, rows, heads, channels // heads)).permuted((0, 2, 1, 3))


def _grouped(facts: LoweredNode, view: TensorView, shared: int) -> TensorView:
    """Return ``[batch, heads, rows, size]`` as ``[batch, shared, heads / shared * rows, size]``."""
    batch, heads, rows, size = view.shape
    if heads == shared:
        return view
    shape = (batch, shared, heads // shared * rows, size)
    found = view.reshaped(shape)
    if found is not None:
        return found
    stored = facts.builder.stored(LazyTensor.of(view))
    return TensorView.dense(stored.buffer, stored.dtype, shape)


def _scores(facts: LoweredNode, heads: _Heads) -> TensorView:
    scores = facts.builder.temporary(heads.q.dtype, heads.scores)
    shared = heads.k.shape[1]
    scale = facts.node.float_attribute("scale", 1 / math.sqrt(max(heads.q.shape[3], 1)))
    queries = _grouped(facts, heads.q, shared)
    out = _grouped(facts, scores, shared)
    multiply(facts, queries, heads.k.permuted((0, 1, 3, 2)), out, scale)
    return scores


def _weights(facts: LoweredNode, heads: _Heads, scores: TensorView) -> TensorView:
    """Store the softmax of the scores, capped and masked; a row that is masked whole is zero."""
    tensors = [LazyTensor.of(scores), *_masks(facts, scores.shape)]
    roots, operands = join(tensors)
    x = _masked(_capped(roots[0], facts.node.float_attribute("softcap", 0.0)), roots[1:])
    largest, total = row_value(0, x.dtype), row_value(1, x.dtype)
    finite = select(binary("eq", largest, -math.inf), lift(0.0, x.dtype), largest)
    powers = exponential(x - finite)
    result = select(binary("gt", total, 0.0), powers / total, lift(0.0, x.dtype))
    out = facts.builder.temporary(scores.dtype, scores.shape)
    if out.size:
        stages = [RowStage("max", x), RowStage("add", powers)]
        facts.builder.add(launch_rows(stages, result, operands, out, 3))
    return out


def _masks(facts: LoweredNode, shape: Shape) -> list[LazyTensor]:
    found = []
    if facts.node.int_attribute("is_causal", 0):
        allowed = np.tril(np.ones(shape[2:], bool))
        found.append(LazyTensor.of(facts.builder.table("causal", allowed)).broadcast_to(shape))
    if facts.has(3):
        mask = facts.tensor(3)
        found.append(mask.broadcast_to(shape))
    return found


def _capped(x: Scalar, cap: float) -> Scalar:
    if not cap:
        return x
    return (unary("tanh", x / cap) if x.dtype is DataType.DOUBLE else tanh(x / cap)) * cap


def _masked(x: Scalar, masks: Sequence[Scalar]) -> Scalar:
    for mask in masks:
        x = select(mask, x, -math.inf) if mask.dtype is DataType.BOOL else x + cast(mask, x.dtype)
    return x


def _store_product(facts: LoweredNode, heads: _Heads, weights: TensorView) -> None:
    batch, count, rows, _ = heads.q.shape
    shared, size = heads.v.shape[1], heads.v.shape[3]
    is_split = len(facts.tensor(0).shape) == 3
    shape = (batch, count, rows, size)
    out = facts.builder.temporary(heads.v.dtype, shape) if is_split else facts.builder.result(facts.output, shape)
    multiply(facts, _grouped(facts, weights, shared), heads.v, _grouped(facts, out, shared))
    if is_split:
        joined = facts.builder.result(facts.output, (batch, rows, count * size))
        target = TensorView.dense(joined.buffer, joined.dtype, (batch, rows, count, size))
        facts.builder.stored(LazyTensor.of(out.permuted((0, 2, 1, 3))), target)
