"""LSTM, RNN and GRU with fixed weights.

MIL's own ``lstm`` and ``rnn`` mean what ONNX means. What its ``gru`` resets, the product or the state, is documented
in one way and offered as an option in a later version; so a GRU is written out step by step, over a known length.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.conditions import only_attributes
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, sizes_of
from ort_ep_coreml.lowering.rule import FLOATS, Rule
from ort_ep_coreml.lowering.terms import Term, first, joined, term
from ort_ep_coreml.mil import Operand

_MIL_NAMES = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "RNN": ("tanh",), "GRU": ("sigmoid", "tanh")}
_LSTM_ORDER = (0, 2, 1, 3)  # ONNX: input, output, forget, cell; MIL: input, forget, output, cell
MAX_STEPS = 128  # of a GRU: some ten operations each; programs of thousands take minutes to prepare


def _activations(node: Node) -> tuple[str, ...] | None:
    """Return the activations of one direction by MIL's names; ``None`` where it lacks one, or directions differ."""
    stated = node.attribute("activations")
    names = [each.decode().lower() if isinstance(each, bytes) else str(each).lower() for each in stated or ()]  # type: ignore[attr-defined]  # texts
    count = len(_DEFAULTS[node.op_type])
    names = names or list(_DEFAULTS[node.op_type]) * _directions(node)
    ways = {tuple(names[at : at + count]) for at in range(0, len(names), count)}
    (way, *others) = ways
    return None if others or any(each not in _MIL_NAMES for each in way) else way


def _directions(node: Node) -> int:
    return 2 if node.string_attribute("direction", "forward") == "bidirectional" else 1


def _constant(to: EmissionState, value: Value | None) -> np.ndarray:
    found = to.context.constant(value)
    assert found is not None, "read beforehand"
    return found


def _by_gate(array: np.ndarray, count: int, order: tuple[int, ...]) -> np.ndarray:
    parts = np.split(array, count, axis=0)
    return np.concatenate([parts[place] for place in order])


def _weights(to: EmissionState, node: Node, way: int, order: tuple[int, ...]) -> dict[str, np.ndarray]:
    count = len(order)
    w, r = (_constant(to, node.input(place))[way] for place in (1, 2))
    found = {"weight_ih": _by_gate(w, count, order), "weight_hh": _by_gate(r, count, order)}
    if node.input(3) is not None:
        both = np.split(_constant(to, node.input(3))[way], 2)
        found["bias"] = _by_gate(both[0] + both[1], count, order)
    return found


def _initial(to: EmissionState, node: Node, place: int, x: Term) -> Term:
    """Return initial states as [directions, batch, hidden], zeros where none are given."""
    value = node.input(place)
    if value is not None:
        return term(to, value)
    hidden = _constant(to, node.input(2)).shape[-1]
    batch = sizes_of(node.input(0))[1]  # type: ignore[arg-type]  # required
    if isinstance(batch, int):
        return Term(to, np.zeros((_directions(node), batch, hidden), x.dtype), x.dtype)
    sizes = to.emit("shape", x=x.operand)
    open_size = to.emit("slice_by_index", x=sizes, begin=_ints(1), end=_ints(2))
    shape = to.emit("concat", values=(_ints(_directions(node)), open_size, _ints(hidden)), axis=0)
    return Term(to, to.emit("fill", shape=shape, value=x.number(0)), x.dtype)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _way(initial: Term, way: int) -> Term:
    """Return the states of one direction as [batch, hidden]."""
    if isinstance(initial.operand, np.ndarray):
        return Term(initial.to, initial.operand[way], initial.dtype)
    return initial.cut(0, way, way + 1, 3).do("squeeze", axes=_ints(0))


def _flat(initial: Term, count: int) -> Term:
    """Return states as MIL's bidirectional layers take them: directions side by side, [batch, directions * hidden]."""
    return _way(initial, 0) if count == 1 else joined([_way(initial, way) for way in range(count)], 1)


def _lstm(to: EmissionState, node: Node) -> list[Operand]:
    x, count = first(to, node), _directions(node)
    names = _activations(node)
    assert names is not None, "_recurs_as_lowered was asked"
    inputs: dict[str, Operand] = {"direction": node.string_attribute("direction", "forward"), "output_sequence": True}
    for way, suffix in zip(range(count), ("", "_back"), strict=False):
        inputs.update({f"{name}{suffix}": value for name, value in _weights(to, node, way, _LSTM_ORDER).items()})
        if node.input(7) is not None:
            peepholes = np.split(_constant(to, node.input(7))[way], 3)  # input, output, forget
            inputs[f"peephole{suffix}"] = np.concatenate([peepholes[place] for place in (0, 2, 1)])
    for name, activation in zip(("recurrent_activation", "cell_activation", "activation"), names, strict=True):
        inputs[name] = _MIL_NAMES[activation]
    h, c = (_flat(_initial(to, node, place, x), count) for place in (5, 6))
    results = to.emit_many("lstm", 3, x=x.operand, initial_h=h.operand, initial_c=c.operand, **inputs)
    sequence, *states = (Term(to, each, x.dtype) for each in results)
    return [_sequence(node, sequence, count).operand, *(_states(node, each, count).operand for each in states)]


def _sequence(node: Node, sequence: Term, count: int) -> Term:
    """Return [steps, batch, directions * hidden] as ONNX has it: [steps, directions, batch, hidden]."""
    return _by_direction(node, sequence, count, 1)


def _states(node: Node, states: Term, count: int) -> Term:
    """Return [batch, directions * hidden] as ONNX has it: [directions, batch, hidden]."""
    return _by_direction(node, states, count, 0)


def _by_direction(node: Node, term: Term, count: int, axis: int) -> Term:
    """Return values with the directions, which their last axis holds, as an axis in front of the batch's."""
    if count == 1:
        return term.do("expand_dims", axes=_ints(axis))
    hidden = sizes_of(node.inputs[2])[-1]  # type: ignore[arg-type]  # required
    assert isinstance(hidden, int), "a constant"
    last = axis + 1
    halves = [term.cut(last, way * hidden, (way + 1) * hidden, last + 1) for way in (0, 1)]
    return joined([half.do("expand_dims", axes=_ints(axis)) for half in halves], axis)


def _rnn(to: EmissionState, node: Node) -> list[Operand]:
    x, count = first(to, node), _directions(node)
    names = _activations(node)
    assert names is not None, "_recurs_as_lowered was asked"
    initial, sequences, states = _initial(to, node, 5, x), [], []
    for way in range(count):
        reverse = way == 1 or node.string_attribute("direction", "forward") == "reverse"
        sequence, last = to.emit_many(
            "rnn", 2, x=x.operand, initial_h=_way(initial, way).operand, **_weights(to, node, way, (0,)),
            direction="reverse" if reverse else "forward", output_sequence=True, activation=_MIL_NAMES[names[0]],
        )  # fmt: skip
        sequences.append(Term(to, sequence, x.dtype).do("expand_dims", axes=_ints(1)))
        states.append(Term(to, last, x.dtype).do("expand_dims", axes=_ints(0)))
    return [joined(sequences, 1).operand, joined(states, 0).operand]


def _gru(to: EmissionState, node: Node) -> list[Operand]:
    x, count = first(to, node), _directions(node)
    initial, sequences, states = _initial(to, node, 5, x), [], []
    for way in range(count):
        reverse = way == 1 or node.string_attribute("direction", "forward") == "reverse"
        steps = _gru_steps(to, node, x, _way(initial, way), way, reverse)
        states.append(steps[0 if reverse else -1].do("expand_dims", axes=_ints(0)))
        sequences.append(joined([step.do("expand_dims", axes=_ints(0, 1)) for step in steps], 0))
    return [joined(sequences, 1).operand, joined(states, 0).operand]


def _gru_steps(to: EmissionState, node: Node, x: Term, h: Term, way: int, reverse: bool) -> list[Term]:
    """Return the hidden states [batch, hidden], in the order of the sequence."""
    names = _activations(node)
    assert names is not None, "_recurs_as_lowered was asked"
    f, g = names
    w, r = (_constant(to, node.input(place))[way] for place in (1, 2))
    hidden = r.shape[-1]
    bias = np.zeros(6 * hidden, w.dtype) if node.input(3) is None else _constant(to, node.input(3))[way]
    wb, rb = bias[: 3 * hidden], bias[3 * hidden :]
    gates, is_product_reset = 2 * hidden, bool(node.int_attribute("linear_before_reset", 0))
    length = sizes_of(node.input(0))[0]  # type: ignore[arg-type]  # required
    assert isinstance(length, int), "_gru_as_lowered was asked"
    found: dict[int, Term] = {}
    for at in reversed(range(length)) if reverse else range(length):
        step = x.cut(0, at, at + 1, 3).do("squeeze", axes=_ints(0)) @ w.T + wb
        both = (step.cut(1, 0, gates, 2) + (h @ r[:gates].T + rb[:gates])).do(f)
        z, reset = both.cut(1, 0, hidden, 2), both.cut(1, hidden, gates, 2)
        weights, shift = r[gates:].T, rb[gates:]
        inner = reset * (h @ weights + shift) if is_product_reset else (reset * h) @ weights + shift
        new = (step.cut(1, gates, None, 2) + inner).do(g)
        h = (1.0 - z) * new + z * h
        found[at] = h
    return [found[at] for at in range(length)]


def _recurs_as_lowered(context: LoweringContext, node: Node) -> str | None:
    if _activations(node) is None:
        return f"{node.op_type} with other activations than Sigmoid, Tanh and Relu, alike in both directions"
    if node.attribute("clip") is not None:
        return f"{node.op_type} with clip is not lowered"
    lengths = node.input(4)
    if lengths is not None:
        given, steps = context.constant(lengths), sizes_of(node.input(0))[0]  # type: ignore[arg-type]  # required
        if given is None or not isinstance(steps, int) or (given != steps).any():
            return f"{node.op_type} over sequences of different lengths is not lowered"
    return None


def _gru_as_lowered(context: LoweringContext, node: Node) -> str | None:
    length = sizes_of(node.input(0))[0]  # type: ignore[arg-type]  # required
    if isinstance(length, int) and length <= MAX_STEPS:
        return None
    return f"GRU is written out step by step: over {length} steps it is not (known, and at most {MAX_STEPS}, would be)"


_LAID_OUT = only_attributes(layout=0, input_forget=0)

RECURRENT: Mapping[str, Rule] = {
    "LSTM": Rule(
        _lstm, FLOATS, beforehand=(1, 2, 3, 4, 7), conditions=(_LAID_OUT, _recurs_as_lowered), required=3, outputs=3
    ),
    "RNN": Rule(
        _rnn, FLOATS, beforehand=(1, 2, 3, 4), conditions=(_LAID_OUT, _recurs_as_lowered), required=3, outputs=2
    ),
    "GRU": Rule(
        _gru, FLOATS, beforehand=(1, 2, 3, 4), conditions=(_LAID_OUT, _recurs_as_lowered, _gru_as_lowered),
        required=3, outputs=2,
    ),
}  # fmt: skip
"""Rules by operator."""
