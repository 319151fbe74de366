"""The table: the rule of every operator that is lowered. What is not in it is refused."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.claims import PLACED_BODIES, STANDARD_DOMAINS
from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.activations import ACTIVATIONS, CONTRIBUTED_ACTIVATIONS
from ort_ep_coreml.lowering.attention import ATTENTION, CONTRIBUTED_ATTENTION
from ort_ep_coreml.lowering.elementwise import ELEMENTWISE
from ort_ep_coreml.lowering.grouped_attention import CONTRIBUTED_GROUPED_ATTENTION
from ort_ep_coreml.lowering.indexing import INDEXING
from ort_ep_coreml.lowering.integers import CONTRIBUTED_INTEGERS, INTEGERS
from ort_ep_coreml.lowering.losses import LOSSES
from ort_ep_coreml.lowering.lowering_context import LoweringContext
from ort_ep_coreml.lowering.movement import MOVEMENT
from ort_ep_coreml.lowering.normalization import CONTRIBUTED_NORMALIZATION, NORMALIZATION
from ort_ep_coreml.lowering.padding import PADDING
from ort_ep_coreml.lowering.products import CONTRIBUTED_PRODUCTS, PRODUCTS
from ort_ep_coreml.lowering.quantization import QUANTIZATION
from ort_ep_coreml.lowering.recurrent import RECURRENT
from ort_ep_coreml.lowering.reductions import REDUCTIONS
from ort_ep_coreml.lowering.resizing import RESIZING
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.shapes import SHAPES
from ort_ep_coreml.lowering.slicing import SLICING
from ort_ep_coreml.lowering.window_sums import WINDOW_SUMS
from ort_ep_coreml.lowering.windows import WINDOWS

STANDARD, CONTRIBUTED = "", "com.microsoft"
_STANDARD_FAMILIES = (
    ELEMENTWISE, ACTIVATIONS, PRODUCTS, INTEGERS, WINDOWS, WINDOW_SUMS, REDUCTIONS, NORMALIZATION, RECURRENT, MOVEMENT,
    SHAPES, PADDING, SLICING, INDEXING, RESIZING, QUANTIZATION, ATTENTION, LOSSES,
)  # fmt: skip
_CONTRIBUTED_FAMILIES = (
    CONTRIBUTED_ACTIVATIONS,
    CONTRIBUTED_NORMALIZATION,
    CONTRIBUTED_PRODUCTS,
    CONTRIBUTED_INTEGERS,
    CONTRIBUTED_ATTENTION,
    CONTRIBUTED_GROUPED_ATTENTION,
)

RULES: Mapping[str, Mapping[str, Rule]] = {
    STANDARD: dict(rule for family in _STANDARD_FAMILIES for rule in family.items()),
    CONTRIBUTED: dict(rule for family in _CONTRIBUTED_FAMILIES for rule in family.items()),
}
"""Rules by operator, by domain."""

_WHY_NOT = {
    "Constant": "a constant: there is nothing to compute at run time",
    **PLACED_BODIES,
}


def find_rule(node: Node) -> Rule | None:
    """Return the rule of a node's operator, or ``None``."""
    return RULES.get(STANDARD if node.domain == "ai.onnx" else node.domain, {}).get(node.op_type)


def get_rule(node: Node) -> Rule:
    """Return the rule of a node that was claimed."""
    rule = find_rule(node)
    assert rule is not None, f"{node.op_type} was claimed without a rule"
    return rule


def refusal(context: LoweringContext, node: Node) -> str | None:
    """Return why a node is not lowered, or ``None`` when its rule holds."""
    rule = find_rule(node)
    if rule is not None:
        return rule.refusal(context, node)
    if node.domain not in STANDARD_DOMAINS | {CONTRIBUTED}:
        return f"{node.domain} is not a domain that this provider lowers"
    return _WHY_NOT.get(node.op_type, f"{node.op_type} is not among the operators that are lowered to Core ML")
