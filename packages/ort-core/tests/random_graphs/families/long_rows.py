"""The best elements of rows that are longer than those of other families, which are repeated to that end."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value


@family()
def top_k_of_long_rows(g: GraphWriter) -> list[Value]:
    value = g.pick(et.F32, et.F64, et.I32, et.I64, least=1, most=3, filled=True)
    axis = g.axis(value)
    times = np.ones(value.rank, np.int64)
    times[axis] = g.choice((5, 40, 150))
    rows = g.node("Tile", [value, g.constant(times, et.I64)])
    if value.dtype in (et.F32, et.I32) and g.chance(0.5):  # else equal elements lie in all parts
        shift = g.node("CumSum", [g.node("Sign", [rows]), g.constant(np.asarray(axis), et.I64)])
        rows = g.node("Add", [rows, shift])
    length = min(shape[axis] for shape in rows.shapes)
    k = g.choice((1, 33, 130, length, length // 2 + 1))
    wanted = fixed([min(k, length)])
    is_data = g.opset >= 10 and g.outer is None and g.chance(0.3)
    operands = [rows, g.given(wanted) if is_data else g.constant(wanted)]
    return g.node("TopK", operands, 2, axis=axis, largest=g.choice((0, 1)), sorted=1)
