"""Sizes that grow: integers that remember how they follow from the sizes of inputs, while a program is lowered.

    past = 5  ->  past + 1 = 6, 64 * past = 320      each knows its formula beside its number

A lowering computes with them as with any integer. Where it asks a question of one (is it 1? is it the larger one?), the
answer is noted as a condition: the program holds for all sizes whose answers are the same. Whoever takes the number out
(a range, an array, a text) makes the size fixed, which is a condition, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, cast

Monomial = tuple[int, ...]  # numbers of atoms, sorted; one that is squared stands there twice
Polynomial = Mapping[Monomial, int]
SizeKey = tuple[tuple[Monomial, int], ...]


class CannotGrow(Exception):
    """A program cannot be one for all sizes: something in it is made for one size only."""


@dataclass(frozen=True, slots=True)
class _Atom:
    """What formulas are made of: a variable (by its number), or a function of two formulas."""

    name: str
    left: SizeKey = ()
    right: SizeKey = ()
    variable: int = 0


_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "variable": lambda left, right: 0,
    "quotient": lambda left, right: left // right,
    "min": min,
    "max": max,
}
_ANSWERS: Mapping[str, Callable[[int], bool]] = {"== 0": lambda n: n == 0, "< 0": lambda n: n < 0}


@dataclass(slots=True)
class Trace:
    """The variables of one lowering, and the conditions under which it holds.

    ``conditions`` tell, for a formula and a question, the answer that was given.
    """

    atoms: list[_Atom] = field(default_factory=list)
    conditions: dict[tuple[SizeKey, str], bool] = field(default_factory=dict)
    _numbers: dict[_Atom, int] = field(default_factory=dict)
    _values: list[int] = field(default_factory=list)
    _largest: list[int] = field(default_factory=list)
    _count: int = 0

    def variable(self, value: int, largest: int) -> int:
        """Return a new size of today's value; buffers and grids are made for ``largest``."""
        atom = _Atom("variable", variable=self._count)
        self._count += 1
        return self._sized({(self._number(atom, value, largest),): 1})

    def holds(self, atoms: Sequence[int]) -> bool:
        """Return whether the conditions hold for the values of atoms (``values_of``)."""
        return all(
            _ANSWERS[question](evaluated(key, atoms)) == said for (key, question), said in self.conditions.items()
        )

    def values_of(self, variables: Sequence[int]) -> list[int] | None:
        """Return the numbers of all atoms where the variables have these values; ``None`` where one has none."""
        found: list[int] = []
        for atom in self.atoms:
            if atom.name == "variable":
                found.append(variables[atom.variable])
                continue
            left, right = evaluated(atom.left, found), evaluated(atom.right, found)
            if atom.name == "quotient" and not right:
                return None
            found.append(_FUNCTIONS[atom.name](left, right))
        return found

    def ask(self, terms: Polynomial, question: str) -> bool:
        """Return what is said of a formula's number, and note it."""
        key = _key(terms)
        answer = _ANSWERS[question](evaluated(key, self._values))
        self.conditions.setdefault((key, question), answer)
        return answer

    def function(self, name: str, left: Polynomial, right: Polynomial) -> int:
        """Return a quotient, a minimum or a maximum of two formulas."""
        first, second = _key(left), _key(right)
        call = _FUNCTIONS[name]
        today, largest = (
            call(evaluated(first, numbers), evaluated(second, numbers) or int(name == "quotient"))
            for numbers in (self._values, self._largest)
        )
        return self._sized({(self._number(_Atom(name, first, second), today, largest),): 1})

    def number(self, terms: Polynomial) -> int:
        """Return a formula as an integer: a plain one where it names no size."""
        terms = {monomial: factor for monomial, factor in terms.items() if factor}
        if not terms:
            return 0
        if len(terms) == 1 and () in terms:
            return terms[()]
        return self._sized(terms)

    def _sized(self, terms: Polynomial) -> int:
        key = _key(terms)
        return cast("int", Size(self, terms, evaluated(key, self._values), evaluated(key, self._largest)))

    def _number(self, atom: _Atom, value: int, largest: int) -> int:
        if atom not in self._numbers:
            self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
            self._values.append(value)
            self._largest.append(largest)
        return self._numbers[atom]


class Size:
    """An integer with its formula; typed as ``int`` wherever it goes, since nothing there may know the difference.

    It is not a subclass of ``int`` on purpose: code in C would read the number of one without asking.
    """

    __slots__ = ("largest", "terms", "trace", "value")
    __array_ufunc__ = None  # arrays of numpy leave arithmetic to this class

    def __init__(self, trace: Trace, terms: Polynomial, value: int, largest: int) -> None:
        self.trace, self.terms, self.value, self.largest = trace, terms, value, largest

    def __add__(self, other: object) -> int:
        return self._sum(other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: object) -> int:
        return self._sum(other, 1, -1)

    def __rsub__(self, other: object) -> int:
        return self._sum(other, -1, 1)

    def __neg__(self) -> int:
        return self._sum(0, -1, 1)

    def __pos__(self) -> int:
        return self._sum(0, 1, 1)

    def __abs__(self) -> int:
        return -self if self < 0 else +self

    def __mul__(self, other: object) -> int:
        if isinstance(other, float):
            return self.__index__() * other  # type: ignore[return-value]  # a number that is not a size
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        product: dict[Monomial, int] = {}
        for first, factor in self.terms.items():
            for second, times in terms.items():
                monomial = tuple(sorted((*first, *second)))
                product[monomial] = product.get(monomial, 0) + factor * times
        return self.trace.number(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> int:
        return _quotient(self.trace, self.terms, _terms(other))

    def __rfloordiv__(self, other: object) -> int:
        terms = _terms(other)
        return NotImplemented if terms is None else _quotient(self.trace, terms, self.terms)

    def __mod__(self, other: object) -> int:
        quotient = self // other
        return self - quotient * other  # type: ignore[operator]  # as above

    def __rmod__(self, other: object) -> int:
        return other - (other // self) * self  # type: ignore[operator]  # an integer

    def __eq__(self, other: object) -> bool:
        terms = _terms(other)
        return NotImplemented if terms is None else self._is(other, "== 0")

    def __ne__(self, other: object) -> bool:
        terms = _terms(other)
        return NotImplemented if terms is None else not self._is(other, "== 0")

    def __lt__(self, other: object) -> bool:
        return self._is(other, "< 0")

    def __ge__(self, other: object) -> bool:
        return not self._is(other, "< 0")

    def __gt__(self, other: object) -> bool:
        return self._is(other, "< 0", -1)

    def __le__(self, other: object) -> bool:
        return not self._is(other, "< 0", -1)

    def __bool__(self) -> bool:
        return not self._is(0, "== 0")

    def __hash__(self) -> int:
        return hash(self.value)  # of equal integers; whoever compares behind it asks

    def __index__(self) -> int:
        self.trace.ask(_key_terms(self.terms, -self.value), "== 0")
        return self.value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: object) -> float:
        return self.__index__() / other  # type: ignore[operator]  # a number

    def __rtruediv__(self, other: object) -> float:
        return other / self.__index__()  # type: ignore[operator]  # a number

    def __str__(self) -> str:
        return str(self.__index__())

    __repr__ = __str__

    def __format__(self, text: str) -> str:
        return format(self.__index__(), text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a size that grows belongs to the lowering that made it, and is not stored")

    def _sum(self, other: object, mine: int, theirs: int) -> int:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        total = {monomial: mine * factor for monomial, factor in self.terms.items()}
        for monomial, factor in terms.items():
            total[monomial] = total.get(monomial, 0) + theirs * factor
        return self.trace.number(total)

    def _is(self, other: object, question: str, sign: int = 1) -> bool:
        difference = self._sum(other, sign, -sign)
        if difference is NotImplemented:
            raise TypeError(f"a size cannot be compared with {type(other).__name__}")
        if not isinstance(difference, Size):
            return _ANSWERS[question](difference)
        return self.trace.ask(difference.terms, question)


def grows(number: object) -> bool:
    """Return whether an integer is a size that grows."""
    return isinstance(number, Size)


def largest(number: int) -> int:
    """Return what a buffer or a grid is made for: the number itself, or the largest that a size may grow to."""
    return number.largest if isinstance(number, Size) else number


def today(number: int) -> int:
    """Return a number for a choice that any size may make, such as that of the faster kernel; it fixes nothing."""
    return number.value if isinstance(number, Size) else number


def smaller(first: int, second: int) -> int:
    """Return the smaller of two sizes, without asking which it is."""
    return _function("min", first, second)


def larger(first: int, second: int) -> int:
    """Return the larger of two sizes, without asking which it is."""
    return _function("max", first, second)


def plain(number: object) -> int:
    """Return an integer of an array: as it is where it grows."""
    return cast("int", number) if isinstance(number, Size) else int(cast("int", number))


def key_of(number: int) -> SizeKey:
    """Return a size's formula, to be evaluated later (``evaluated``)."""
    return _key(number.terms) if isinstance(number, Size) else _key({(): number})


def evaluated(key: SizeKey, atoms: Sequence[int]) -> int:
    """Return the number of a formula for the numbers of atoms."""
    total = 0
    for monomial, factor in key:
        for atom in monomial:
            factor *= atoms[atom]
        total += factor
    return total


def _function(name: str, first: int, second: int) -> int:
    size = first if isinstance(first, Size) else second
    if not isinstance(size, Size):
        return _FUNCTIONS[name](first, second)
    left, right = _terms(first), _terms(second)
    assert left is not None
    assert right is not None
    return first if left == right else size.trace.function(name, left, right)


def _terms(number: object) -> Polynomial | None:
    if isinstance(number, Size):
        return number.terms
    if isinstance(number, float) or not hasattr(number, "__index__"):
        return None
    return {(): number.__index__()}


def _key_terms(terms: Polynomial, added: int) -> Polynomial:
    return {**terms, (): terms.get((), 0) + added}


def _key(terms: Polynomial) -> SizeKey:
    return tuple(sorted((monomial, factor) for monomial, factor in terms.items() if factor))


def _quotient(trace: Trace, left: Polynomial, right: Polynomial | None) -> int:
    """Return a quotient rounded down: a formula without a division where all terms divide."""
    if right is None:
        return NotImplemented
    right_key = _key(right)
    if not right_key:
        raise ZeroDivisionError("a size is divided by zero")
    if right_key[0][0] or len(right_key) > 1:  # it names a size, which may be zero another time
        trace.ask(right, "== 0")
    if _key(left) == right_key:
        return 1
    if len(right_key) == 1:
        exact = _divided(left.items(), *right_key[0])
        if exact is not None:
            return trace.number(exact)
    return trace.function("quotient", left, right)


def _divided(terms: Iterable[tuple[Monomial, int]], monomial: Monomial, factor: int) -> Polynomial | None:
    found: dict[Monomial, int] = {}
    for each, times in terms:
        left = list(each)
        for atom in monomial:
            if atom not in left:
                return None
            left.remove(atom)
        if times % factor:
            return None
        found[tuple(left)] = times // factor
    return found
