"""How the weights of MoE's experts lie in memory, whatever order their shapes give the axes in.

The schema has fc1 [experts, columns, hidden] and fc2 [experts, hidden, inner], so that each row belongs to one result.
Files of earlier exporters declare fc1 [experts, hidden, columns] and fc2 [experts, inner, hidden] for the very same
bytes. onnxruntime takes both, and reads both as the schema has them.
"""

from __future__ import annotations

from collections.abc import Sequence

Sizes = tuple[int, int, int]


def find_declared_shapes(
    hidden: int, first: Sequence[int], second: Sequence[int], *, is_fused: bool
) -> tuple[Sizes, Sizes] | None:
    """Return the schema's shapes of fc1 and fc2 where a file gives the earlier ones, ``None`` where it does not.

    Args:
        hidden: the width of the input's rows.
        first: sizes of fc1, three.
        second: sizes of fc2, three.
        is_fused: whether fc1 gives a gate next to what it opens for: twice the columns that fc2 takes.
    """
    inner = second[1] * second[2] // hidden if hidden else 0
    columns = 2 * inner if is_fused else inner
    earlier = (hidden, columns, inner, hidden)
    if (*first[1:], *second[1:]) != earlier or earlier == (columns, hidden, hidden, inner):
        return None
    return (first[0], columns, hidden), (second[0], hidden, inner)
