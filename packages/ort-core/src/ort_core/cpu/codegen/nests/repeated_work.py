"""repeats_work(): whether a loop over elements computes again and again what is the same for all of them.

LLVM's whole pipeline takes such work out of the loop; the few passes for code that is written for vectors do not.
"""

from __future__ import annotations

import functools

from ort_core.plugin.loops import Scalar

_KEPT = 256  # answers: layers share their expressions, and ask again and again


@functools.lru_cache(_KEPT)
def repeats_work(roots: tuple[Scalar, ...], fixed: frozenset[int]) -> bool:
    """Return whether an operation reads nothing but inputs with one value for all elements, and values of the row.

    What reads constants alone is no work: it is computed when it is compiled.

    Args:
        roots: expressions that are computed for each element.
        fixed: the inputs that have one value for all elements.
    """
    changing: dict[int, bool | None] = {}  # ``None``: a constant

    def walk(node: Scalar) -> bool:
        """Return whether the node, or something that it reads, repeats work."""
        if id(node) in changing:
            return False
        if any(walk(argument) for argument in node.arguments):
            return True
        if not node.arguments:
            is_input = node.operation == "input" and node.index not in fixed
            changing[id(node)] = None if node.operation == "constant" else is_input
            return False
        read = [changing[id(argument)] for argument in node.arguments]
        changing[id(node)] = None if all(each is None for each in read) else any(read)
        return changing[id(node)] is False

    return any(walk(root) for root in roots)
