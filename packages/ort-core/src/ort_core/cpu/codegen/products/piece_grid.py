"""The pieces of a product whose pieces repeat work: a grid of groups of rows and parts of panels.

Pieces that each round the rows of A that they need repeat that for all the parts of a group of rows; all groups read
all of B. Which grid costs least follows from the sizes and the number of pieces alone, so that all pieces agree on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer


@dataclass(frozen=True, slots=True)
class TileCosts:
    """What else takes time, in tiles of the product: to round the rows of a tile, and to read a panel of B."""

    strip: int
    panel: int


def row_groups(e: Emitter, heights: IRValue, panels: IRValue, pieces: IRValue, costs: TileCosts) -> IRValue:
    """Return how many groups of rows, at least one, make the largest piece as short as may be.

    There are ``heights`` tiles over one another and ``panels`` side by side. Groups are powers of two, or as many as
    there may be: one for each piece, or for each tile.
    """
    most = e.maximum(e.minimum(heights, pieces), 1)
    bits = e.sub(integer(64), e.call("i64", "llvm.ctlz.i64", e.sub(most, 1), IRValue("i1", "false")))
    found, least = e.variable("i64", integer(1)), e.variable("i64", integer((1 << 63) - 1))
    with e.loop(0, e.add(bits, 1), unroll=False, hint="doubling") as doubling:
        groups = e.minimum(e.binary("shl", integer(1), doubling), most)
        parts = e.udiv(pieces, groups)
        rows = _quotient_up(e, heights, groups)
        tiles = _quotient_up(e, e.mul(rows, panels), parts)
        rounding, reading = e.mul(rows, costs.strip), e.mul(_quotient_up(e, panels, parts), costs.panel)
        cost = e.add(tiles, e.add(rounding, reading))
        with e.when(e.compare("slt", cost, e.load("i64", least))):
            e.store(cost, least)
            e.store(groups, found)
    return e.load("i64", found)


def _quotient_up(e: Emitter, left: IRValue, right: IRValue) -> IRValue:
    return e.udiv(e.sub(e.add(left, right), 1), right)
