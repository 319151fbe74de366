"""The grid of a product's pieces against a search through all grids that may be chosen."""

from __future__ import annotations

import ctypes
import random

from kernel_calls import compiled

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.products.piece_grid import TileCosts, row_groups


def chosen(cases: list[tuple[int, int, int]], costs: TileCosts) -> list[int]:
    """Return the groups of rows for heights, panels and pieces."""
    e = Emitter("groups", [("ptr", "out"), *(("i64", name) for name in ("heights", "panels", "pieces"))])
    given = (e.parameter(name) for name in ("heights", "panels", "pieces"))
    e.store(row_groups(e, *given, costs), e.parameter("out"))
    module = compiled(module_text([e]), host_target(), is_vectorized=False)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(module.address("groups"))
    out, found = ctypes.c_int64(), []
    for case in cases:
        function(ctypes.addressof(out), *case)
        found.append(out.value)
    return found


def cost(groups: int, case: tuple[int, int, int], costs: TileCosts) -> int:
    heights, panels, pieces = case
    parts = pieces // groups
    rows = -(-heights // groups)
    return -(-rows * panels // parts) + costs.strip * rows + costs.panel * -(-panels // parts)


def test_no_grid_that_may_be_chosen_is_better() -> None:
    chance = random.Random(7)
    sizes = [chance.randint(1, chance.choice((4, 20, 300))) for _ in range(1500)]
    cases = list(zip(sizes[::3], sizes[1::3], sizes[2::3], strict=True))
    cases += [(1, 1, 1), (1, 40, 16), (40, 1, 16), (16, 16, 16), (17, 24, 16)]
    for costs in (TileCosts(1, 1), TileCosts(3, 1), TileCosts(0, 9)):
        for case, groups in zip(cases, chosen(cases, costs), strict=True):
            most = min(case[0], case[2])
            candidates = sorted({min(1 << bits, most) for bits in range(10)})
            assert groups in candidates
            assert cost(groups, case, costs) == min(cost(each, case, costs) for each in candidates), case


def test_empty_products_have_one_group() -> None:
    assert chosen([(0, 5, 4), (0, 0, 1), (5, 0, 1)], TileCosts(3, 1)) == [1, 1, 1]


def test_wide_products_are_cut_by_panels_tall_ones_by_rows_and_many_pieces_both_ways() -> None:
    wide, tall, both = (4, 96, 2), (47, 12, 16), (4, 24, 16)
    assert chosen([wide, tall, both], TileCosts(3, 1)) == [1, 16, 2]
