"""How many tokens a run reads, so that what others ask for does not change a text.

Products with weights of few bits may take up to 16 rows in another arithmetic than more, where the left side is not
rounded to bytes (``paging.equal_rows`` asks). Within each of the two, a row gives the same numbers however many others
stand beside it. So a prompt of more than 16 tokens is read in parts of more than 16 each, whatever the length of the
parts and wherever it begins behind a prefix that is known; and a step of many rows, a token of each, is run in parts of
up to 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_genai.graph_wiring import Wiring

FEW_ROWS = 16
PRODUCT = "MatMulNBits"
_FEW_BITS = frozenset({PRODUCT, "QMoE"})


def part_length(left: int, most: int) -> int:
    """Return how many of the tokens that are left are read next: the last part takes in what were a few rows behind it.

    A run of a few rows reads all weights, too, and may compute in another arithmetic.

    Args:
        left: tokens of a prompt that were not read.
        most: tokens of a part, and of the last one up to 16 more; with less than 33 the last part may be of few rows.
    """
    is_last = left <= most + FEW_ROWS and most > 2 * FEW_ROWS
    return left if is_last else min(left, most)


def reusable_length(count: int) -> int:
    """Return how many tokens of a prompt of so many may come from a cache: more than few rows are left behind them."""
    return max(0, count - FEW_ROWS - 1)


def steps_of(rows: int, most: int) -> list[tuple[int, int]]:
    """Return where the runs of a step begin and end: as few as possible, of nearly equal sizes."""
    parts = max(1, -(-rows // most))
    return [(rows * part // parts, rows * (part + 1) // parts) for part in range(parts)]


def runs_of(counts: Sequence[int], most: int | None) -> list[tuple[int, int]]:
    """Return where runs over sequences of so many tokens begin and end: at most ``most`` tokens, or one sequence."""
    found, first = list[tuple[int, int]](), 0
    while first < len(counts):
        end, total = first + 1, counts[first]
        while end < len(counts) and (most is None or total + counts[end] <= most):
            total += counts[end]
            end += 1
        found.append((first, end))
        first = end
    return found


def operators_of_few_bits(wiring: Wiring | None) -> frozenset[str]:
    """Return the operators of a graph that multiply by weights of few bits; all where that is not found out."""
    if wiring is None or any(node.has_bodies for node in wiring.nodes):
        return _FEW_BITS
    return _FEW_BITS.intersection(node.op_type for node in wiring.nodes)
