"""Custom operators: a numpy kernel, which runs node by node, and a formula, which is compiled."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.custom_operators import FORMULAS, KERNELS
from random_graphs.families.operands import partner
from random_graphs.family import family
from random_graphs.writer import CUSTOM_DOMAIN, GraphWriter, Refused, Value


@family(2)
def custom_operator(g: GraphWriter) -> Value:
    if g.half is not None:
        raise Refused("users' operators take the types that they say")
    op_type = g.choice((*KERNELS, *FORMULAS))
    value = g.pick(et.F32)
    operands = [value] if op_type in ("ScaledSine", "RowRange") else [value, partner(g, value)]
    root = g
    while root.outer is not None:
        root = root.outer
    root.custom[op_type] = (KERNELS | FORMULAS)[op_type]
    return g.node(op_type, operands, domain=CUSTOM_DOMAIN)
