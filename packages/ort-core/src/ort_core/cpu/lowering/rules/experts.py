"""MoE: each token asks k experts, small networks of two layers or three, and gets the weighted sum of their answers.

Tokens are routed (a softmax of their best logits), copied row by row in the order of their experts, multiplied by each
expert's matrices with as many rows as it got, and added up:

    chosen, weights = the k best of router_probs        rows = x[tokens, sorted by expert]
    hidden = activation(rows @ fc1[e], rows @ fc3[e])   y[t] = sum of weights[t, i] * (hidden @ fc2[e])[t, i]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.codegen.indexing.top_k import MAX_K, top_k_kernel
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import deferred_kernel
from ort_core.cpu.codegen.products.expert_product import expert_functions
from ort_core.cpu.codegen.products.expert_rows import mixing_kernel, sorting_kernel
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, BATCH_DIMS, scratch_nbytes
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.product_panels import tile_table_buffer
from ort_core.cpu.lowering.rows.reducing import combined, operand_of, reduce_operand
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, binary, element, exp, maximum, meaning_of, minimum, select, sigmoid

F32, I64 = DataType.FLOAT, DataType.INT64


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows sorted by expert: where each expert's begin, and how many there are in all."""

    starts: View
    experts: int
    count: KnownDim


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of all experts: its matrices [columns, depth] or those packed, and its bias if it has one.

    ``step`` is how many elements lie from one expert's matrix to the next.
    """

    matrices: View
    packed: bool
    step: int
    depth: int
    columns: int
    bias: View | None


def mixture_of_experts(lowering: Lowering, node: Node) -> None:
    """MoE of float experts, routed by a softmax."""
    if node.int_attribute("use_sparse_mixer", 0):
        raise NotLowered("the sparse mixer is not generated")
    x, logits = lowering.contiguous(node.input(0)), lowering.contiguous(node.input(1))
    hidden, (tokens, experts), k = x.shape[-1], logits.shape, node.int_attribute("k", 1)
    if x.dtype is not F32 or logits.dtype is not F32 or not isinstance(hidden, int) or not isinstance(experts, int):
        raise NotLowered("other than float32 of known widths is not generated")
    if not 0 < k <= min(experts, MAX_K):
        raise NotLowered(f"k = {k} of {experts} experts is not generated")
    lowering.require_equal(count_of(x.shape[:-1]), tokens)
    first, second, third = _layers(lowering, node, experts, hidden)
    chosen, weights = _routed(lowering, node, logits, k)
    rows, places, sorted_x = _sorted(lowering, node, x.reshaped((tokens, hidden)), chosen, experts)
    active = _activated(lowering, node, rows, sorted_x, first, third)
    answers = _product(lowering, node, rows, active, second)
    target = lowering.result_view(node.output)
    kernel = mixing_kernel(lowering.target)
    lowering.emit(
        KernelText(kernel.name, kernel), (*map(pointer, (target, answers, weights, places)), tokens, k, hidden),
        [answers.buffer, weights.buffer, places.buffer], [target.buffer], count_of(answers.shape), (node,),
        count_of(answers.shape) * 2, moved_nbytes([answers, target]),
    )  # fmt: skip
    lowering.set(node.output, target)


# where tokens go ------------------------------------------------------------------------------------------------------


def _routed(lowering: Lowering, node: Node, logits: View, k: int) -> tuple[View, View]:
    """Return the k best experts of each token, best first, and their weights."""
    tokens, experts = logits.shape
    best, chosen = lowering.new_view(F32, (tokens, k)), lowering.new_view(I64, (tokens, k))
    name, function = top_k_kernel(F32, largest=True)
    lowering.emit(
        KernelText(name, function), (*map(pointer, (best, chosen, logits)), tokens, experts, k), [logits.buffer],
        [best.buffer, chosen.buffer], count_of(logits.shape) * 4, (node,),
    )  # fmt: skip
    largest = View(best.buffer, (tokens, 1), (k, 1), best.offset)
    powers = combined(logits.shape, lambda each, most: exp(each - most), logits, largest)
    total = reduce_operand(lowering, powers, (1,), "sum", operators=(node,))
    weights = lowering.new_view(F32, (tokens, k))
    share = combined(weights.shape, lambda each, most, of: exp(each - most) / of, best, largest, total)
    lowering.stores.store(share.expression, share.inputs, weights, (node,))
    if not node.int_attribute("normalize_routing_weights", 0):
        return chosen, weights
    total = reduce_operand(lowering, operand_of(weights), (1,), "sum", operators=(node,))
    scaled = lowering.new_view(F32, (tokens, k))
    share = combined(weights.shape, lambda each, of: each / select(binary("eq", of, 0.0), 1.0, of), weights, total)
    lowering.stores.store(share.expression, share.inputs, scaled, (node,))
    return chosen, scaled


def _sorted(lowering: Lowering, node: Node, x: View, chosen: View, experts: int) -> tuple[_Rows, View, View]:
    """Return the rows by expert, which row each token's slots got, and the tokens' rows in that order."""
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
    return _Rows(starts, experts, count), places, rows


# what experts compute -------------------------------------------------------------------------------------------------


def _layers(lowering: Lowering, node: Node, experts: int, hidden: int) -> tuple[_Layer, _Layer, _Layer | None]:
    """Return fc1, fc2 and fc3; files of earlier exporters turn the shapes of the first two, not their elements."""
    inputs = [*node.inputs, *[None] * 6]
    is_fused = node.string_attribute("activation_type", "relu") == "swiglu" and _fusion(node) != 0
    inner = _elements_of_expert(inputs[4], experts) // hidden
    columns = 2 * inner if is_fused else inner
    first = _layer(lowering, inputs[2], inputs[3], experts, columns, hidden)
    second = _layer(lowering, inputs[4], inputs[5], experts, hidden, inner)
    third = None if inputs[6] is None else _layer(lowering, inputs[6], inputs[7], experts, inner, hidden)
    return first, second, third


def _elements_of_expert(value: Value | None, experts: int) -> int:
    shape = () if value is None else tensor_type(value)[1]
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) != 3 or sizes[0] != experts or 0 in sizes:
        raise NotLowered("the weights of the experts are not three known sizes")
    return sizes[1] * sizes[2]


def _layer(
    lowering: Lowering, weights: Value | None, bias: Value | None, experts: int, columns: int, depth: int
) -> _Layer:
    if weights is None or columns == 0 or _elements_of_expert(weights, experts) != columns * depth:
        raise NotLowered("the weights of the experts do not fit")
    if set(tensor_type(weights)[1][1:]) != {columns, depth}:
        raise NotLowered("the weights of the experts do not fit")
    added = None if bias is None else lowering.contiguous(bias)
    if added is not None and added.shape != (experts, columns):
        raise NotLowered("a bias does not fit")
    constant, width = lowering.constant_of(weights), tile_shape(lowering.target).columns
    if constant is None:
        view = lowering.contiguous(weights).reshaped((experts, columns, depth))
        return _Layer(view, False, columns * depth, depth, columns, added)

    def fill(out: np.ndarray) -> None:
        for matrix, panels in zip(constant.reshape(experts, columns, depth), out):
            pack_panels(np.asarray(matrix, np.float32).T, width, panels)

    shape = panels_shape((experts, depth, columns), width)
    panels = lowering.weights.packed(constant, f"experts {width} {columns}", lambda: aligned_empty(shape), fill)
    view = lowering.constant_view(panels, F32)
    return _Layer(view, True, panels[0].size, depth, columns, added)


def _activated(lowering: Lowering, node: Node, rows: _Rows, x: View, first: _Layer, third: _Layer | None) -> View:
    """Return the activated hidden rows."""
    kind = node.string_attribute("activation_type", "relu")
    if kind != "swiglu":
        active = _activation(kind)
        if third is None:
            return _product(lowering, node, rows, x, first, active)
        opened, gated = _product(lowering, node, rows, x, third), _product(lowering, node, rows, x, first)
        return _stored(lowering, node, lambda gate, linear: active(gate) * linear, gated, opened)
    found, fusion = _product(lowering, node, rows, x, first), _fusion(node)
    if fusion == 0:
        if third is None:
            raise NotLowered("swiglu needs fc3 where nothing is fused")
        return _stored(lowering, node, _swiglu(node), found, _product(lowering, node, rows, x, third))
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


def _activation(kind: str) -> Callable[[Scalar], Scalar]:
    def meant(domain: str, op_type: str) -> Callable[[Scalar], Scalar]:
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


def _product(
    lowering: Lowering, node: Node, rows: _Rows, a: View, layer: _Layer,
    activation: Callable[[Scalar], Scalar] = lambda x: x,
) -> View:  # fmt: skip
    """Return ``activation(a @ matrix + bias)`` of each row by its expert."""
    machine = lowering.target
    target = lowering.new_view(F32, (rows.count, layer.columns))
    value, biases = element(0, F32), () if layer.bias is None else (layer.bias,)
    value = activation(value if layer.bias is None else value + element(1, F32))
    epilogue = None
    if value.operation != "input":
        epilogue = ExpressionEpilogue(value, (True,) * len(biases), ARGUMENTS.count)
    facts = f"{layer.packed} {len(biases)} {'' if epilogue is None else epilogue.structure}"

    def write() -> KernelText:
        kernel = deferred_kernel(
            "product_experts", facts,
            lambda name: expert_functions(
                name, machine, packed=layer.packed, operands=len(biases), epilogue=epilogue
            ),
            is_vectorized=True,
        )  # fmt: skip
        return KernelText(kernel.name, kernel)

    scratch = lowering.scratch(DataType.UINT8, scratch_nbytes(machine))
    words: list[Argument] = [0] * ARGUMENTS.count
    values: dict[int, Argument] = {
        ARGUMENTS.a: pointer(a), ARGUMENTS.b: pointer(layer.matrices), ARGUMENTS.c: pointer(target),
        ARGUMENTS.m: rows.count, ARGUMENTS.n: layer.columns, ARGUMENTS.k: layer.depth, ARGUMENTS.a_row: layer.depth,
        ARGUMENTS.a_k: 1, ARGUMENTS.b_k: 1, ARGUMENTS.b_n: layer.depth, ARGUMENTS.c_row: layer.columns,
        ARGUMENTS.scratch: Pointer(scratch), ARGUMENTS.scratch_stride: scratch_nbytes(machine),
        ARGUMENTS.tiles: Pointer(tile_table_buffer(machine)),
    }  # fmt: skip
    for position, each in values.items():
        words[position] = each
    words[ARGUMENTS.batch : ARGUMENTS.batch + BATCH_DIMS] = [1] * BATCH_DIMS
    for bias in biases:
        words.extend([pointer(bias), *[0] * (1 + BATCH_DIMS)])
    words.extend([pointer(rows.starts), rows.experts, layer.step, *[layer.columns for _ in biases]])
    reads = [a.buffer, layer.matrices.buffer, rows.starts.buffer, *(bias.buffer for bias in biases)]
    flops = rows.count * (2 * layer.columns * layer.depth)
    lowering.emit(
        lowering.kernel(("product_experts", facts), write), words, reads, [target.buffer, scratch], flops // 32 + 1,
        (node,), flops, moved_nbytes([a, target]),
    )  # fmt: skip
    return target
