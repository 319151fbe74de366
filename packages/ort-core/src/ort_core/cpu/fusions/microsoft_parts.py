"""onnxruntime's products and convolutions with something folded in, as the parts that the compiler fuses itself.

y = FusedConv<activation = "Relu">(x, w, b, z)  ->  y = Relu(Add(Conv(x, w, b), z))
y = NhwcConv(x, w, b)                           ->  y = Transpose(Conv(Transpose(x), Transpose(w), b))

Files that onnxruntime saved behind its optimizer have them. The parts are their function bodies. A node of which no
body is known, or whose addend might be broadcast, which the operator itself refuses, stays as it is.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.fusions.known_breaches import find_breach
from ort_core.plugin import Rejection
from ort_core.plugin.ir import Constant, Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext, KernelRegistry
from ort_core.plugin.passes import Level, Pass, PassContext, PassRecordState
from ort_core.plugin.rewrite import decompose

MICROSOFT = "com.microsoft"
_ADDENDS = {"BiasAdd": 2, "FusedConv": 3, "NhwcFusedConv": 3}  # inputs that must be as large as the result
_BIASES = {"FusedGemm": 2, "GemmFastGelu": 2}  # that must not make it larger
_WHOLE_BIASES = frozenset({"BiasAdd", "BiasSplitGelu"})  # whose second input is as long as a row of the first
_OPERATORS = frozenset(
    {
        *_ADDENDS, *_BIASES, *_WHOLE_BIASES, "FusedMatMulActivation", "NhwcConv", "ScaledSiLU",
        "TransposeMatMul",
    }
)  # fmt: skip


class MicrosoftInParts(Pass):
    """Write nodes that the compiler has no rule for as the parts that it has rules for."""

    name = "MicrosoftInParts"
    level = Level.EXTENDED
    needs_inference = True

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Take apart every node of the table that has a body."""
        facts = EvaluationContext(KernelRegistry(), context.schemas, context.model.opset_imports)
        for graph in context.graphs_with(_OPERATORS):
            for node in context.nodes_of(graph, _OPERATORS):
                if node.domain == MICROSOFT:
                    _take_apart(graph, node, facts, record)


def _take_apart(graph: Graph, node: Node, facts: EvaluationContext, record: PassRecordState) -> None:
    breach = find_breach(node, facts.opset_of(node))
    if breach is not None:
        record.refused(node.op_type, breach)
        return
    place = _ADDENDS.get(node.op_type)
    if place is not None and not _is_as_large(node.input(place), node.output):
        record.refused(node.op_type, Rejection("its addend may have other sizes than its result", node))
        return
    if node.op_type in _WHOLE_BIASES and not _is_a_row(node.input(1), node.input(0)):
        record.refused(node.op_type, Rejection("its bias may be shorter than a row of its input", node))
        return
    bias = node.input(_BIASES[node.op_type]) if node.op_type in _BIASES else None
    if bias is not None and not _fits(bias, node.output):
        record.refused(node.op_type, Rejection("its bias may be larger than what it is added to", node))
        return
    name, parts = node.op_type, decompose(graph, node, facts)
    if isinstance(parts, Rejection):
        record.refused(name, parts, node)
        return
    for part in parts:
        constant = _constant_of(graph, part)
        if constant is not None:
            part.output.replace_uses(graph.new_constant(constant))
            graph.remove(part)
    record.changed(name)


def _constant_of(graph: Graph, part: Node) -> Constant | None:
    """Return what a Constant or a Transpose of a constant makes: the compiler takes constants of the graph alone."""
    if part.op_type == "Constant":
        value = part.attribute("value")
        return value if isinstance(value, Constant) else None
    source = part.input(0) if part.op_type == "Transpose" else None
    known = None if source is None else graph.fixed_constant(source)
    if known is None:
        return None
    turned = known.array().transpose(part.ints_attribute("perm") or None)
    return Constant.of(np.ascontiguousarray(turned), known.dtype)


def _fits(bias: Value, total: Value | None) -> bool:
    """Return whether a bias is known to be added without making a sum larger: its sizes are those of that, or 1."""
    if bias.shape is None or total is None or total.shape is None or len(bias.shape) > len(total.shape):
        return False
    pairs = zip(reversed(bias.shape), reversed(total.shape), strict=False)
    return all(size is not None and size in (1, whole) for size, whole in pairs)


def _is_a_row(bias: Value | None, x: Value | None) -> bool:
    """Return whether a bias is known to have one element for each of a row."""
    if bias is None or x is None or bias.shape is None or not x.shape:
        return False
    return bias.shape[-1:] != (None,) and bias.shape == x.shape[-1:]


def _is_as_large(addend: Value | None, result: Value) -> bool:
    """Return whether an addend is absent, or known to have the sizes of a result."""
    if addend is None:
        return True
    return addend.shape is not None and None not in addend.shape and addend.shape == result.shape
