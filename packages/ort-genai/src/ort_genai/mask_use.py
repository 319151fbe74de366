"""What a graph takes of its attention mask: lengths alone, or more.

GroupQueryAttention reads how many tokens each row has, and how long the mask is. Where the mask goes nowhere else,
zeros behind its ones change nothing, and it may be as long as the caches.
"""

from __future__ import annotations

from pathlib import Path

from ort_genai.graph_wiring import Wiring, wiring_of

_COUNTS = frozenset({"ReduceSum", "Sub", "Cast", "Shape", "Gather", "Squeeze", "Unsqueeze", "Identity"})
_LENGTHS = (5, 6)  # inputs of GroupQueryAttention
_LARGEST = 64 << 20  # bytes of a graph: one with its weights inside takes longer to read than the answer is worth


def takes_lengths_alone(model: Path | bytes, mask: str) -> bool:
    """Return whether a model takes nothing of its mask but lengths; ``False`` where that is not found out.

    Args:
        model: a file, or its bytes.
        mask: name of the input.
    """
    if (len(model) if isinstance(model, bytes) else model.stat().st_size) > _LARGEST:
        return False
    try:
        wiring = wiring_of(model if isinstance(model, bytes) else model.read_bytes())
    except ValueError:  # the ORT format
        return False
    return _ends_in_lengths(wiring, mask)


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
