"""Check: one thing to find out about a provider, by name. Promises are functions that a suite's module marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from ort_conformance.outcome import Finding, Outcome
from ort_conformance.profile import Feature
from ort_conformance.subject import Subject

MARK = "__ort_promise__"


class PromiseBroken(AssertionError):
    """A provider broke a promise; the text says what was found and what was expected."""


class CannotJudge(Exception):
    """The provider gave no occasion to check a promise, such as a claim to compile; the text says which."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``name`` is ``suite/what``; ``sentence`` says what must hold.

    ``is_case`` marks one of very many, ``is_long`` one that takes minutes. ``foresee`` finds out what a provider that
    cannot run here would do; without it the check is not tried there.
    """

    name: str
    sentence: str
    judge: Callable[[Subject], Finding]
    needs: Feature | None = None
    needs_availability: bool = True
    is_case: bool = False
    is_long: bool = False
    foresee: Callable[[Subject], Finding] | None = None

    @property
    def suite(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]

    def run(self, subject: Subject) -> Finding:
        """Find out. A provider that is absent, or does not declare the feature, is told apart from one that fails."""
        if self.needs is not None and not subject.profile.declares(self.needs):
            return Finding(Outcome.UNDECLARED, f"the profile does not declare {self.needs.value}")
        if self.needs_availability and not subject.availability:
            if self.foresee is not None and subject.can_be_asked:
                return self.foresee(subject)
            return Finding(Outcome.UNAVAILABLE, str(subject.availability))
        return self.judge(subject)


_F = TypeVar("_F", bound=Callable[[Subject], None])


@dataclass(frozen=True, slots=True)
class _Promise:
    suite: str
    needs: Feature | None
    needs_availability: bool
    is_long: bool


def promise(
    suite: str, *, needs: Feature | None = None, needs_availability: bool = True, is_long: bool = False
) -> Callable[[_F], _F]:
    """Mark a function as a promise of a suite: it raises ``PromiseBroken``, and its docstring says what must hold."""

    def mark(function: _F) -> _F:
        setattr(function, MARK, _Promise(suite, needs, needs_availability, is_long))
        return function

    return mark


def promises_of(module: ModuleType) -> Iterator[Check]:
    """Yield a check for every promise that a module defines, in its order."""
    for name, function in vars(module).items():
        marked = getattr(function, MARK, None)
        if marked is not None and function.__module__ == module.__name__:
            sentence = (function.__doc__ or "").strip().splitlines()[0]
            yield Check(
                f"{marked.suite}/{name}", sentence, _judged(function), marked.needs, marked.needs_availability,
                is_long=marked.is_long,
            )  # fmt: skip


def _judged(function: Callable[[Subject], None]) -> Callable[[Subject], Finding]:
    def judge(subject: Subject) -> Finding:
        try:
            function(subject)
        except PromiseBroken as error:
            return Finding(Outcome.BROKEN, str(error))
        except CannotJudge as error:
            return Finding(Outcome.NOT_JUDGED, str(error))
        except Exception as error:  # noqa: BLE001 - a provider may raise anything where it must not
            return Finding(Outcome.BROKEN, f"{type(error).__name__}: {error}")
        return Finding(Outcome.HELD)

    return judge


def require(condition: object, text: str) -> None:
    """Raise ``PromiseBroken`` with a text unless something holds."""
    if not condition:
        raise PromiseBroken(text)
