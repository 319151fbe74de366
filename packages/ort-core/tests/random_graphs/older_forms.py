"""How older opsets write what newer ones give as inputs: as attributes.

Families write each operator as its newest version has it; a graph of an older opset gets the older form of it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from random_graphs.writer import Value

_ATTRIBUTES: Mapping[str, tuple[int, tuple[str, ...]]] = {  # inputs behind the first, since which opset they are some
    "Clip": (11, ("min", "max")),
    "Dropout": (12, ("ratio",)),
    "Pad": (11, ("pads", "value")),
    "ReduceSum": (13, ("axes",)),
    "Slice": (10, ("starts", "ends", "axes")),
    "Split": (13, ("split",)),
    "Squeeze": (13, ("axes",)),
    "TopK": (10, ("k",)),
    "Unsqueeze": (13, ("axes",)),
}
_NEGATIVE_AXES = 11  # opset from which on axes are counted from either end


class NoOlderForm(Exception):
    """An input of an older form is computed, or there is none for it."""


def in_opset(
    op_type: str, operands: Sequence[Value | None], attributes: Mapping[str, Any], opset: int
) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the operands and attributes of a node as its opset has them.

    Raises:
        NoOlderForm: there is none.
    """
    since, names = _ATTRIBUTES.get(op_type, (0, ()))
    if op_type == "Resize" and opset == 10:
        return _resized(operands, attributes)
    if opset >= since or len(operands) < 2:
        return list(operands), dict(attributes)
    if len(operands) > 1 + len(names):
        raise NoOlderForm(f"{op_type} has fewer inputs")
    found = dict(attributes)
    for name, value in zip(names, operands[1:], strict=False):
        if value is None:
            continue
        if value.tensor is None:
            raise NoOlderForm(f"{name} of {op_type} is an attribute")
        array = np.asarray(value.samples[0].truth)
        if name == "axes" and opset < _NEGATIVE_AXES and array.min(initial=0) < 0:
            raise NoOlderForm("axes are counted from the front")
        found[name] = (
            array.tolist() if name not in ("k", "value", "ratio", "min", "max") else array.reshape(-1)[0].item()
        )
    if op_type == "Clip" and found.get("min", 0) > found.get("max", found.get("min", 0)):
        raise NoOlderForm("Clip has its limits in order")
    return list(operands[:1]), found


def _resized(
    operands: Sequence[Value | None], attributes: Mapping[str, Any]
) -> tuple[list[Value | None], dict[str, Any]]:
    if len(operands) != 3:
        raise NoOlderForm("Resize takes scales only")
    return [operands[0], operands[2]], {"mode": attributes["mode"]}
