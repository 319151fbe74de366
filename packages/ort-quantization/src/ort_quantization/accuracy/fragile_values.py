"""Which values of a model 8 bits would ruin, so that the nodes around them stay in float.

Four kinds lose all they tell, however good the samples are:

- what a normalization divides by. The variance of E[x²] - E[x]² is a small difference of large numbers, and the
  reciprocal of its root makes the rounding of a small number that of all results. They are found by the graph: from
  what Sqrt, Reciprocal, Pow and a divisor read back to the reduction, and on to where the factor is applied.
- powers inside an activation that is written out, as Gelu by Tanh is. A cube needs three times the bits of what it is
  the cube of: where 8 bits tell the greatest apart, the function of all others is that of zero. They are found by the
  graph: from a square or power on to the Tanh, Erf or Sigmoid.
- what a mask was added to or chosen for. With -1e9 at one end, a step is larger than all that is no mask. They are
  found by the range.
- what has outliers, as a few values of language models do: one number of 3,000 among numbers of 0.2. They are found by
  the range beside the mean square. Shares that a Softmax gives do not count: most of them are small, and may be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto

from ort_quantization.calibration.tensor_ranges import TensorData

NORMALIZER = "a normalization divides by what follows from it"
POWER = "it is a power inside an activation function, or a sum with one"

_MASK_FROM = 1e4  # the smallest number that is a mask in exported models; activations of one sign end far below
_SENTINEL_FROM = 1e30  # nothing but the lowest number of a type: multiples of its step may overflow
_LEAST_SIGNAL = 10.0  # beside the noise of rounding, as powers: 10 dB; values without outliers have 20 to 40
_STEPS = 4  # that the smaller side of a range has at least
_MOVES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Identity", "Cast"})
_POINTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Clip", "Abs", "Neg", "Relu", "Sqrt", "Reciprocal"})
_PASSED = _MOVES | _POINTWISE | {"Pow", "Where"}
_REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "GlobalAveragePool"})
_POLYNOMIAL = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Pow", "Identity"})
_SATURATING = frozenset({"Tanh", "Erf", "Sigmoid"})
_BYTES = 256  # levels; 16 bits hold the cube of what 8 bits tell apart
_SUMMANDS = frozenset({"Mul", "Pow", "Abs", "Exp"})  # what a norm sums: squares, sizes, exponentials


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of a graph.

    Attributes:
        names: of initializers and results of Constant nodes.
        array_of: returns the numbers of one, ``None`` where it holds none.
    """

    names: frozenset[str]
    array_of: Callable[[str], np.ndarray | None]


def fragile_values(
    graph: GraphProto, ranges: Mapping[str, TensorData], levels_of: Callable[[str], int],
    constants: Constants,
) -> dict[str, str]:  # fmt: skip
    """Return the values that should stay in float, with the reason of each.

    Args:
        graph: one graph; those inside its nodes are looked at on their own.
        ranges: what calibration found.
        levels_of: how many numbers the type has that a value would get; 0 where its choice is the caller's.
        constants: of this graph.
    """
    powers = (name for name in _Powers(graph, constants).values() if levels_of(name) <= _BYTES)
    found = {**dict.fromkeys(powers, POWER), **dict.fromkeys(_Norms(graph, constants).values(), NORMALIZER)}
    shares = {node.output[0] for node in graph.node if node.op_type == "Softmax"}
    for name, data in ranges.items():
        if not levels_of(name) or data.is_empty_range:
            continue
        reason = _masked(data, levels_of(name)) or (None if name in shares else _outlying(data, levels_of(name)))
        if reason is not None:
            found[name] = reason
    return {name: reason for name, reason in found.items() if levels_of(name)}


def _masked(data: TensorData, levels: int) -> str | None:
    """Return why a range leaves nothing of the numbers that are no mask, ``None`` where it does."""
    if hasattr(data, "hist_edges"):  # of all numbers: a method may have cut the range
        low, high = float(np.min(data.hist_edges)), float(np.max(data.hist_edges))
    elif hasattr(data, "lowest"):
        low, high = float(np.min(data.lowest)), float(np.max(data.highest))
    else:
        return None
    large, small = max(-low, high), min(-low, high)
    if large < _MASK_FROM:
        return None
    step = (high - low) / (levels - 1)
    if large >= _SENTINEL_FROM or 0 < small < _STEPS * step:
        return f"its numbers reach from {low:.4g} to {high:.4g}, as those of masks do: a step would be {step:.3g}"
    return None


def _outlying(data: TensorData, levels: int) -> str | None:
    """Return why a range leaves nothing of most numbers, ``None`` where it does or no moments are known."""
    if hasattr(data, "hist") or not hasattr(data, "std") or not hasattr(data, "lowest"):
        return None
    low, high = min(float(np.min(data.lowest)), 0.0), max(float(np.max(data.highest)), 0.0)
    step, square = (high - low) / (levels - 1), float(data.avg) ** 2 + float(data.std) ** 2
    if square >= _LEAST_SIGNAL * step**2 / 12:
        return None
    return (
        f"its numbers reach from {low:.4g} to {high:.4g}, and most are far smaller (a root mean square of "
        f"{square**0.5:.3g}): a step would be {step:.3g}"
    )


class _Norms:
    """Finds what normalizations divide by.

    Args:
        graph: where they are.
        constants: of the graph.
    """

    def __init__(self, graph: GraphProto, constants: Constants) -> None:
        self._constants = constants
        self._nodes = list(graph.node)
        self._makers = {name: node for node in self._nodes for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in self._nodes:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._leads: dict[str, bool] = {}

    def values(self) -> set[str]:
        """Return the values between reductions and where the factors that follow from them are applied."""
        found: set[str] = set()
        for name in self._divisors():
            if self._comes_from_reduction(name):
                found |= set(self._back(name))
        return found | self._onward(found)

    def _divisors(self) -> Iterator[str]:
        for node in self._nodes:
            if node.op_type in ("Sqrt", "Reciprocal"):
                yield node.input[0]
            elif node.op_type == "Div" or (node.op_type == "Pow" and self._is_root(node)):
                yield node.input[1] if node.op_type == "Div" else node.input[0]

    def _is_root(self, node: NodeProto) -> bool:
        exponent = self._constants.array_of(node.input[1]) if node.input[1] in self._constants.names else None
        return exponent is not None and exponent.size == 1 and (exponent.item() < 0 or exponent.item() % 1 != 0)

    def _comes_from_reduction(self, name: str) -> bool:
        """Return whether a value follows from a reduction by pointwise operators only."""
        pending = [name]
        while pending:
            current = pending.pop()
            if current in self._leads:
                continue
            node = self._makers.get(current)
            if node is None or node.op_type not in _PASSED | _REDUCTIONS:
                self._leads[current] = False
                continue
            if node.op_type in _REDUCTIONS:
                self._leads[current] = True
                continue
            read = [each for each in node.input if each]
            unknown = [each for each in read if each not in self._leads]
            if unknown:
                pending += [current, *unknown]
            else:
                self._leads[current] = any(self._leads[each] for each in read)
        return self._leads[name]

    def _back(self, name: str) -> Iterator[str]:
        """Yield a value and those that it follows from, up to reductions and what they sum."""
        pending, seen = [name], set[str]()
        while pending:
            current = pending.pop()
            if current in seen or not self._comes_from_reduction(current):
                continue
            seen.add(current)
            yield current
            node = self._makers[current]
            if node.op_type not in _REDUCTIONS:
                pending += [each for each in node.input if each]
                continue
            summed = self._makers.get(node.input[0])
            if summed is not None and summed.op_type in _SUMMANDS and self._is_summand(summed):
                yield node.input[0]

    def _is_summand(self, node: NodeProto) -> bool:
        """Return whether what a node gives is made for the reduction: of one value, as squares are."""
        return sum(each not in self._constants.names for each in dict.fromkeys(node.input)) == 1

    def _onward(self, found: set[str]) -> set[str]:
        """Return what follows from divisors alone: roots, reciprocals, their products with constants."""
        pending, onward = list(found), set[str]()
        while pending:
            for node in self._readers.get(pending.pop(), []):
                is_alone = all(
                    name in found or name in onward or name in self._constants.names
                    for name in node.input
                    if name
                )  # fmt: skip
                if node.op_type in _PASSED and is_alone and node.output[0] not in found | onward:
                    onward.add(node.output[0])
                    pending.append(node.output[0])
        return onward


class _Powers:
    """Finds powers of a value that an activation function is written out with.

    Args:
        graph: where they are.
        constants: of the graph.
    """

    def __init__(self, graph: GraphProto, constants: Constants) -> None:
        self._nodes = list(graph.node)
        self._constants = constants
        self._readers: dict[str, list[NodeProto]] = {}
        for node in self._nodes:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)

    def values(self) -> set[str]:
        """Return powers, and what follows from them up to the function."""
        found: set[str] = set()
        for node in self._nodes:
            base = self._base_of(node)
            if base and node.output[0] not in found:
                found |= self._inside(base, node.output[0])
        return found

    def _base_of(self, node: NodeProto) -> str:
        """Return what a node gives a power of; nothing where it does not."""
        if node.op_type == "Mul":
            return self._squared(*node.input)
        if node.op_type != "Pow" or node.input[1] not in self._constants.names:
            return ""
        exponent = self._constants.array_of(node.input[1])
        return node.input[0] if exponent is not None and exponent.size == 1 and exponent.item() >= 2 else ""

    def _squared(self, first: str, second: str) -> str:
        """Return what a product is a power of: one factor, where the other is it or follows from it alone."""
        if first in self._constants.names or second in self._constants.names:
            return ""
        if first == second or second in self._polynomials(first):
            return first
        return second if first in self._polynomials(second) else ""

    def _inside(self, base: str, power: str) -> set[str]:
        """Return the values between a base and the functions that read a polynomial of it with its power."""
        makers = self._polynomials(base)
        ends = [node.input[0] for node in self._nodes if node.op_type in _SATURATING and node.input[0] in makers]
        found: set[str] = set()
        pending = ends
        while pending:
            name = pending.pop()
            if name in makers and name not in found:
                found.add(name)
                pending += makers[name].input
        return found if power in found else set()

    def _polynomials(self, base: str) -> dict[str, NodeProto]:
        """Return what follows from one value and constants alone by sums and products, with the node of each."""
        found: dict[str, NodeProto] = {}
        pending = [base]
        while pending:
            for node in self._readers.get(pending.pop(), []):
                is_alone = all(name == base or name in found or name in self._constants.names for name in node.input)
                if node.op_type in _POLYNOMIAL and is_alone and node.output[0] not in found:
                    found[node.output[0]] = node
                    pending.append(node.output[0])
        return found
