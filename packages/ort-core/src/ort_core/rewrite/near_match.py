"""Near matches: where a pattern fits all but one part, or is read from outside, and what stands in its way.

Far slower than ``find_match``: for reports that somebody asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match, Search, constant_of
from ort_core.rewrite.pattern import (
    ConstantPattern,
    OneOf,
    OpPattern,
    OutputPattern,
    Pattern,
    ValuePattern,
    roots_of,
)

MIN_FITTING = 2  # operators that fit before a miss is near: one alone is no sign of what was meant


def find_near_match(model: Model, pattern: Pattern, node: Node) -> Rejection | None:
    """Return what keeps a pattern from fitting at a node where all but one of its operators do; ``None`` elsewhere.

    Alternatives of the whole pattern are judged one by one, so that a long one is not taken for near by the length
    of a short one. The first that is near is told.
    """
    alternatives = pattern.alternatives if isinstance(pattern, OneOf) else (pattern,)
    if _NearSearch(model, node).run(roots_of(pattern)) is not None:
        return None
    found = (_near_alternative(model, each, node) for each in alternatives)
    return next((near for near in found if near is not None), None)


def _near_alternative(model: Model, pattern: Pattern, node: Node) -> Rejection | None:
    search = _NearSearch(model, node)
    roots = roots_of(pattern)
    if search.run(roots) is not None or search.reason is None or search.depth < MIN_FITTING:
        return None
    counts: dict[int, int] = {}
    wanted = sum(_num_operators(root, counts) for root in roots)
    return Rejection(search.reason, node) if search.depth >= wanted - 1 else None


class _NearSearch(Search):
    """A search that remembers the failure that came latest, by the number of operators that fitted until then."""

    def __init__(self, model: Model, root: Node) -> None:
        super().__init__(model, root)
        self.depth, self.reason = 0, None

    reason: str | None

    def value(self, pattern: ValuePattern, value: Value | None) -> Iterator[None]:
        """Match one value; where nothing of it fits, note what was expected and found."""
        has_fitted = False
        for _ in super().value(pattern, value):
            has_fitted = True
            yield
        if not has_fitted and isinstance(pattern, (OpPattern, OutputPattern, ConstantPattern)):
            self._note(f"expected {_wanted(pattern)}, found {_found(pattern, value)}")

    def result(self, roots: tuple[ValuePattern, ...], output: Value) -> Match | None:
        """Return the match; where a value inside it is read from outside, note which."""
        match = super().result(roots, output)
        if match is None:
            read = ", ".join(dict.fromkeys(self._read_outside(output))) or "an inner node"
            self._note(f"all operators fit, but the result of {read} inside it is read from outside, too")
        return match

    def _note(self, reason: str) -> None:
        if len(self.nodes) > self.depth:
            self.depth, self.reason = len(self.nodes), reason

    def _read_outside(self, output: Value) -> Iterator[str]:
        members = set(self.nodes.values())
        for node in members:
            for value in node.present_outputs():
                outside = value.is_graph_output or any(reader not in members for reader, _ in value.uses)
                if value is not output and outside:
                    yield node.op_type


def _num_operators(pattern: ValuePattern, counts: dict[int, int]) -> int:
    """Return how many operators a pattern has, of alternatives the fewest.

    ``counts`` keeps what is known by the identity of patterns: parts that many others share are counted through once.
    """
    known = counts.get(id(pattern))
    if known is not None:
        return known
    found = 0
    if isinstance(pattern, OneOf):
        found = min((_num_operators(each, counts) for each in pattern.alternatives), default=0)
    else:
        producer = pattern.producer if isinstance(pattern, OutputPattern) else pattern
        if isinstance(producer, OpPattern):
            found = 1 + sum(_num_operators(each, counts) for each in producer.inputs)
    counts[id(pattern)] = found
    return found


def _wanted(pattern: ValuePattern) -> str:
    if isinstance(pattern, OutputPattern):
        return f"output {pattern.index} of {_wanted(pattern.producer)}"
    if isinstance(pattern, OpPattern):
        return " or ".join(pattern.op_types)
    return "a constant" + (" of certain values" if isinstance(pattern, ConstantPattern) and pattern.where else "")


def _found(pattern: ValuePattern, value: Value | None) -> str:
    if value is None:
        return "nothing"
    constant = constant_of(value)
    if constant is not None:
        return f"the constant {constant.array().reshape(-1)[0]!s}" if constant.size == 1 else "a constant"
    if value.producer is None:
        return "an input"
    wanted = pattern.producer if isinstance(pattern, OutputPattern) else pattern
    fits = isinstance(wanted, OpPattern) and value.producer.op_type in wanted.op_types
    more = " whose attributes, inputs or opset do not fit" if fits else ""
    return f"{value.producer.qualified_name.removeprefix('ai.onnx::')}{more}"
