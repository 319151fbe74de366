"""What a graph takes of its attention mask: lengths alone, or more.

GroupQueryAttention reads how many tokens each row has, and how long the mask is. Where the mask goes nowhere else,
zeros behind its ones change nothing, and it may be as long as the caches.
"""

from __future__ import annotations

from ort_genai.graph_wiring import Wiring

_COUNTS = frozenset({"ReduceSum", "Sub", "Cast", "Shape", "Gather", "Squeeze", "Unsqueeze", "Identity"})
_LENGTHS = (5, 6)  # inputs of GroupQueryAttention


def takes_lengths_alone(wiring: Wiring | None, mask: str) -> bool:
    """Return whether a model takes nothing of its mask but lengths; ``False`` where that is not found out.

    Args:
        wiring: of its graph, if it is known.
        mask: name of the input.
    """
    return wiring is not None and _ends_in_lengths(wiring, mask)


def _ends_in_lengths(wiring: Wiring, mask: str) -> bool:
    counted, is_read = {mask}, False
    for node in wiring.nodes:
        if node.has_bodies:
            return False  # a body may read anything
        read = [place for place, name in enumerate(node.inputs) if name in counted]
        if not read:
            continue
        if node.op_type == "GroupQueryAttention" and all(place in _LENGTHS for place in read):
            is_read = True
        elif node.op_type in _COUNTS:
            counted.update(node.outputs)
        else:
            return False
    return is_read and counted.isdisjoint(wiring.outputs)
