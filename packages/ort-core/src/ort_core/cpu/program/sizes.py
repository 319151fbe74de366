"""Sizes at run time: which are read off the inputs, and programs that evaluate the others.

A size is a polynomial over atoms. An atom is given when it can be read off an input: the input's size is the atom, or
is the atom (or minus it) plus what is given already, as the ``N`` of an input of size ``N - 2``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.plugin import frozen
from ort_core.plugin.ir import Call, DataType, KnownDim, Symbol, SymbolicDim

if TYPE_CHECKING:
    import numpy.typing as npt

Types = Sequence[tuple[DataType, tuple[KnownDim, ...]]]
PlainSizes = tuple[Sequence[str], Sequence[int], str, Sequence[tuple[int, int]]]
ALIGNMENT = 64  # bytes, of whatever lies in an arena


def _broadcast(*sizes: int) -> int:
    return next((size for size in sizes if size != 1), 1)


_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min, "broadcast": _broadcast,
}  # fmt: skip


@frozen
class Binding:
    """An atom, by its key, that is read off an axis of an input: that size is ``sign * atom + rest``."""

    atom: str
    index: int
    axis: int
    sign: int = 1
    rest: KnownDim = 0

    def solve(self, size: int, sizes: Mapping[str, int]) -> int:
        """Return the atom's value."""
        return self.sign * (size - evaluate(self.rest, sizes))


def bindings(types: Types) -> list[Binding]:
    """Return what is read off inputs of these types, in an order in which each can be solved."""
    places = [(size, i, axis) for i, (_, shape) in enumerate(types) for axis, size in enumerate(shape)]
    found: dict[str, Binding] = {}
    for size, index, axis in places:
        if isinstance(size, SymbolicDim) and size.name is not None:
            found.setdefault(size.name, Binding(size.name, index, axis))
    waiting = [(s, i, a) for s, i, a in places if isinstance(s, SymbolicDim)]
    while True:
        count = len(found)
        for size, index, axis in waiting:
            solved = _solved(size, found)
            if solved is not None:
                atom, sign, rest = solved
                found[atom] = Binding(atom, index, axis, sign, rest)
        if len(found) == count:
            return list(found.values())


def _solved(size: SymbolicDim, known: Collection[str]) -> tuple[str, int, KnownDim] | None:
    """Return the one atom of a size that is not known yet, its sign and the rest, where the size is linear in it."""
    unknown = [(m, c) for m, c in size.terms if not all(_is_given(atom, known) for atom, _ in m)]
    if len(unknown) != 1:
        return None
    (monomial, sign), *_ = unknown
    if sign not in (1, -1) or len(monomial) != 1 or monomial[0][1] != 1:
        return None
    return _key(monomial[0][0]), sign, size - SymbolicDim(((monomial, sign),))


def is_evaluable(size: KnownDim, known: Collection[str]) -> bool:
    """Return whether a size can be evaluated when atoms are known."""
    return isinstance(size, int) or all(_is_given(atom, known) for m, _ in size.terms for atom, _ in m)


def _key(atom: Symbol | Call) -> str:
    """Return a name, or the text of a call behind a mark that no name has: models name sizes ``n//2``, too."""
    return atom.name if isinstance(atom, Symbol) else f"\0{atom}"


def _is_given(atom: Symbol | Call, known: Collection[str]) -> bool:
    if _key(atom) in known:
        return True
    return isinstance(atom, Call) and all(is_evaluable(argument, known) for argument in atom.arguments)


def evaluate(size: KnownDim, sizes: Mapping[str, int]) -> int:
    """Return a size's value when atoms, named sizes or calls, have the given values.

    Raises:
        ZeroDivisionError: a divisor is zero.
        KeyError: a named size has no value.
    """
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        for atom, power in monomial:
            if isinstance(atom, Symbol) or _key(atom) in sizes:
                value = sizes[_key(atom)]
            else:
                function = _FUNCTIONS[atom.function]
                value = function(*(evaluate(argument, sizes) for argument in atom.arguments))
            coefficient *= value**power
        total += coefficient
    return total


@functools.lru_cache(512)
def _function_of(source: str) -> Callable[..., list[int]]:
    """Return the function of a text, one for equal texts: bodies of control flow and parts of a model are alike."""
    scope: dict[str, Callable[..., list[int]]] = {}
    exec(compile(source, "<sizes>", "exec"), {"max": max, "min": min, "broadcast": _broadcast}, scope)
    return scope["evaluate"]


class SizeProgram:
    """Evaluates a list of sizes; distinct expressions are computed once.

    Args:
        sizes: what to evaluate.
        given: the keys of calls that have values of their own, as named sizes have.
    """

    def __init__(self, sizes: Sequence[KnownDim], given: Collection[str] = ()) -> None:
        self._given = frozenset(given)
        self._names: dict[str, str] = {}
        distinct: dict[KnownDim, int] = {}
        lines: list[str] = []
        self._fixed = [size if isinstance(size, int) else 0 for size in sizes]
        self._symbolic: list[tuple[int, int]] = []  # (place, number of the distinct expression)
        symbolic = [(place, size) for place, size in enumerate(sizes) if not isinstance(size, int)]
        for place, size in symbolic:
            if size not in distinct:
                distinct[size] = len(distinct)
                lines.append(f"        {self._text(size)},")
            self._symbolic.append((place, distinct[size]))
        parameters = ", ".join(self._names.values())
        self._source = "\n".join([f"def evaluate({parameters}):", "    return [", *lines, "    ]"])
        self._prepare()

    @classmethod
    def from_data(cls, data: PlainSizes) -> SizeProgram:
        """Return the program that ``to_data`` described."""
        program = cls(())
        names, fixed, program._source, symbolic = data
        program._names = {name: f"n{number}" for number, name in enumerate(names)}
        program._fixed, program._symbolic = list(fixed), [(place, number) for place, number in symbolic]
        program._prepare()
        return program

    def to_data(self) -> PlainSizes:
        """Return the program as lists of numbers and text: names, fixed sizes, source, and where its results go."""
        return list(self._names), self._fixed, self._source, self._symbolic

    def _prepare(self) -> None:
        self._function = _function_of(self._source)
        self._fixed_words = np.array(self._fixed, np.int64)
        columns = np.array(self._symbolic, np.int64).reshape(-1, 2)
        self._places, self._numbers = columns[:, 0].copy(), columns[:, 1].copy()

    def evaluate(self, sizes: Mapping[str, int]) -> list[int]:
        """Return all values under an assignment of the named sizes."""
        values, found = self._fixed.copy(), self._distinct(sizes)
        for place, number in self._symbolic:
            values[place] = found[number]
        return values

    def table(self, sizes: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """Return all values as a new array of 64-bit words.

        Raises:
            OverflowError: a value needs more bits.
        """
        values = self._fixed_words.copy()
        values[self._places] = np.array(self._distinct(sizes), np.int64)[self._numbers]
        return values

    def _distinct(self, sizes: Mapping[str, int]) -> list[int]:
        return self._function(*[sizes[name] for name in self._names])

    def _text(self, size: KnownDim) -> str:
        if isinstance(size, int):
            return str(size)
        terms = []
        for monomial, coefficient in size.terms:
            factors = [str(coefficient)] if coefficient != 1 or not monomial else []
            for atom, power in monomial:
                factors.extend([self._atom(atom)] * power)
            terms.append("*".join(factors))
        return f"({' + '.join(terms)})"

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol) or _key(atom) in self._given:
            return self._names.setdefault(_key(atom), f"n{len(self._names)}")
        arguments = [self._text(a) for a in atom.arguments]
        sign = {"floordiv": "//", "mod": "%"}.get(atom.function)
        return f"({f' {sign} '.join(arguments)})" if sign else f"{atom.function}({', '.join(arguments)})"


def arena_offsets(nbytes: Sequence[int], per_thread: Sequence[bool], threads: int) -> tuple[list[int], int]:
    """Return where slots of these sizes begin in an arena, one behind the other, and how large it is."""
    offsets, at = [], 0
    for size, each in zip(nbytes, per_thread):
        offsets.append(at)
        total = size * threads if each else size
        at += -(-total // ALIGNMENT) * ALIGNMENT
    return offsets, at
