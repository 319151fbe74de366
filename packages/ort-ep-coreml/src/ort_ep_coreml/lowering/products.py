"""Matrix products of floats, of ONNX and of com.microsoft; integers are in ``integers``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.conditions import only_attributes
from ort_ep_coreml.lowering.einsum import EINSUM
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.terms import Term, first, term
from ort_ep_coreml.mil import Operand


def matrix_product(x: Term, y: Term, ranks: tuple[int, int]) -> Term:
    """Return a product as ONNX means it: a vector is a row, or a column, for that time."""
    left, right = (each == 1 for each in ranks)
    x = x.reshaped(1, -1) if left else x
    y = y.reshaped(-1, 1) if right else y
    found = x @ y
    if left and right:
        return found.do("squeeze", axes=np.array([0], np.int32)).do("squeeze", axes=np.array([0], np.int32))
    if not left and not right:
        return found
    return found.do("squeeze", axes=np.array([-2 if left else -1], np.int32))


def _matmul(to: EmissionState, node: Node) -> Operand:
    ranks = rank_of(node.input(0)), rank_of(node.input(1))
    return matrix_product(first(to, node), term(to, node.input(1)), ranks).operand


def _factors(context: LoweringContext, node: Node) -> str | None:
    return None if rank_of(node.input(0)) and rank_of(node.input(1)) else "a factor is a scalar"


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


def _matrices(context: LoweringContext, node: Node) -> str | None:
    least = min(rank_of(node.input(0)), rank_of(node.input(1)))
    return None if least >= 2 else f"a vector as a factor of {node.op_type} is not lowered"


PRODUCTS: Mapping[str, Rule] = {
    "MatMul": Rule(_matmul, conditions=(_factors,), required=2),
    "Gemm": Rule(_gemm, required=2, oldest=7),
    **EINSUM,
}
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_PRODUCTS: Mapping[str, Rule] = {
    "FusedMatMul": Rule(_gemm, conditions=(_matrices, only_attributes(transBatchA=0, transBatchB=0)), required=2),
}
"""Rules by operator of ``com.microsoft``."""
