"""Sizes that are equal for the inputs that a model is made for: there two values meet, and neither is repeated.

An image of height h is halved to ``(h + 1) // 2``, and that again; enlarged by 2, the smaller one has
``2 * (((h + 1) // 2 + 1) // 2)`` rows. The two are added. Shape inference only knows ``broadcast`` of both, since one
of them might be 1. But they are equal for every height that the strides divide, and for most others the addition fails.
So code is compiled for equal sizes, and requires them: a run where one of them is 1 does without the node's code.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping

from ort_core.plugin.ir import Call, Dim, DimTooLarge, KnownDim, Symbol, SymbolicDim, broadcast, maximum, minimum

_DIVISIBLE = 2**6 * 3**2 * 5 * 7  # a size that usual strides, patches and windows divide
_FACTORS = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)  # one for each name: no two of them are equal by chance
_ASSIGNMENTS = 2
_REMEMBERED = 4096
_COMBINE: Mapping[str, Callable[[KnownDim, KnownDim], KnownDim]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": maximum, "min": minimum, "broadcast": broadcast,
}  # fmt: skip


@functools.lru_cache(_REMEMBERED)
def are_usually_equal(left: KnownDim, right: KnownDim) -> bool:
    """Return whether two sizes follow from the same inputs' sizes, and are equal where those are divisible."""
    if left == right:
        return True
    if not isinstance(left, SymbolicDim) or not isinstance(right, SymbolicDim):
        return False
    names = sorted(left.symbols())
    if set(names) != right.symbols() or len(names) + _ASSIGNMENTS > len(_FACTORS):
        return False
    for shift in range(_ASSIGNMENTS):
        sizes = {name: _DIVISIBLE * factor for name, factor in zip(names, _FACTORS[shift:])}
        try:
            if left.evaluate(sizes) != right.evaluate(sizes):
                return False
        except ZeroDivisionError:
            return False
    return True


def usual_shape(shape: tuple[KnownDim, ...]) -> tuple[KnownDim, ...]:
    """Return a shape whose sizes broadcast nothing that is usually equal; the simplest of equal sizes stands for all.

    Right only where these are equal, which the node whose sizes meet requires (``meeting_sizes``).
    """
    for size in shape:
        if type(size) is not int:
            return _usual_shape(shape)
    return shape


@functools.lru_cache(_REMEMBERED)
def meeting_sizes(shape: tuple[Dim, ...]) -> frozenset[tuple[KnownDim, KnownDim]]:
    """Return the pairs of sizes that ``usual_shape`` takes for equal."""
    calls = {call for size in shape if isinstance(size, SymbolicDim) for call in _calls(size) if _meets(call)}
    return frozenset(
        (size, other)
        for call in calls
        for other in _distinct(call)
        for size in call.arguments
        if size != other and are_usually_equal(size, other)
    )


@functools.lru_cache(_REMEMBERED)
def _usual_shape(shape: tuple[KnownDim, ...]) -> tuple[KnownDim, ...]:
    return tuple([_usual(size) if isinstance(size, SymbolicDim) else size for size in shape])


@functools.lru_cache(_REMEMBERED)
def _usual(size: SymbolicDim) -> KnownDim:
    if not any(_meets(call) for call in _calls(size)):
        return size
    try:
        return _without_meetings(size)
    except DimTooLarge:
        return size


def _calls(size: SymbolicDim) -> Iterator[Call]:
    """Yield all calls within a size."""
    for monomial, _ in size.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                yield atom
                for argument in atom.arguments:
                    if isinstance(argument, SymbolicDim):
                        yield from _calls(argument)


def _meets(call: Call) -> bool:
    """Return whether a call broadcasts sizes of which some are usually equal."""
    return call.function == "broadcast" and len(_distinct(call)) < len(call.arguments)


def _distinct(call: Call) -> list[KnownDim]:
    """Return the sizes that a call broadcasts, only the simplest of those that are usually equal."""
    kept: list[KnownDim] = []
    for size in sorted(call.arguments, key=lambda each: (len(str(each)), str(each))):
        if not any(are_usually_equal(size, other) for other in kept):
            kept.append(size)
    return kept


def _without_meetings(size: KnownDim) -> KnownDim:
    """Return a size written anew, each call over its distinct arguments."""
    if isinstance(size, int):
        return size
    total: KnownDim = 0
    for monomial, coefficient in size.terms:
        term: KnownDim = coefficient
        for atom, power in monomial:
            term = term * _power(_rewritten(atom), power)
        total = total + term
    return total


def _rewritten(atom: Symbol | Call) -> KnownDim:
    if isinstance(atom, Symbol):
        return SymbolicDim.named(atom.name)
    arguments = _distinct(atom) if _meets(atom) else atom.arguments
    return functools.reduce(_COMBINE[atom.function], [_without_meetings(each) for each in arguments])


def _power(size: KnownDim, power: int) -> KnownDim:
    return functools.reduce(operator.mul, [size] * power)
