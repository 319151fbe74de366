"""How many tokens a run reads, so that what others ask for does not change a text.

Products with weights of few bits take up to 16 rows in another arithmetic than more: rounded to bytes, and not to
bfloat16. Within each of the two, a row gives the same numbers however many others stand beside it. So a prompt of more
than 16 tokens is read in parts of more than 16 each, whatever the length of the parts and wherever it begins behind a
prefix that is known; and a step of many rows, a token of each, is run in parts of up to 16.
"""

from __future__ import annotations

from pathlib import Path

from ort_genai.graph_wiring import wiring_of

FEW_ROWS = 16
_LARGEST = 64 << 20  # bytes of a graph: one with its weights inside takes longer to read than the answer is worth
_FEW_BITS = frozenset({"MatMulNBits", "QMoE"})


def part_length(left: int, most: int) -> int:
    """Return how many of the tokens that are left are read next, so that the last part is not of few rows.

    Args:
        left: tokens of a prompt that were not read.
        most: tokens of a part; with less than 33 the last part may be of few rows.
    """
    if most < left <= most + FEW_ROWS and most > 2 * FEW_ROWS:
        return left - FEW_ROWS - 1
    return min(left, most)


def reusable_length(count: int) -> int:
    """Return how many tokens of a prompt of so many may come from a cache: more than few rows are left behind them."""
    return max(0, count - FEW_ROWS - 1)


def steps_of(rows: int, most: int) -> list[tuple[int, int]]:
    """Return where the runs of a step begin and end: as few as possible, of nearly equal sizes."""
    parts = max(1, -(-rows // most))
    return [(rows * part // parts, rows * (part + 1) // parts) for part in range(parts)]


def has_few_bits(model: Path | bytes) -> bool:
    """Return whether a graph multiplies by weights of few bits; ``True`` where that is not found out."""
    if (len(model) if isinstance(model, bytes) else model.stat().st_size) > _LARGEST:
        return True
    try:
        wiring = wiring_of(model if isinstance(model, bytes) else model.read_bytes())
    except ValueError:  # the ORT format
        return True
    return any(node.has_bodies or node.op_type in _FEW_BITS for node in wiring.nodes)
