"""Symbolic dimensions: exact integer arithmetic over named sizes.

A dimension is a non-negative ``int``, a ``SymbolicDim``, or ``None`` when nothing at all is known of it. A
``SymbolicDim`` is a polynomial with integer coefficients over atoms; an atom is a named size or a call (floor
division, remainder, maximum, minimum) of dimensions. The polynomial is kept in canonical form, so two dimensions
that are equal for every assignment by ring arithmetic compare equal: ``(n + 1) * 2 == 2 * n + 2``.

Expressions are bounded: arithmetic whose result would be larger than any model's sizes raises ``DimTooLarge``. Without
that, thirty multiplications of a size with itself would take more memory than there is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Union

from ort_core.frozen import frozen

MAX_TERMS = 256  # of one polynomial; detectors that join the sizes of five levels have under 50
MAX_WEIGHT = 4096  # atoms written out, powers counted; real sizes stay under 500
MAX_DEPTH = 48  # calls within calls, one for each stride of a tower; Python's parser takes 200 brackets
MAX_COEFFICIENT = 2**63  # sizes are int64
MAX_MEETING = 64  # atoms of sizes that meet; pyramids have 15 to 43, exchanges between scales double them each time
_REMEMBERED = 4096
_OPERATORS = frozenset("+-*/%(), '\"\\")  # in a name: it reads like an expression


class DimTooLarge(ArithmeticError):
    """A symbolic expression has outgrown what a tensor's size can be: its value has to be taken for unknown."""


@frozen
class Symbol:
    """A named size, at least 0."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.name == other.name

    def __hash__(self) -> int:  # asked more often than of any other class of a load
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def as_factor(self) -> str:
        """Return the text within an expression: a name that could be one itself stands in quotes."""
        return repr(self.name) if _OPERATORS.intersection(self.name) else self.name


@frozen
class Call:
    """A function of dimensions that is not a polynomial: ``floordiv``, ``mod``, ``max``, ``min`` or ``broadcast``."""

    function: str
    arguments: tuple[int | SymbolicDim, ...]

    def __str__(self) -> str:
        if self.function in ("floordiv", "mod"):
            left, right = (
                f"({a})" if isinstance(a, SymbolicDim) and not a.is_atom else _within(a) for a in self.arguments
            )
            divisor = self.arguments[1]
            if isinstance(divisor, SymbolicDim) and divisor.is_atom:
                right = divisor.terms[0][0][0][0].as_factor()
            return f"{left}{'//' if self.function == 'floordiv' else '%'}{right}"
        return f"{self.function}({', '.join(map(_within, self.arguments))})"

    def as_factor(self) -> str:
        """Return the text beside other factors, as Python reads it: a quotient stands in brackets."""
        return f"({self})" if self.function in ("floordiv", "mod") else str(self)


def _within(argument: int | SymbolicDim) -> str:
    """Return the text of an argument of a call."""
    is_name = isinstance(argument, SymbolicDim) and argument.name is not None
    return argument.terms[0][0][0][0].as_factor() if is_name else str(argument)  # type: ignore[union-attr]  # it is one


Atom = Symbol | Call
Monomial = tuple[tuple[Atom, int], ...]  # ((atom, power), ...), sorted by text; () is the constant term
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "broadcast": lambda *sizes: next((size for size in sizes if size != 1), 1),
}


class SymbolicDim:
    """A polynomial over atoms in canonical form; immutable, hashable, compared by value."""

    __slots__ = ("_hash", "depth", "terms", "weight")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        """Take over terms in canonical form.

        Raises:
            DimTooLarge: they are more or larger than any size's.
        """
        self.terms = terms
        self.weight, self.depth = _measured(terms)
        self._hash = hash(terms)

    @staticmethod
    def named(name: str) -> SymbolicDim:
        """Return the dimension that is the named size."""
        return SymbolicDim(((((Symbol(name), 1),), 1),))

    @property
    def is_atom(self) -> bool:
        """Whether this is a single atom with coefficient 1."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1 == self.terms[0][0][0][1]

    @property
    def name(self) -> str | None:
        """The name when this is just a named size, else ``None``."""
        if not self.is_atom:
            return None
        atom = self.terms[0][0][0][0]
        return atom.name if isinstance(atom, Symbol) else None

    def symbols(self) -> frozenset[str]:
        """Return the names of all sizes that occur."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                if isinstance(atom, Symbol):
                    names.add(atom.name)
                else:
                    names.update(*(a.symbols() for a in atom.arguments if isinstance(a, SymbolicDim)))
        return frozenset(names)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Return the value under an assignment of every named size.

        Raises:
            KeyError: a name has no size.
            ZeroDivisionError: a divisor is zero under this assignment.
        """
        total = 0
        for monomial, coefficient in self.terms:
            for atom, power in monomial:
                coefficient *= _evaluate_atom(atom, sizes) ** power
            total += coefficient
        return total

    def substitute(self, replacements: Mapping[str, int | SymbolicDim]) -> int | SymbolicDim:
        """Return this dimension with named sizes replaced."""
        if self.symbols().isdisjoint(replacements):
            return self
        return _rewritten(self, functools.partial(_substitute_atom, replacements=replacements))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SymbolicDim) and self._hash == other._hash and self.terms == other.terms

    def __add__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        return _sum(self, other) if isinstance(other, SymbolicDim) or other else self

    __radd__ = __add__

    def __neg__(self) -> int | SymbolicDim:
        return _canonical({m: -c for m, c in self.terms})

    def __sub__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        return self + (-other)

    def __rsub__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        return (-self) + other

    def __mul__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        if isinstance(other, SymbolicDim):
            return _product(self, other)
        if other == 1:
            return self
        return _scaled(self, int(other)) if other else 0

    __rmul__ = __mul__

    def __floordiv__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        return floor_div(self, other)

    def __rfloordiv__(self, other: int) -> int | SymbolicDim:
        return floor_div(other, self)

    def __mod__(self, other: int | SymbolicDim) -> int | SymbolicDim:
        return modulo(self, other)

    def __rmod__(self, other: int) -> int | SymbolicDim:
        return modulo(other, self)

    def __str__(self) -> str:
        if self.is_atom:
            return str(self.terms[0][0][0][0])
        parts = []
        for monomial, coefficient in self.terms:
            is_factor = coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1
            texts = (
                (atom.as_factor() if is_factor or isinstance(atom, Symbol) else str(atom), power)
                for atom, power in monomial
            )
            factors = [text if power == 1 else f"{text}**{power}" for text, power in texts]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"SymbolicDim({str(self)!r})"


Dim = Union[int, SymbolicDim, None]  # noqa: UP007 - the operator form fails at run time for a string forward reference
KnownDim = int | SymbolicDim


def floor_div(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return ``left // right``, cancelling common factors where that is exact."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 1:
        return left
    if left == right:
        return 1
    quotient, remainder = _divide(left, right)
    if remainder == 0:
        return quotient
    if isinstance(right, int) and right > 0:
        rest = remainder // right if isinstance(remainder, int) else _call("floordiv", remainder, right)
        return quotient + rest
    return _call("floordiv", left, right)


def modulo(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return ``left % right`` with multiples of ``right`` removed."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    _, remainder = _divide(left, right)
    if isinstance(remainder, int) and isinstance(right, int):
        return remainder % right
    return 0 if remainder == 0 else _call("mod", remainder, right)


def ceil_div(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return ``left / right`` rounded up, for a positive divisor."""
    return floor_div(left + right - 1, right)


def maximum(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return the larger dimension; decided at once where the difference is a constant or sizes prove it."""
    return _extreme("max", left, right)


def minimum(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return the smaller dimension; decided at once where the difference is a constant or sizes prove it."""
    return _extreme("min", left, right)


def broadcast(left: KnownDim, right: KnownDim) -> KnownDim:
    """Return the size that two sizes broadcast to, where they do: a size of 1 gives way to the other.

    That is not the maximum (1 against 0 gives 0). Of two different numbers above 1 the first is returned: whether
    sizes may meet is the caller's question. So it is of expressions that are large together: then one that cannot be 1
    stands for all.
    """
    if left == right or right == 1:
        return left
    if left == 1 or isinstance(right, int):
        return right
    if isinstance(left, int):
        return left
    met = _meeting((left, right))
    return met if isinstance(met, int) or met.weight <= MAX_MEETING else _settled(met)


def _meeting(sizes: Iterable[KnownDim]) -> KnownDim:
    """Return the call that broadcasts sizes, without those that change nothing."""
    parts = dict.fromkeys(part for size in sizes for part in _broadcast_parts(size))
    kept = [part for part in parts if not any(_is_bounded(part, other) for other in parts)]
    return kept[0] if len(kept) == 1 else _call("broadcast", *sorted(kept, key=str))


@functools.lru_cache(_REMEMBERED)
def _settled(dim: KnownDim) -> KnownDim:
    """Return a size where of sizes that meet one that cannot be 1 stands for all: it is the size wherever they meet."""
    return _rewritten(dim, _settled_atom) if isinstance(dim, SymbolicDim) else dim


def _settled_atom(atom: Atom) -> KnownDim:
    if isinstance(atom, Symbol):
        return SymbolicDim.named(atom.name)
    arguments = [_settled(argument) for argument in atom.arguments]
    if atom.function != "broadcast":
        return functools.reduce(_COMBINE[atom.function], arguments)
    return min(filter(_is_never_one, arguments), key=_lightness, default=_meeting(arguments))


def _broadcast_parts(dim: KnownDim) -> tuple[KnownDim, ...]:
    if isinstance(dim, SymbolicDim) and dim.is_atom:
        atom = dim.terms[0][0][0][0]
        if isinstance(atom, Call) and atom.function == "broadcast":
            return atom.arguments
    return (dim,)


def _is_never_one(dim: KnownDim) -> bool:
    """Whether a size cannot be 1, so that what it meets has its size: it is a multiple, as of enlarged images."""
    if isinstance(dim, int):
        return dim != 1
    return math.gcd(*[coefficient for _, coefficient in dim.terms]) > 1


def _lightness(dim: KnownDim) -> tuple[int, str]:
    return (dim.weight if isinstance(dim, SymbolicDim) else 0, str(dim))


def _is_bounded(dim: KnownDim, other: KnownDim) -> bool:
    """Whether ``dim`` is ``min(number, other)``: it can only meet ``other`` when both are equal or it is 1."""
    if not isinstance(dim, SymbolicDim) or not dim.is_atom:
        return False
    atom = dim.terms[0][0][0][0]
    if not isinstance(atom, Call) or atom.function != "min" or other not in atom.arguments:
        return False
    return any(isinstance(bound, int) and bound > 0 for bound in atom.arguments)


def is_same_beside(dim: Dim, other: Dim) -> bool:
    """Return whether two sizes are equal wherever values with them are added: a row cut to ``min(64, n)`` has n."""
    if dim is None or other is None:
        return False
    if dim == other:
        return True
    if not isinstance(dim, SymbolicDim) or not _is_bounded(dim, other):
        return False
    atom = dim.terms[0][0][0][0]
    return isinstance(atom, Call) and all(each > 1 for each in atom.arguments if isinstance(each, int))


@functools.lru_cache(_REMEMBERED)
def is_never_negative(dim: KnownDim) -> bool:
    """Return whether a dimension is known to be at least 0; named sizes are, differences within calls need not be."""
    if isinstance(dim, int):
        return dim >= 0
    odd = (atom for monomial, _ in dim.terms for atom, power in monomial if power % 2)
    return all(coefficient > 0 for _, coefficient in dim.terms) and all(map(_is_atom_never_negative, odd))


def _is_atom_never_negative(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return True
    if atom.function == "max":
        return any(map(is_never_negative, atom.arguments))
    if atom.function == "mod":
        return is_never_negative(atom.arguments[1])
    return all(map(is_never_negative, atom.arguments))


def evaluate(dim: KnownDim, sizes: Mapping[str, int]) -> int:
    """Return the value of an int or symbolic dimension under an assignment."""
    return dim if isinstance(dim, int) else dim.evaluate(sizes)


def substitute(dim: Dim, replacements: Mapping[str, KnownDim]) -> Dim:
    """Return a dimension with named sizes replaced; ints and ``None`` stay."""
    return dim.substitute(replacements) if isinstance(dim, SymbolicDim) else dim


def product(dims: tuple[Dim, ...]) -> Dim:
    """Return the product of dimensions: 0 if any is 0, ``None`` if any other is unknown.

    Raises:
        DimTooLarge: the product of symbolic sizes is larger than any size.
    """
    if any(isinstance(d, int) and d == 0 for d in dims):
        return 0
    total: KnownDim = 1
    for dim in dims:
        if dim is None:
            return None
        total = total * dim
    return total


def _extreme(function: str, left: KnownDim, right: KnownDim) -> KnownDim:
    if isinstance(left, int) and isinstance(right, int):
        return _FUNCTIONS[function](left, right)
    difference = left - right
    larger = None
    if isinstance(difference, int):
        larger = left if difference >= 0 else right
    elif is_never_negative(difference):
        larger = left
    elif is_never_negative(-difference):
        larger = right
    if larger is None:
        return _call(function, *sorted((left, right), key=str))
    if function == "max":
        return larger
    return right if larger is left else left


def _measured(terms: tuple[tuple[Monomial, int], ...]) -> tuple[int, int]:
    """Return how many atoms an expression has when it is written out, and how deep its calls are nested."""
    weight, depth = len(terms), 0
    for monomial, coefficient in terms:
        if not -MAX_COEFFICIENT < coefficient < MAX_COEFFICIENT:
            raise DimTooLarge("a coefficient beyond 64 bits")
        for atom, power in monomial:
            weight += power
            if isinstance(atom, Call):
                for argument in atom.arguments:
                    if isinstance(argument, SymbolicDim):
                        weight += power * argument.weight
                        depth = max(depth, argument.depth + 1)
    if len(terms) > MAX_TERMS or weight > MAX_WEIGHT or depth > MAX_DEPTH:
        raise DimTooLarge(f"an expression of {len(terms)} terms and {weight} atoms, {depth} deep")
    return weight, depth


def _call(function: str, *arguments: KnownDim) -> SymbolicDim:
    return SymbolicDim(((((Call(function, arguments), 1),), 1),))


def _terms(dim: KnownDim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, SymbolicDim):
        return dim.terms
    return (((), int(dim)),) if dim else ()


# Sizes of one model are multiplied and added again and again: by the types of their elements, for each reader.
@functools.lru_cache(maxsize=4096)
def _scaled(dim: SymbolicDim, factor: int) -> SymbolicDim:
    return SymbolicDim(tuple((monomial, coefficient * factor) for monomial, coefficient in dim.terms))


@functools.lru_cache(maxsize=4096)
def _sum(left: SymbolicDim, right: KnownDim) -> KnownDim:
    totals = dict(left.terms)
    for monomial, coefficient in _terms(right):
        totals[monomial] = totals.get(monomial, 0) + coefficient
    return _canonical(totals)


@functools.lru_cache(maxsize=4096)
def _product(left: SymbolicDim, right: SymbolicDim) -> KnownDim:
    if len(left.terms) * len(right.terms) > MAX_WEIGHT:
        raise DimTooLarge(f"a product of {len(left.terms)} and {len(right.terms)} terms")
    totals: dict[Monomial, int] = {}
    for first, a in left.terms:
        for second, b in right.terms:
            product = _multiply(first, second)
            totals[product] = totals.get(product, 0) + a * b
    return _canonical(totals)


def _canonical(totals: Mapping[Monomial, int]) -> KnownDim:
    kept = [(m, c) for m, c in totals.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    kept.sort(key=lambda term: (not term[0], _text(term[0])))
    return SymbolicDim(tuple(kept))


@functools.lru_cache(maxsize=4096)
def _text(monomial: Monomial) -> str:
    return "*".join(f"{atom}^{power}" for atom, power in monomial)


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _divide(left: KnownDim, right: KnownDim) -> tuple[KnownDim, KnownDim]:
    """Split ``left`` into ``quotient * right + remainder``, term by term, for a divisor of a single term."""
    divisor = _terms(right)
    if len(divisor) != 1:
        ratio = _exact_ratio(left, right)
        return (ratio, 0) if ratio is not None else (0, left)
    quotient: dict[Monomial, int] = {}
    remainder: dict[Monomial, int] = {}
    (atoms, scale) = divisor[0]
    for monomial, coefficient in _terms(left):
        rest = _cancel(monomial, atoms)
        if rest is None:
            remainder[monomial] = coefficient
            continue
        whole, part = divmod(coefficient, scale)
        quotient[rest] = whole
        remainder[monomial] = part
    return _canonical(quotient), _canonical(remainder)


def _exact_ratio(left: KnownDim, right: KnownDim) -> KnownDim | None:
    """Return ``left / right`` when it is one term times ``right``, e.g. ``(2*n + 2) / (n + 1) == 2``."""
    if not isinstance(left, SymbolicDim) or not isinstance(right, SymbolicDim):
        return None
    (lead, a), (atoms, b) = left.terms[0], right.terms[0]
    rest = _cancel(lead, atoms)
    if rest is None or a % b:
        return None
    ratio = _canonical({rest: a // b})
    return ratio if ratio * right == left else None


def _cancel(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in atoms:
        if powers.get(atom, 0) < power:
            return None
        powers[atom] -= power
    return tuple((a, p) for a, p in powers.items() if p)


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes[atom.name]
    return _FUNCTIONS[atom.function](*(evaluate(a, sizes) for a in atom.arguments))


def _rewritten(dim: SymbolicDim, of_atom: Callable[[Atom], KnownDim]) -> KnownDim:
    """Return a dimension with another one for each atom."""
    total: KnownDim = 0
    for monomial, coefficient in dim.terms:
        term: KnownDim = coefficient
        for atom, power in monomial:
            factor = of_atom(atom)
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


def _substitute_atom(atom: Atom, replacements: Mapping[str, KnownDim]) -> KnownDim:
    if isinstance(atom, Symbol):
        return replacements.get(atom.name, SymbolicDim.named(atom.name))
    arguments = (a.substitute(replacements) if isinstance(a, SymbolicDim) else a for a in atom.arguments)
    return functools.reduce(_COMBINE[atom.function], arguments)


_COMBINE: dict[str, Callable[[KnownDim, KnownDim], KnownDim]] = {
    "floordiv": floor_div,
    "mod": modulo,
    "max": maximum,
    "min": minimum,
    "broadcast": broadcast,
}
