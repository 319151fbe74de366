"""The pattern language: what a piece of a graph must look like, written as nested calls.

    x, y = var("x"), var("y")
    half = op("Mul", op("Add", x, is_scalar(1.0)), is_scalar(0.5))     # (x + 1) * 0.5, operands in either order

A pattern describes values. ``op`` is an operator's first output (``.output(i)`` another one); ``var`` binds any
value to a name, and the same name twice must be the same value; ``constant`` and ``is_scalar`` need fixed constants;
``optional`` also accepts an absent input; ``one_of`` tries alternatives in order. A pattern is immutable data: the
matcher does the work. An object used twice in one pattern stands for one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "Sum", "Max", "Min", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)


@dataclass(frozen=True, eq=False)
class ValuePattern:
    """Base of all patterns; ``name`` is the key of what it matched in the ``Match``."""

    name: str | None = None


@dataclass(frozen=True, eq=False)
class Variable(ValuePattern):
    """Any present value for which ``where`` holds."""

    where: Callable[[Value], bool] | None = None


@dataclass(frozen=True, eq=False)
class ConstantPattern(ValuePattern):
    """A value with a fixed constant for which ``where`` holds; ``size`` is how many elements those have, if known."""

    where: Callable[[Constant], bool] | None = None
    size: int | None = None


@dataclass(frozen=True, eq=False)
class Optional(ValuePattern):
    """An absent input, or one that matches ``inner``."""

    inner: ValuePattern = field(default_factory=Variable)


@dataclass(frozen=True, eq=False)
class OneOf(ValuePattern):
    """The first of several alternatives that leads to a whole match."""

    alternatives: tuple[ValuePattern, ...] = ()


@dataclass(frozen=True, eq=False)
class OpPattern(ValuePattern):
    """The first output of an operator. ``name`` names the node; see ``op`` for the other fields."""

    op_types: tuple[str, ...] = ()
    inputs: tuple[ValuePattern, ...] = ()
    domain: str = ""
    since: int = 1
    until: int | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    where: Callable[[Node], bool] | None = None
    is_commutative: bool = False
    is_shared: bool = False
    has_more_inputs: bool = False

    def output(self, index: int, name: str | None = None) -> OutputPattern:
        """Return the pattern of another output of the same node."""
        return OutputPattern(name, self, index)


@dataclass(frozen=True, eq=False)
class OutputPattern(ValuePattern):
    """Output ``index`` of the node that ``producer`` matches."""

    producer: OpPattern = field(default_factory=OpPattern)
    index: int = 0


Pattern = ValuePattern | tuple[ValuePattern, ...]  # a tuple: several outputs, the first one leads the search


def var(name: str | None = None, where: Callable[[Value], bool] | None = None) -> Variable:
    """Return a pattern for any present value."""
    return Variable(name, where)


def constant(name: str | None = None, where: Callable[[Constant], bool] | None = None) -> ConstantPattern:
    """Return a pattern for any fixed constant (one that no caller can override)."""
    return ConstantPattern(name, where)


def is_scalar(*values: float, name: str | None = None, relative: float = 1e-3) -> ConstantPattern:
    """Return a pattern for a constant of one element near one of ``values``.

    ``relative`` allows for constants that were rounded to half precision before export (2**-11 off).
    """

    def near(found: Constant) -> bool:
        if found.size != 1 or not (found.dtype.is_float or found.dtype.is_integer):
            return False
        number = float(found.array().reshape(-1)[0])
        return any(abs(number - value) <= relative * abs(value) for value in values)

    return ConstantPattern(name, near, 1)


def optional(inner: ValuePattern) -> Optional:
    """Return a pattern that also accepts an absent input."""
    return Optional(None, inner)


def one_of(*alternatives: ValuePattern, name: str | None = None) -> OneOf:
    """Return a pattern that accepts any of several; ``name`` binds the value that was accepted."""
    return OneOf(name, tuple(alternatives))


def op(
    op_type: str | tuple[str, ...],
    *inputs: ValuePattern,
    name: str | None = None,
    domain: str = "",
    since: int = 1,
    until: int | None = None,
    attributes: Mapping[str, object] | None = None,
    where: Callable[[Node], bool] | None = None,
    commutative: bool | None = None,
    shared: bool = False,
    more_inputs: bool = False,
) -> OpPattern:
    """Return a pattern for a node.

    Args:
        op_type: the operator, or several that will do.
        inputs: one pattern an input. Inputs beyond them must be absent, unless ``more_inputs``.
        name: key of the node in ``Match.node``.
        domain: the operator's domain.
        since: the lowest opset at which the pattern holds.
        until: the highest one.
        attributes: name -> the value it must have, or a predicate on the value (``None`` when it is absent).
        where: a predicate on the node.
        commutative: try two inputs in both orders; by default for the operators that are.
        shared: the node may have readers outside the match (it then stays when the match is replaced).
        more_inputs: the node may have more inputs than are listed.
    """
    types = (op_type,) if isinstance(op_type, str) else tuple(op_type)
    if commutative is None:
        commutative = len(inputs) == 2 and domain == "" and all(t in COMMUTATIVE for t in types)
    return OpPattern(
        name, types, tuple(inputs), domain, since, until, attributes or {}, where, commutative, shared, more_inputs
    )


def roots_of(pattern: Pattern) -> tuple[ValuePattern, ...]:
    """Return the outputs that a pattern describes."""
    return pattern if isinstance(pattern, tuple) else (pattern,)


def leading_op_types(pattern: Pattern) -> frozenset[str]:
    """Return the operators at which a match can start, for indexing.

    Raises:
        TypeError: the leading output is a variable or constant, so a match could start anywhere.
    """
    return _op_types(roots_of(pattern)[0])


def needed_op_types(pattern: Pattern) -> frozenset[frozenset[str]]:
    """Return sets of operators of which a graph must have one each for the pattern to match anywhere in it."""
    known: dict[ValuePattern, frozenset[frozenset[str]]] = {}  # large patterns share parts many times over
    return frozenset().union(*(_needed(root, known) for root in roots_of(pattern)))


def _needed(pattern: ValuePattern, known: dict[ValuePattern, frozenset[frozenset[str]]]) -> frozenset[frozenset[str]]:
    if pattern not in known:
        known[pattern] = _found_needed(pattern, known)
    return known[pattern]


def _found_needed(
    pattern: ValuePattern, known: dict[ValuePattern, frozenset[frozenset[str]]]
) -> frozenset[frozenset[str]]:
    if isinstance(pattern, OpPattern):
        return frozenset({frozenset(pattern.op_types)}).union(*(_needed(each, known) for each in pattern.inputs))
    if isinstance(pattern, OutputPattern):
        return _needed(pattern.producer, known)
    if isinstance(pattern, OneOf) and pattern.alternatives:
        shared = frozenset.intersection(*(_needed(each, known) for each in pattern.alternatives))
        are_made = all(isinstance(each, OpPattern | OutputPattern) for each in pattern.alternatives)
        return shared | {_op_types(pattern)} if are_made else shared
    return frozenset()


def _op_types(pattern: ValuePattern) -> frozenset[str]:
    if isinstance(pattern, OpPattern):
        return frozenset(pattern.op_types)
    if isinstance(pattern, OutputPattern):
        return frozenset(pattern.producer.op_types)
    if isinstance(pattern, OneOf):
        return frozenset().union(*map(_op_types, pattern.alternatives))
    raise TypeError(f"a pattern must start with an operator, not with {type(pattern).__name__}")
