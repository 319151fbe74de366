"""Cells: what one step of a recurrent layer makes of its input's share, the products with its state, and the state.

    RNN   H = f(s)
    GRU   z, r = f(s)   h = g(s + r * (H Rh' + b))  or  g(s + (r * H) Rh')   H = (1 - z) * h + z * H
    LSTM  i, o, f = f(s)   c = g(s)   C = f * C + i * c   H = o * h(C)

Each is written once, as expressions; they are printed into the kernel that walks a whole sequence, and into kernels
of single steps. Gates are stored in the order of the standard: z r h, and i o f c; peepholes are i o f.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, meaning_of
from ort_ep_cuda.lowering.writing.double_math import DOUBLE_MEANINGS

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_PARAMETERS = {  # functions that take parameters, with onnxruntime's defaults in the order alpha, beta
    "Affine": (0.0, 0.0), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,), "ScaledTanh": (0.0, 0.0),
    "ThresholdedRelu": (0.0,),
}  # fmt: skip
_KNOWN = {name.lower(): name for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh", *_PARAMETERS)}
Function = Callable[[Scalar], Scalar]


@dataclass(frozen=True, slots=True)
class CellInputs:
    """What a step reads of one hidden unit.

    ``shares`` are the input's, one for each gate; ``sums`` the products of the state with the recurrent weights;
    ``input_bias`` and ``state_bias`` belong to gates, too. Biases and peepholes are empty where there are none.
    """

    shares: Sequence[Scalar]
    sums: Sequence[Scalar]
    input_bias: Sequence[Scalar]
    state_bias: Sequence[Scalar]
    hidden: Scalar
    memory: Scalar
    peepholes: Sequence[Scalar] = ()

    def gate(self, index: int) -> Scalar:
        """Return what a gate's function is applied to."""
        total = self.shares[index] + self.sums[index]
        return total + self.input_bias[index] + self.state_bias[index] if self.input_bias else total


@dataclass(frozen=True, slots=True)
class Cell:
    """The step of one direction of a node.

    ``is_reset_first``: of a GRU, whether the state is reset before the product with the candidate's weights, which is
    a product of its own then.
    """

    op_type: str
    functions: tuple[Function, ...]
    clip: float
    couples_gates: bool
    is_reset_first: bool

    @property
    def gates(self) -> int:
        """How many gates there are."""
        return GATES[self.op_type]

    def reset(self, given: CellInputs) -> Scalar:
        """Return the state of a GRU as its candidate sees it; reads the sums of its first two gates."""
        return self._applied(0, given.gate(1)) * given.hidden

    def memory(self, given: CellInputs) -> Scalar:
        """Return the new memory of an LSTM."""
        into = self._applied(0, self._peeped(given, 0, given.memory))
        forget = 1.0 - into if self.couples_gates else self._applied(0, self._peeped(given, 2, given.memory))
        return forget * given.memory + into * self._applied(1, given.gate(3))

    def hidden(self, given: CellInputs) -> Scalar:
        """Return the new state; of an LSTM, ``given.memory`` is the new memory."""
        if self.op_type == "RNN":
            return self._applied(0, given.gate(0))
        if self.op_type == "LSTM":
            return self._applied(0, self._peeped(given, 1, given.memory)) * self.functions[2](given.memory)
        update = self._applied(0, given.gate(0))
        if self.is_reset_first:
            candidate = self._applied(1, given.gate(2))
        else:
            reset = self._applied(0, given.gate(1))
            recurrent = given.sums[2] + given.state_bias[2] if given.state_bias else given.sums[2]
            share = given.shares[2] + given.input_bias[2] if given.input_bias else given.shares[2]
            candidate = self._applied(1, share + reset * recurrent)
        return (1.0 - update) * candidate + update * given.hidden

    def _peeped(self, given: CellInputs, index: int, memory: Scalar) -> Scalar:
        return given.gate(index) + given.peepholes[index] * memory if given.peepholes else given.gate(index)

    def _applied(self, number: int, x: Scalar) -> Scalar:
        bounded = binary("min", binary("max", x, -self.clip), self.clip) if self.clip > 0 else x
        return self.functions[number](bounded)


def directions_of(node: Node) -> int:
    """Return how many directions a node has."""
    return 2 if node.string_attribute("direction", "forward") == "bidirectional" else 1


def find_cells(node: Node) -> tuple[Cell, ...] | Rejection:
    """Return the cell of each direction; why there is none where a function is unknown."""
    count, functions = len(_DEFAULTS[node.op_type]), _functions(node)
    if isinstance(functions, Rejection):
        return functions
    clip = node.float_attribute("clip", 0.0)
    return tuple(
        Cell(
            node.op_type, functions[d * count : (d + 1) * count], clip, node.int_attribute("input_forget", 0) == 1,
            node.op_type == "GRU" and node.int_attribute("linear_before_reset", 0) == 0,
        )
        for d in range(directions_of(node))
    )  # fmt: skip


def _functions(node: Node) -> tuple[Function, ...] | Rejection:
    wanted = len(_DEFAULTS[node.op_type]) * directions_of(node)
    given = node.attributes["activations"].value if "activations" in node.attributes else ()
    names = [str(name) for name in given] or list(_DEFAULTS[node.op_type]) * directions_of(node)  # type: ignore[attr-defined]  # strings
    if len(names) < wanted:
        return Rejection(f"{node.op_type} with {len(names)} activations where {wanted} are needed is not generated")
    parameters = tuple(iter(_numbers(node, name)) for name in ("activation_alpha", "activation_beta"))
    found: list[Function] = []
    for name in names[:wanted]:
        known = _KNOWN.get(name.lower())
        if known is None:
            return Rejection(f"{node.op_type} with the activation {name!r} is not generated")
        defaults = _PARAMETERS.get(known, ())
        chosen = [next(given, default) for given, default in zip(parameters, defaults, strict=False)]
        found.append(_function(known, chosen))
    return tuple(found)


def _numbers(node: Node, name: str) -> Iterator[float]:
    values = node.attributes[name].value if name in node.attributes else ()
    yield from (float(value) for value in values)  # type: ignore[attr-defined]  # floats


def _function(name: str, parameters: Sequence[float]) -> Function:
    if name == "Affine":
        return lambda x: x * parameters[0] + parameters[1]
    if name == "ScaledTanh":
        return lambda x: _meaning("Tanh", x * parameters[1], ()) * parameters[0]
    return lambda x: _meaning(name, x, parameters)


def _meaning(name: str, x: Scalar, parameters: Sequence[float]) -> Scalar:
    attributes = dict(zip(("alpha", "beta"), parameters, strict=False))
    if x.dtype is DataType.DOUBLE and name in DOUBLE_MEANINGS:
        found = DOUBLE_MEANINGS[name]([x], attributes)
    else:
        found = meaning_of("", name, [x], attributes)
    assert isinstance(found, Scalar), found  # each of _KNOWN has a meaning for float32 and float64
    return found
