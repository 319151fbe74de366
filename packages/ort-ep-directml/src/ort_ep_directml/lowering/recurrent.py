"""RNN, GRU, LSTM: DirectML has ONNX's gates in ONNX's order, with a dimension more in front."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.elementwise import unary
from ort_ep_directml.lowering.emission import EmissionState, Made
from ort_ep_directml.lowering.movement import padded, sliced
from ort_ep_directml.lowering.operand import Operand, transposed
from ort_ep_directml.lowering.plan import Fused
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Lower, Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import PaddingMode, RecurrentDirection

_DIRECTIONS = {
    "forward": RecurrentDirection.FORWARD,
    "reverse": RecurrentDirection.BACKWARD,
    "bidirectional": RecurrentDirection.BIDIRECTIONAL,
}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_ACTIVATIONS: Mapping[str, tuple[str, tuple[tuple[str, float | None], ...]]] = {
    "Affine": ("ACTIVATION_LINEAR", (("Alpha", None), ("Beta", None))),
    "Elu": ("ACTIVATION_ELU", (("Alpha", 1.0),)),
    "HardSigmoid": ("ACTIVATION_HARD_SIGMOID", (("Alpha", 0.2), ("Beta", 0.5))),
    "LeakyRelu": ("ACTIVATION_LEAKY_RELU", (("Alpha", 0.01),)),
    "Relu": ("ACTIVATION_RELU", ()),
    "ScaledTanh": ("ACTIVATION_SCALED_TANH", (("Alpha", None), ("Beta", None))),
    "Sigmoid": ("ACTIVATION_SIGMOID", ()),
    "Softplus": ("ACTIVATION_SOFTPLUS", ()),
    "Softsign": ("ACTIVATION_SOFTSIGN", ()),
    "Tanh": ("ACTIVATION_TANH", ()),
    "ThresholdedRelu": ("ACTIVATION_THRESHOLDED_RELU", (("Alpha", 1.0),)),
}
"""By ONNX's name: the operator, its numbers, and their defaults."""


def _activations(node: Node, directions: int) -> tuple[Fused, ...]:
    names = node.attribute("activations") or _DEFAULTS[node.op_type] * directions
    numbers = {
        "Alpha": list(node.attribute("activation_alpha") or ()),  # type: ignore[call-overload]  # FLOATS: a tuple
        "Beta": list(node.attribute("activation_beta") or ()),  # type: ignore[call-overload]  # FLOATS: a tuple
    }
    return tuple(_activation(str(name), numbers) for name in names)  # type: ignore[attr-defined]  # STRINGS: a tuple


def _activation(name: str, numbers: Mapping[str, list[float]]) -> Fused:
    known = {each.lower(): each for each in _ACTIVATIONS}
    if name.lower() not in known:
        raise Refused(f"the activation {name} is none that DirectML has inside of recurrent operators")
    kind, fields = _ACTIVATIONS[known[name.lower()]]
    found: dict[str, object] = {"Steepness": 1.0} if kind == "ACTIVATION_SOFTPLUS" else {}
    for field, default in fields:
        given = numbers[field].pop(0) if numbers[field] else default
        if given is None:
            raise Refused(f"the activation {name} lacks its {field.lower()}")
        found[field] = float(given)
    return Fused(kind, found)


def _optional(to: EmissionState, node: Node, place: int) -> Operand | None:
    return None if node.input(place) is None else to.operand(node.input(place))


def _with_front(to: EmissionState, operand: Operand | None, count: int = 1) -> Operand | None:
    """Return an operand with sizes of 1 in front; a constant as a copy: recurrent operators take none that DML owns."""
    if operand is None:
        return None
    if operand.source.kind == "constant":
        operand = unary(to, "ELEMENT_WISE_IDENTITY", operand)
    return to.reshape(operand, (1,) * count + operand.sizes)


def _recurrent(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> list[Operand]:
        is_batch_first = node.int_attribute("layout", 0) == 1
        x = to.operand(node.input(0))
        x = transposed(x, (1, 0, 2)) if is_batch_first else x
        length, batch = x.sizes[:2]
        x = _lengthened(to, node, x)
        steps = x.sizes[0]
        directions, _, hidden = to.operand(node.input(2)).sizes
        fields = _common_fields(to, node, x, length, is_batch_first=is_batch_first)
        fields |= _own_fields(to, node, directions, is_batch_first=is_batch_first)
        sequence: Made = (x.dtype, (steps, directions, batch, hidden))
        last: Made = (x.dtype, (1, directions, batch, hidden))
        names = ("OutputSequence", "OutputSingle", "OutputCellSingle")[: 3 if kind == "LSTM" else 2]
        wanted = [len(node.outputs) > place and node.outputs[place] is not None for place in range(len(names))]
        made = {n: sequence if n == names[0] else last for n, is_wanted in zip(names, wanted, strict=True) if is_wanted}
        found = dict(zip(made, to.emit_many(kind, made, **fields), strict=True))
        if length < steps and names[0] in found:
            whole = found[names[0]]
            found[names[0]] = sliced(to, whole, (0,) * 4, (length, *whole.sizes[1:]), (1,) * 4)
        return [_result(to, found.get(name), name, is_batch_first=is_batch_first, like=x) for name in names]

    return lower


def _lengthened(to: EmissionState, node: Node, x: Operand) -> Operand:
    """Return a sequence of one step with another behind it, which its length leaves out, unless weights are inputs.

    DirectML gives up on its device when it initializes a graph with a recurrent operator of one step and weights that
    it owns, or computes of what it owns (seen with feature level 6.2).
    """
    if x.sizes[0] != 1 or all(to.operand(node.input(place)).source.kind == "input" for place in (1, 2)):
        return x
    return padded(to, x, (0, 0, 0), (1, 0, 0), 0.0, PaddingMode.CONSTANT)


def _lengths(to: EmissionState, node: Node, x: Operand, length: int) -> Operand | None:
    """Return the length of each sequence; ``None`` where all have every step."""
    given = _optional(to, node, 4)
    if given is not None:
        return to.cast(given, ElementType.UINT32)
    if length == x.sizes[0]:
        return None
    return to.constant(np.full(x.sizes[1], length, np.uint32))


def _result(to: EmissionState, found: Operand | None, name: str, *, is_batch_first: bool, like: Operand) -> Operand:
    if found is None:
        return like  # of an output that nobody wants
    if name == "OutputSequence":
        return transposed(found, (2, 0, 1, 3)) if is_batch_first else found
    single = to.reshape(found, found.sizes[1:])
    return transposed(single, (1, 0, 2)) if is_batch_first else single


def _common_fields(
    to: EmissionState, node: Node, x: Operand, length: int, *, is_batch_first: bool
) -> dict[str, object]:
    initial = _optional(to, node, 5)
    lengths = _lengths(to, node, x, length)
    bias = _optional(to, node, 3)
    return {
        "Input": _with_front(to, x),
        "Weight": _with_front(to, to.operand(node.input(1))),
        "Recurrence": _with_front(to, to.operand(node.input(2))),
        "Bias": _with_front(to, bias, 2),
        "HiddenInit": _with_front(to, _state(initial, is_batch_first=is_batch_first)),
        "SequenceLengths": _with_front(to, lengths, 3),
        "Direction": int(_DIRECTIONS[node.string_attribute("direction", "forward")]),
    }


def _state(operand: Operand | None, *, is_batch_first: bool) -> Operand | None:
    return transposed(operand, (1, 0, 2)) if operand is not None and is_batch_first else operand


def _own_fields(to: EmissionState, node: Node, directions: int, *, is_batch_first: bool) -> dict[str, object]:
    fields: dict[str, object] = {"ActivationDescs": _activations(node, directions)}
    clip = node.attribute("clip")
    if node.op_type != "LSTM":
        if clip is not None:
            raise Refused(f"DirectML's {node.op_type} does not clip")
        return fields | (
            {"LinearBeforeReset": node.int_attribute("linear_before_reset", 0)} if node.op_type == "GRU" else {}
        )
    return fields | {
        "CellMemInit": _with_front(to, _state(_optional(to, node, 6), is_batch_first=is_batch_first)),
        "Peephole": _with_front(to, _optional(to, node, 7), 2),
        "ClipThreshold": node.float_attribute("clip", 0.0),
        "UseClipThreshold": int(clip is not None),
        "CoupleInputForget": node.int_attribute("input_forget", 0),
    }


RECURRENT: Mapping[str, Rule] = {
    "GRU": Rule(_recurrent("GRU"), required=3, outputs=2, oldest=7),
    "LSTM": Rule(_recurrent("LSTM"), required=3, outputs=3, oldest=7),
    "RNN": Rule(_recurrent("RNN"), required=3, outputs=2, oldest=7),
}
"""Rules by operator."""
