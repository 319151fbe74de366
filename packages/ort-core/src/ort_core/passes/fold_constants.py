"""ConstantFolding: what depends on constants alone is computed once, and an If with a constant condition is decided.

    w = Transpose(constant)                        ->  w = a constant
    y = If(True) <then {a}, else {b}>              ->  the nodes of the then branch

Never folded: DequantizeLinear (quantized weights would lose their compact form, and providers the pattern that they
look for), operators that are not deterministic, values that the caller may override, results above the limits, and
operators over strings (a regular expression or thirty concatenations take what time and memory they like).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import inline
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.ops.shape_arithmetic import fixed_sizes
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

NEVER_FOLDED = frozenset({"DequantizeLinear", "Constant"})
PRODUCTS = frozenset(
    {
        "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "MatMulInteger", "ConvInteger", "QLinearMatMul",
        "QLinearConv", "DeformConv", "Attention", "RNN", "GRU", "LSTM", "DFT",
    }
)  # fmt: skip


class ConstantFolding(Pass):
    """Evaluate nodes with constant inputs, in graph order, so that chains fold in one sweep."""

    name = "ConstantFolding"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Decide Ifs, then fold nodes, in every graph."""
        for graph in context.graphs_with(("If",)):
            for node in context.nodes_of(graph, ("If",)):
                branch = _chosen_branch(node)
                if branch is not None:
                    _inline_branch(context, graph, node, branch)
                    record.changed("decided If")
                    context.values = None  # behind it more may be known than both branches agreed on: infer again
        if context.evaluate_node is None:
            return
        for graph in context.graphs():
            for node in graph.nodes:
                if _reads_only_constants(node):
                    objection = _fold(context, node)
                    if objection is None:
                        record.changed("folded node")
                    else:
                        record.refused("folded node", objection, node)


def _reads_only_constants(node: Node) -> bool:
    inputs = node.inputs
    for value in inputs:
        if value is not None and value.constant is None:
            return False
    return bool(inputs)


def _fold(context: PassContext, node: Node) -> Rejection | None:
    objection = _find_objection(context, node)
    if objection is not None:
        return objection
    constants = [constant_of(value) for value in node.inputs]
    assert context.evaluate_node is not None
    arrays = [None if c is None else c.array() for c in constants]
    results = context.evaluate_node(node, arrays)
    if isinstance(results, Rejection):
        return results
    limit, growth = _max_nbytes(context, constants), -_given_nbytes(constants)
    patch = GraphPatch(context.model, node)
    for output, result in zip(node.outputs, results):
        if output is None:
            continue
        if not isinstance(result, np.ndarray):
            return Rejection(f"output {output.name!r} is not a tensor", node)
        if result.nbytes > limit:
            return Rejection(f"the result takes {result.nbytes} bytes, above the limit of {limit}", node)
        growth += result.nbytes
        patch.replace(output, patch.constant(_owned(result, output.type, arrays), output.name))
    patch.remove(node)
    context.fold_growth_nbytes += max(growth, 0)
    return patch.apply()


def _find_objection(context: PassContext, node: Node) -> Rejection | None:
    if any(value is not None and constant_of(value) is None for value in node.inputs):
        return Rejection("the caller may override an input", node)
    if node.op_type in NEVER_FOLDED:
        return Rejection(f"{node.op_type} is never folded", node)
    if node.subgraphs():
        return Rejection("nodes with bodies are not folded", node)
    if (node.domain, node.op_type, node.overload) in context.model.functions:
        return Rejection("a model-local function has to be inlined first", node)
    if not context.is_deterministic(node):
        return Rejection("the operator is not known to be deterministic", node)
    if any(_is_string(value) for value in (*node.inputs, *node.outputs)):
        return Rejection("operators over strings are not folded", node)
    constants = [constant_of(value) for value in node.inputs]
    limit = _max_nbytes(context, constants)
    for output in node.present_outputs():
        nbytes = _nbytes(output.type)
        if nbytes is not None and nbytes > limit:
            return Rejection(f"the result would take {nbytes} bytes, above the limit of {limit}", node)
    return _take_products(context, node, constants)


def _take_products(context: PassContext, node: Node, constants: Sequence[Constant | None]) -> Rejection | None:
    """Count the products of numbers that a node takes, and refuse it where the model's share is used up."""
    if node.op_type not in PRODUCTS:
        return None
    left, right, *_ = *sorted((c.size for c in constants if c is not None), reverse=True), 1, 1
    shapes = [fixed_sizes(value.shape) for value in node.present_outputs()]
    result = max((math.prod(shape) for shape in shapes if shape is not None), default=left)
    products = math.isqrt(left * right * result)  # m*k, k*n and m*n multiplied are the square of m*k*n
    if context.fold_products + products > context.limits.max_products:
        return Rejection(f"folding products took {context.fold_products} multiplications already", node)
    context.fold_products += products
    return None


def _is_string(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype is DataType.STRING


def _given_nbytes(constants: Sequence[Constant | None]) -> int:
    return sum(constant.nbytes for constant in {id(c): c for c in constants if c is not None}.values())


def _max_nbytes(context: PassContext, constants: Sequence[Constant | None]) -> int:
    """Return how large a result may be: little larger than its inputs, each counted once."""
    limits = context.limits
    growth = min(limits.max_fold_growth_nbytes, max(limits.max_total_growth_nbytes - context.fold_growth_nbytes, 0))
    return min(limits.max_folded_nbytes, _given_nbytes(constants) + growth)


def _nbytes(value_type: object) -> int | None:
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return None
    sizes = [dim for dim in value_type.shape if isinstance(dim, int)]
    if len(sizes) != len(value_type.shape):
        return None
    return math.prod(sizes) * max(1, value_type.dtype.bits // 8)


def _owned(result: np.ndarray, value_type: object, inputs: Sequence[np.ndarray | None]) -> Constant:
    """Return the result as a constant that keeps no more memory than it shows.

    A view of a whole input, such as a transposed weight, stays one: the weight may lie in a mapped file.
    """
    base = result.base
    keeps_more = isinstance(base, np.ndarray) and base.nbytes > result.nbytes
    if any(array is not None and _shows_all(result, array) for array in inputs):
        array = result
    else:
        array = np.array(result) if keeps_more or not result.flags.c_contiguous else result
    dtype = value_type.dtype if isinstance(value_type, TensorType) else DataType.UNDEFINED
    return Constant.of(array, dtype if dtype is not DataType.UNDEFINED and array.dtype == dtype.numpy else None)


def _shows_all(view: np.ndarray, array: np.ndarray) -> bool:
    same_size = view.nbytes == array.nbytes and view.itemsize == array.itemsize
    return same_size and view.size > 0 and byte_bounds(view) == byte_bounds(array)


def _chosen_branch(node: Node) -> Graph | None:
    """Return the branch that an If with a constant condition takes, ``None`` if it is no valid one."""
    condition = constant_of(node.input(0)) if node.op_type == "If" and node.domain == "" else None
    if condition is None or condition.size != 1:
        return None
    attribute = node.attributes.get("then_branch" if condition.scalar() else "else_branch")
    branches = () if attribute is None else attribute.graphs()
    return branches[0] if branches and len(branches[0].outputs) == len(node.outputs) else None


def _inline_branch(context: PassContext, graph: Graph, node: Node, branch: Graph) -> None:
    results = inline(graph, node, branch, {})
    patch = GraphPatch(context.model, node)
    for output, result in zip(node.outputs, results, strict=True):
        if output is not None:
            patch.replace(output, patch.op("Identity", [result], type=result.type))  # keeps the output's name
    patch.remove(node)
    objection = patch.apply()
    if objection is not None:
        # The branch contradicts the type declared for the If; what is computed decides, as it would in a run.
        for output, result in zip(node.outputs, results, strict=True):
            if output is not None:
                output.type = result.type
        _inline_branch(context, graph, node, branch)
