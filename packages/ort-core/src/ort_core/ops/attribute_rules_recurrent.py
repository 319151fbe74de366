"""What recurrent layers require of their attributes."""

from __future__ import annotations

from ort_core.ir.nodes import Node
from ort_core.ops.attribute_checks import flag

_FUNCTIONS = frozenset(
    ("affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus", "softsign", "tanh",
     "thresholdedrelu")
)  # fmt: skip
_PER_DIRECTION = {"RNN": 1, "GRU": 2, "LSTM": 3}


def recurrent(node: Node, since_version: int) -> str | None:
    """Require sizes, a layout, a limit and functions that a layer can have."""
    hidden, clip = node.int_attribute("hidden_size", 1), node.float_attribute("clip", 1.0)
    if hidden < (0 if node.op_type == "RNN" else 1):
        return f"attribute hidden_size must be at least 1, found {hidden}"
    if node.op_type != "RNN" and not clip > 0:
        return f"attribute clip must be greater than 0, found {clip}; leave it out for no clipping"
    return flag(node, "layout") or recurrent_functions(node, _PER_DIRECTION[node.op_type])


def recurrent_functions(node: Node, per_direction: int) -> str | None:
    """Check the names and the number of ``activations``."""
    names = node.attribute("activations", ())
    if not isinstance(names, tuple) or not names:
        return None
    unknown = [name for name in names if str(name).lower() not in _FUNCTIONS]
    if unknown:
        known = ", ".join(sorted(_FUNCTIONS))
        return f"attribute activations must name functions of {known}, found {unknown[0]!r}"
    is_both = node.string_attribute("direction", "forward").lower() == "bidirectional"
    expected = per_direction * (2 if is_both else 1)
    allowed = {expected, 2} if node.op_type == "RNN" else {expected}  # two is RNN's default for one direction, too
    if len(names) not in allowed:
        return f"attribute activations must name {expected} functions, found {len(names)}: {', '.join(map(str, names))}"
    return None
