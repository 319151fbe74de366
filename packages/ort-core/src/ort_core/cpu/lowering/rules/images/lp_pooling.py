"""LpPool and GlobalLpPool: powers, their sums over windows, and roots of these."""

from __future__ import annotations

from ort_core.cpu.codegen.images.pooling import Pooling
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rules.images.pooling import pooled, pooled_operand, require_inner_pads
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import channels_last
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, element, lift, meaning_of, unary

F32 = DataType.FLOAT


def lp_pooling(lowering: Lowering, node: Node) -> None:
    """LpPool, GlobalLpPool: ``(sum of |x|^p)^(1/p)`` over each window, or over the whole image."""
    require_inner_pads(node)
    x = pooled_operand(lowering, node)
    channels = x.shape[1]
    assert isinstance(channels, int)
    p = _order(node)
    absolute = unary("abs", element(0, F32))
    powers = lowering.new_view(F32, x.shape, channels_last(len(x.shape)))
    lowering.stores.store(power_of(absolute, p), (x,), powers, (node,))
    kind = Pooling(channels, None, is_maximum=False, is_sum=True)
    sums = pooled(lowering, node, powers, kind)
    lowering.set(node.output, PendingElementwise(power_of(element(0, F32), 1 / p), (sums,), sums.shape, (node,)))


def _order(node: Node) -> float:
    p = node.attribute("p", 2)
    if not isinstance(p, (int, float)) or p <= 0:
        raise NotLowered(f"the norm p = {p!r} is not generated")
    return float(p)


def power_of(base: Scalar, exponent: float) -> Scalar:
    """Return a power; of a base that is not negative."""
    found = meaning_of("", "Pow", (base, lift(exponent, F32)), {})
    if not isinstance(found, Scalar):
        raise NotLowered(found.reason)
    return found
