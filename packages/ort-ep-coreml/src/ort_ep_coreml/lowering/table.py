"""The table: the rule of every operator that is lowered. What is not in it is refused."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked
from ort_ep_coreml.lowering.elementwise import ELEMENTWISE
from ort_ep_coreml.lowering.indexing import INDEXING
from ort_ep_coreml.lowering.movement import MOVEMENT
from ort_ep_coreml.lowering.products import PRODUCTS
from ort_ep_coreml.lowering.reductions import REDUCTIONS
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.windows import WINDOWS

RULES: Mapping[str, Rule] = {**ELEMENTWISE, **PRODUCTS, **WINDOWS, **REDUCTIONS, **MOVEMENT, **INDEXING}
"""Rules by operator of ``ai.onnx``."""

_WHY_NOT = {
    "Constant": "a constant: there is nothing to compute at run time",
    "If": "its branches are placed on their own",
    "Loop": "its body is placed on its own",
    "Scan": "its body is placed on its own",
}


def refusal(asked: Asked, node: Node) -> str | None:
    """Return why a node is not lowered, or ``None`` when its rule holds."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.domain} is no domain that this provider lowers"
    rule = RULES.get(node.op_type)
    if rule is None:
        return _WHY_NOT.get(node.op_type, f"{node.op_type} is not among the operators that are lowered to Core ML")
    return rule.refusal(asked, node)
