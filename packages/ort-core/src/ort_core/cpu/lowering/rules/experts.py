"""MoE and QMoE: each token asks k experts, networks of two or three layers, and gets the weighted sum of their answers.

Tokens are routed (a softmax of their best logits), copied row by row in the order of their experts, multiplied by each
expert's matrices with as many rows as it got, and added up:

    chosen, weights = the k best of router_probs        rows = x[tokens, sorted by expert]
    hidden = activation(rows @ fc1[e], rows @ fc3[e])   y[t] = sum of weights[t, i] * (hidden @ fc2[e])[t, i]
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.codegen.indexing.indexed_access import gather_elements_kernel
from ort_core.cpu.codegen.indexing.top_k import MAX_K, top_k_kernel
from ort_core.cpu.codegen.products.expert_rows import mixing_kernel, sorting_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.expert_products import (
    Activation,
    ExpertLayer,
    ExpertRows,
    elements_of_expert,
    float_layer,
)
from ort_core.cpu.lowering.rows.reducing import combined, operand_of, reduce_operand
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node
from ort_core.plugin.loops import Scalar, binary, element, exp, maximum, meaning_of, minimum, select, sigmoid, unary

F32, I64 = DataType.FLOAT, DataType.INT64


def mixture_of_experts(lowering: Lowering, node: Node) -> None:
    """MoE: experts of floats."""
    experts, hidden, inner, columns = _sizes(lowering, node, 4)
    inputs = [*node.inputs, *[None] * 6]
    first = float_layer(lowering, inputs[2], inputs[3], experts, columns, hidden)
    second = float_layer(lowering, inputs[4], inputs[5], experts, hidden, inner)
    has_third = inputs[6] is not None
    third = float_layer(lowering, inputs[6], inputs[7], experts, inner, hidden) if has_third else None
    _mixed(lowering, node, first, second, third)


def quantized_mixture_of_experts(lowering: Lowering, node: Node) -> None:
    """QMoE: experts of 4 or 8 bits, with a scale for a row or for a block of one."""
    from ort_core.cpu.lowering.rules.quantized.nbits_experts import nbits_layer  # floats have no use for it

    if node.string_attribute("quant_type", "int") != "int":
        raise NotLowered("experts that are not integers are not generated")
    if any(node.input(place) is not None for place in range(15, 21)):
        raise NotLowered("scales of all experts or of activations are not generated")
    experts, hidden, inner, columns = _sizes(lowering, node, 5)
    first = nbits_layer(lowering, node, (2, 3, 4, 11), "fc1", experts, columns, hidden)
    second = nbits_layer(lowering, node, (5, 6, 7, 12), "fc2", experts, hidden, inner)
    third = None
    if node.input(8) is not None:
        third = nbits_layer(lowering, node, (8, 9, 10, 13), "fc3", experts, inner, hidden)
    mixing = None if node.input(14) is None else lowering.contiguous(node.input(14))
    _mixed(lowering, node, first, second, third, mixing)


def _sizes(lowering: Lowering, node: Node, second: int) -> tuple[int, int, int, int]:
    """Return how many experts there are, the width of a row, that of a hidden row, and what fc1 gives for it.

    ``second`` is the input with the weights of fc2.
    """
    if node.int_attribute("use_sparse_mixer", 0):
        raise NotLowered("the sparse mixer is not generated")
    x, logits = lowering.view(node.input(0)), lowering.view(node.input(1))
    (hidden, experts), k = (x.shape[-1], logits.shape[-1]), node.int_attribute("k", 1)
    if x.dtype is not F32 or logits.dtype is not F32 or not isinstance(hidden, int) or not isinstance(experts, int):
        raise NotLowered("other than float32 of known widths is not generated")
    if not 0 < k <= min(experts, MAX_K):
        raise NotLowered(f"k = {k} of {experts} experts is not generated")
    elements = elements_of_expert(node.input(second), experts)
    if second != 4:  # codes, several in a byte
        bits = node.int_attribute("fc2_expert_weight_bits", 0) or node.int_attribute("expert_weight_bits", 4)
        elements = elements * 8 // bits
    inner = elements // hidden
    is_fused = node.string_attribute("activation_type", "relu") == "swiglu" and _fusion(node) != 0
    return experts, hidden, inner, 2 * inner if is_fused else inner


def _mixed(
    lowering: Lowering,
    node: Node,
    first: ExpertLayer,
    second: ExpertLayer,
    third: ExpertLayer | None,
    mixing: View | None = None,
) -> None:
    """Set a node's output to the weighted answers; ``mixing`` are weights of the experts, if not the router's."""
    x, logits = lowering.contiguous(node.input(0)), lowering.contiguous(node.input(1))
    hidden, tokens, k = x.shape[-1], logits.shape[0], node.int_attribute("k", 1)
    lowering.require_equal(count_of(x.shape[:-1]), tokens)
    if mixing is None:
        best, chosen = _chosen(lowering, node, logits, k)
        weights = _shares(lowering, node, logits, best)
    else:
        is_missing = unary("is_nan", element(0, F32))  # numbers are chosen first, where only they have weights
        lowering.require_equal(mixing.shape[1], logits.shape[1])
        known = lowering.computed(select(is_missing, float("-inf"), element(0, F32)), [logits])
        _, chosen = _chosen(lowering, node, known, k)
        weights = _picked(lowering, node, mixing, chosen)
    if node.int_attribute("normalize_routing_weights", 0):
        weights = _normalized(lowering, node, weights)
    rows, places, sorted_x = _sorted(lowering, node, x.reshaped((tokens, hidden)), chosen, logits.shape[1])
    answers = second.product(lowering, node, rows, _activated(lowering, node, rows, sorted_x, first, third))
    target = lowering.result_view(node.output)
    kernel = mixing_kernel(lowering.target)
    lowering.emit(
        KernelText(kernel.name, kernel), (*map(pointer, (target, answers, weights, places)), tokens, k, hidden),
        [answers.buffer, weights.buffer, places.buffer], [target.buffer], count_of(answers.shape), (node,),
        count_of(answers.shape) * 2, moved_nbytes([answers, target]),
    )  # fmt: skip
    lowering.set(node.output, target)


# where tokens go ------------------------------------------------------------------------------------------------------


def _chosen(lowering: Lowering, node: Node, logits: View, k: int) -> tuple[View, View]:
    """Return the k largest logits of each token, largest first, and whose they are."""
    tokens, experts = logits.shape
    best, chosen = lowering.new_view(F32, (tokens, k)), lowering.new_view(I64, (tokens, k))
    name, function = top_k_kernel(F32, largest=True)
    lowering.emit(
        KernelText(name, function), (*map(pointer, (best, chosen, logits)), tokens, experts, k), [logits.buffer],
        [best.buffer, chosen.buffer], count_of(logits.shape) * 4, (node,),
    )  # fmt: skip
    return best, chosen


def _shares(lowering: Lowering, node: Node, logits: View, best: View) -> View:
    """Return the softmax of logits at the largest ones."""
    tokens, k = best.shape
    largest = View(best.buffer, (tokens, 1), (k, 1), best.offset)
    powers = combined(logits.shape, lambda each, most: exp(each - most), logits, largest)
    total = reduce_operand(lowering, powers, (1,), "sum", operators=(node,))
    weights = lowering.new_view(F32, best.shape)
    share = combined(best.shape, lambda each, most, of: exp(each - most) / of, best, largest, total)
    lowering.stores.store(share.expression, share.inputs, weights, (node,))
    return weights


def _picked(lowering: Lowering, node: Node, mixing: View, chosen: View) -> View:
    """Return the weights of the experts that were chosen."""
    lowering.require_equal(mixing.shape[0], chosen.shape[0])
    weights, experts = lowering.new_view(F32, chosen.shape), mixing.shape[1]
    name, function = gather_elements_kernel(2, 1, F32.numpy.itemsize, I64.bits, is_dense=True)
    arguments = (
        *map(pointer, (weights, mixing, chosen)), Pointer(lowering.error_buffer()), *chosen.shape, experts, experts, 1,
    )  # fmt: skip
    lowering.emit(
        KernelText(name, function), arguments,
        [mixing.buffer, chosen.buffer], [weights.buffer], count_of(chosen.shape) * 2, (node,),
    )  # fmt: skip
    return weights


def _normalized(lowering: Lowering, node: Node, weights: View) -> View:
    """Return weights over their sum, where that is not zero."""
    total = reduce_operand(lowering, operand_of(weights), (1,), "sum", operators=(node,))
    scaled = lowering.new_view(F32, weights.shape)
    share = combined(weights.shape, lambda each, of: each / select(binary("eq", of, 0.0), 1.0, of), weights, total)
    lowering.stores.store(share.expression, share.inputs, scaled, (node,))
    return scaled


def _sorted(lowering: Lowering, node: Node, x: View, chosen: View, experts: KnownDim) -> tuple[ExpertRows, View, View]:
    """Return the rows by expert, which row each token's slots got, and the tokens' rows in that order."""
    assert isinstance(experts, int)
    tokens, k = chosen.shape
    count = count_of(chosen.shape)
    starts, places = lowering.new_view(I64, (experts + 1,)), lowering.new_view(I64, chosen.shape)
    owners = lowering.new_view(I64, (count,))
    kernel = sorting_kernel()
    lowering.emit(
        KernelText(kernel.name, kernel), (*map(pointer, (starts, places, owners, chosen)), count, experts, k),
        [chosen.buffer], [starts.buffer, places.buffer, owners.buffer], count * 4, (node,), most_pieces=1,
    )  # fmt: skip
    rows = lowering.new_view(F32, (count, x.shape[1]))
    name, function = gather_kernel(64)
    arguments = (
        *map(pointer, (rows, x, owners)), Pointer(lowering.error_buffer()), 1, count, tokens,
        x.shape[1] * F32.numpy.itemsize,
    )  # fmt: skip
    reads = (x.buffer, owners.buffer)
    lowering.emit(KernelText(name, function), arguments, reads, (rows.buffer,), count_of(rows.shape), (node,))
    return ExpertRows(starts, experts, count), places, rows


# what experts compute -------------------------------------------------------------------------------------------------


def _activated(
    lowering: Lowering, node: Node, rows: ExpertRows, x: View, first: ExpertLayer, third: ExpertLayer | None
) -> View:
    """Return the activated hidden rows."""
    kind = node.string_attribute("activation_type", "relu")
    if kind != "swiglu":
        active = _activation(kind)
        if third is None:
            return first.product(lowering, node, rows, x, active)
        opened, gated = third.product(lowering, node, rows, x), first.product(lowering, node, rows, x)
        return _stored(lowering, node, lambda gate, linear: active(gate) * linear, gated, opened)
    found, fusion = first.product(lowering, node, rows, x), _fusion(node)
    if fusion == 0:
        if third is None:
            raise NotLowered("swiglu needs fc3 where nothing is fused")
        return _stored(lowering, node, _swiglu(node), found, third.product(lowering, node, rows, x))
    shape, step = (rows.count, first.columns // 2), 2 if fusion == 1 else 1
    offset = 1 if fusion == 1 else first.columns // 2
    halves = (
        View(found.buffer, shape, (first.columns, step), start) for start in (found.offset, found.offset + offset)
    )
    return _stored(lowering, node, _swiglu(node), *halves)


def _fusion(node: Node) -> int:
    fusion = node.int_attribute("swiglu_fusion", 0)
    if fusion not in (0, 1, 2):
        raise NotLowered(f"swiglu_fusion = {fusion} is not generated")
    return fusion


def _stored(
    lowering: Lowering, node: Node, formula: Callable[[Scalar, Scalar], Scalar], left: View, right: View
) -> View:
    target = lowering.new_view(F32, left.shape)
    lowering.stores.store(formula(element(0, F32), element(1, F32)), (left, right), target, (node,))
    return target


def _activation(kind: str) -> Activation:
    def meant(domain: str, op_type: str) -> Activation:
        def apply(x: Scalar) -> Scalar:
            found = meaning_of(domain, op_type, [x], {})
            assert isinstance(found, Scalar), found
            return found

        return apply

    if kind == "silu":
        return lambda x: x * sigmoid(x)
    if kind == "identity":
        return lambda x: x
    if kind == "gelu":
        return meant("com.microsoft", "FastGelu")  # the tanh form, as in onnxruntime
    if kind == "relu":
        return meant("", "Relu")
    raise NotLowered(f"the activation {kind!r} is not generated")


def _swiglu(node: Node) -> Callable[[Scalar, Scalar], Scalar]:
    """Return ``gate * sigmoid(alpha * gate) * (linear + beta)``, with the limits that attributes set."""
    alpha, beta = node.float_attribute("activation_alpha", 1.0), node.float_attribute("activation_beta", 0.0)
    limit = node.float_attribute("swiglu_limit", 0.0) if node.attribute("swiglu_limit") is not None else None
    is_late = node.int_attribute("swiglu_limit_after_activation", 0) == 1

    def formula(gate: Scalar, linear: Scalar) -> Scalar:
        if limit is not None and not is_late:
            gate = minimum(gate, limit)
        active = gate * sigmoid(gate * alpha)
        if limit is not None:
            active = minimum(active, limit) if is_late else active
            linear = maximum(minimum(linear, limit), -limit)
        return active * (linear + beta)

    return formula
