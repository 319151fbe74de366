"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, rank_of
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.mil import Operand


def _matmul(to: EmissionState, node: Node) -> Operand:
    return to.emit("matmul", x=to.operand(node.input(0)), y=to.operand(node.input(1)))


def _matrices(asked: Asked, node: Node) -> str | None:
    if min(rank_of(node.input(0)), rank_of(node.input(1))) >= 2:
        return None
    return "a vector as a factor is not lowered: Core ML multiplies matrices"


def _gemm(to: EmissionState, node: Node) -> Operand:
    a, b, c = node.input(0), node.input(1), node.input(2)
    found: Operand = to.emit(
        "matmul",
        x=to.operand(a),
        y=to.operand(b),
        transpose_x=bool(node.int_attribute("transA", 0)),
        transpose_y=bool(node.int_attribute("transB", 0)),
    )
    found = _scaled(to, node, found, "alpha")
    return found if c is None else to.emit("add", x=found, y=_scaled(to, node, to.operand(c), "beta"))


def _scaled(to: EmissionState, node: Node, operand: Operand, name: str) -> Operand:
    factor = node.float_attribute(name, 1.0)
    return operand if factor == 1.0 else to.emit("mul", x=operand, y=to.scalar(node.input(0), factor))


PRODUCTS: Mapping[str, Rule] = {
    "MatMul": Rule(_matmul, conditions=(_matrices,), required=2),
    "Gemm": Rule(_gemm, required=2, oldest=7),
}
"""Rules by operator."""
