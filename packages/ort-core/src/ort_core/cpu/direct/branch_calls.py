"""BranchCalls: direct calls of a model that is one If, by two native calls: its condition, then the branch.

    c = Equal(rate, 16000);  y = If(c) <then {...}, else {...}>     feeds -> c -> y

Each branch that is one native program, or such an If itself, has direct calls of its own; one function of Python
stands between. What it does not know, a feed that only one branch would check included, is the ordinary run's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_core.cpu.direct.direct_calls import build_direct_calls
from ort_core.cpu.program.program import DataError, SizesDiffer
from ort_core.plugin import DirectCalls, Rejection

if TYPE_CHECKING:
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.plugin import DirectFunction
    from ort_core.plugin.ir import Value

Source = str | np.ndarray


class Condition(Protocol):
    """What decides between the branches."""

    @property
    def names(self) -> tuple[str, ...]:
        """The feeds that it reads."""

    def decide(self, feeds: Mapping[str, object]) -> bool | None:
        """Return the condition by native code, ``None`` where its feeds are of no signature that is known."""

    def learn(self, feeds: Mapping[str, object]) -> bool | None:
        """Take note of feeds that were run, and return the condition, ``None`` where it has to be left to kernels."""


class FedCondition:
    """A condition that is a feed, of a shape that an ordinary run has taken."""

    def __init__(self, name: str) -> None:
        self.names = (name,)
        self._shapes: frozenset[tuple[int, ...]] = frozenset()

    def decide(self, feeds: Mapping[str, object]) -> bool | None:
        """Return the feed's one element."""
        array = feeds.get(self.names[0])
        if type(array) is not np.ndarray or array.dtype != np.bool_ or array.shape not in self._shapes:
            return None
        return bool(array.item())

    def learn(self, feeds: Mapping[str, object]) -> bool | None:
        """Take note of the feed's shape, and return its one element."""
        array = feeds.get(self.names[0])
        if type(array) is np.ndarray and array.size == 1:
            self._shapes |= {array.shape}
        return self.decide(feeds)


class ComputedCondition:
    """A condition that a native program computes of feeds; its output has one element."""

    def __init__(self, program: NativeProgram, sources: Sequence[Source], calls: DirectCalls) -> None:
        self._program, self._sources, self._calls = program, tuple(sources), calls
        self.names = _names(sources)

    @classmethod
    def of(cls, program: NativeProgram, sources: Sequence[Source]) -> ComputedCondition | Rejection:
        """Return the condition of a program with these inputs, or why it has no direct calls."""
        calls = build_direct_calls(program, sources, [0])
        return calls if isinstance(calls, Rejection) else cls(program, sources, calls)

    def decide(self, feeds: Mapping[str, object]) -> bool | None:
        """Run the program directly."""
        found = self._calls.call({name: feeds.get(name) for name in self.names}, None)
        return None if found is None else bool(found[0].item())

    def learn(self, feeds: Mapping[str, object]) -> bool | None:
        """Let the program know the feeds, and run it."""
        self._calls.learn(feeds)
        arrays = [feeds.get(source) if isinstance(source, str) else source for source in self._sources]
        try:
            (result,) = self._program.run([np.asarray(a, order="C") for a in arrays])
        except (SizesDiffer, DataError):
            return None  # the ordinary run says what is wrong
        return bool(result.item())


class BranchCalls:
    """The direct calls of both branches, and what decides between them: ``plugin.DirectCalls``."""

    def __init__(self, condition: Condition, branches: Mapping[bool, tuple[tuple[str, ...], DirectCalls]]) -> None:
        self._condition, self._branches = condition, dict(branches)
        self._count = len(dict.fromkeys((*condition.names, *branches[True][0], *branches[False][0])))

    @property
    def call(self) -> DirectFunction:
        """The one function; what the branches know changes beneath it."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Let the branch that these feeds take know them."""
        taken = self._condition.learn(feeds)
        if taken is not None:
            self._branches[taken][1].learn(feeds, is_limited=is_limited)

    def _call(self, feeds: object, outputs: object) -> list[np.ndarray] | None:
        if type(feeds) is not dict or len(feeds) != self._count:
            return None
        taken = self._condition.decide(feeds)
        if taken is None:
            return None
        names, calls = self._branches[taken]
        return calls.call(feeds if len(names) == self._count else {name: feeds.get(name) for name in names}, outputs)


def build_branch_calls(
    condition: Condition, names: Mapping[bool, Sequence[str]], calls: Mapping[bool, DirectCalls]
) -> BranchCalls | Rejection:
    """Return the direct calls of an If, or why there are none.

    Args:
        condition: what decides.
        names: for each branch the feeds that it reads.
        calls: the direct calls of each branch.
    """
    for name in dict.fromkeys((*names[True], *names[False])):
        if name not in condition.names and not (name in names[True] and name in names[False]):
            return Rejection(f"input {name!r} is read by one branch only, but must be checked for both")
    return BranchCalls(condition, {taken: (tuple(names[taken]), calls[taken]) for taken in (True, False)})


def has_one_element(value: Value) -> bool:
    """Return whether a value is known to have exactly one element."""
    return value.shape is not None and all(size == 1 for size in value.shape)


def _names(sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for source in sources if isinstance(source, str)))
