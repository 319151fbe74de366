"""Sizes: the numbers behind symbolic sizes, learned from shapes that are known, node by node.

A size is a polynomial over atoms: names, and calls such as ``floordiv(n, 2)``. An atom is learned where it is a whole
size, or the only unknown of one, as the ``n`` of ``2 * n + past`` when ``past`` is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from ort_core.plugin.ir import Call, Dim, Shape, Symbol, SymbolicDim, Value


def _broadcast(*sizes: int) -> int:
    return next((size for size in sizes if size != 1), 1)


_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min, "broadcast": _broadcast,
}  # fmt: skip


SAMPLE = 240
"""Stands for every open size: divided by most numbers, beyond most windows."""


class SizeState:
    """What is known of sizes so far."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def learn(self, shape: Sequence[Dim], sizes: Sequence[int]) -> None:
        """Take the numbers of a shape."""
        pairs = [(dim, size) for dim, size in zip(shape, sizes, strict=True) if isinstance(dim, SymbolicDim)]
        for dim, size in pairs:
            self._known.setdefault(str(dim), size)
        for _ in pairs:  # one size may give what another one lacks
            for dim, size in pairs:
                self._solve(dim, size)

    def _solve(self, dim: SymbolicDim, size: int) -> None:
        unknown = [(m, c) for m, c in dim.terms if any(self._atom(atom) is None for atom, _ in m)]
        if len(unknown) != 1:
            return
        (monomial, factor), *_ = unknown
        if len(monomial) != 1 or monomial[0][1] != 1:
            return
        rest = sum(self._monomial(m, c) or 0 for m, c in dim.terms if (m, c) != (monomial, factor))
        self._known[str(monomial[0][0])] = (size - rest) // factor

    def evaluate(self, size: Dim) -> int | None:
        """Return a size's number, or ``None`` when what is known does not tell it."""
        if not isinstance(size, SymbolicDim):
            return size
        if str(size) in self._known:
            return self._known[str(size)]
        terms = [self._monomial(monomial, factor) for monomial, factor in size.terms]
        known = [term for term in terms if term is not None]
        return sum(known) if len(known) == len(terms) else None

    def shape(self, shape: Shape | None) -> tuple[int, ...] | None:
        """Return the numbers of a shape, or ``None`` when one is not known."""
        sizes = [self.evaluate(size) for size in shape or ()]
        known = tuple(size for size in sizes if size is not None)
        return known if shape is not None and len(known) == len(sizes) else None

    def _monomial(self, monomial: Sequence[tuple[Symbol | Call, int]], factor: int) -> int | None:
        for atom, power in monomial:
            value = self._atom(atom)
            if value is None:
                return None
            factor *= value**power
        return factor

    def _atom(self, atom: Symbol | Call) -> int | None:
        if str(atom) in self._known or not isinstance(atom, Call):
            return self._known.get(str(atom))
        arguments = [self.evaluate(argument) for argument in atom.arguments]
        if any(each is None for each in arguments):
            return None
        try:
            return _FUNCTIONS[atom.function](*arguments)
        except ZeroDivisionError:
            return None


def sampled_sizes(value: Value) -> tuple[int, ...] | None:
    """Return the sizes of a value, with a sample for those that are open; ``None`` when one has no name."""
    return None if value.shape is None else sample_sizes(value.shape, SAMPLE)


def sample_sizes(shape: Sequence[Dim], sample: int) -> tuple[int, ...] | None:
    """Return a shape with every name standing for the same number, to ask what would become of a node.

    Returns:
        ``None`` when a size cannot be computed so.
    """
    state = SizeState()
    for size in shape:
        for name in size.symbols() if isinstance(size, SymbolicDim) else ():
            state.learn((SymbolicDim.named(name),), (sample,))
    return state.shape(tuple(shape))
