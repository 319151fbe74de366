"""The table: the rule of every operator that is claimed. What is not in it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ort_core.plugin.claims import PLACED_BODIES, STANDARD_DOMAINS
from ort_core.plugin.ir import Node
from ort_ep_openvino.lowering.elementwise import ELEMENTWISE
from ort_ep_openvino.lowering.indexing import INDEXING
from ort_ep_openvino.lowering.movement import MOVEMENT
from ort_ep_openvino.lowering.quantization import QUANTIZATION
from ort_ep_openvino.lowering.reductions import REDUCTIONS
from ort_ep_openvino.lowering.resizing import RESIZING
from ort_ep_openvino.lowering.rule import Rule
from ort_ep_openvino.lowering.sequences import SEQUENCES
from ort_ep_openvino.lowering.sized_view import SizedView
from ort_ep_openvino.lowering.windows import WINDOWS

RULES: Mapping[str, Rule] = {
    **ELEMENTWISE, **MOVEMENT, **INDEXING, **REDUCTIONS, **WINDOWS, **RESIZING, **SEQUENCES, **QUANTIZATION
}  # fmt: skip
"""Rules by operator of ``ai.onnx``."""

_WHY_NOT = {
    "Bernoulli": "OpenVINO's random numbers are not those of a seed",
    **PLACED_BODIES,
    "DFT": "OpenVINO's frontend loses the axis of DFT",
    "Unique": "OpenVINO counts no NaN",
}


def refusal(view: SizedView, node: Node) -> str | None:
    """Return why a node is not handed to OpenVINO, or ``None`` when its rule holds."""
    if node.domain not in STANDARD_DOMAINS:
        return f"{node.domain} is not a domain that this provider claims"
    rule = RULES.get(node.op_type)
    if rule is None:
        return _WHY_NOT.get(node.op_type, f"{node.op_type} is not among the operators that OpenVINO computes rightly")
    return rule.refusal(view, node)


def is_trusted_in_one(views: Iterable[SizedView], node: Node) -> bool:
    """Return whether the rule of a node holds in one of several views of its graph."""
    return any(refusal(view, node) is None for view in views)
