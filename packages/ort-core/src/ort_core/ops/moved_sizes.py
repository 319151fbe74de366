"""holds_sizes(): whether the elements of an integer tensor are sizes of tensors, however those are written.

An image behind convolutions without a border is ``((n - 3) // 2 - 2) // 2 + 1`` long, which arithmetic cannot tell from
a negative number. But a tensor has that size, or the run has ended before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ort_core.ir.values import Value

_MEASURES = frozenset({"Shape", "Size"})
_MOVES = frozenset({"Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_MOST_NODES = 32  # that are walked through; exporters write six for a size


def holds_sizes(value: Value | None) -> bool:
    """Return whether all elements are sizes of tensors, or constants of at least 0, that were only moved."""
    waiting, walked = [value], 0
    while waiting:
        each = waiting.pop()
        walked += 1
        if each is None or walked > _MOST_NODES:
            return False
        node = each.producer
        if node is None or node.op_type == "Constant":
            if not _is_natural(each):
                return False
        elif node.domain or node.op_type not in _MEASURES | _MOVES | {"Concat"}:
            return False
        elif node.op_type == "Concat":
            waiting.extend(node.inputs)
        elif node.op_type in _MOVES:
            waiting.append(node.input(0))
    return True


def _is_natural(value: Value) -> bool:
    constant = None if value.graph is None else value.graph.fixed_constant(value)
    if constant is None:
        return False
    array = constant.array()
    return array.dtype.kind in "iu" and bool((array >= 0).all())
