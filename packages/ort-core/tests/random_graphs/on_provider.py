"""Runs random graphs by another provider, with the CPU behind it: a file of that provider's package says how.

Such a file has a ``PROVIDER``, a ``GraphsProvider``. What it claims of a graph is judged by the truth of all graphs, as
in every other engine. A graph of which it claims nothing is not asked. Nothing is computed by others that it claimed:
what its compilation or a run refuses is a finding.
"""

from __future__ import annotations

import collections
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ort_core as ort
from ort_core.plugin import EPFail
from random_graphs.cases import Case
from random_graphs.engines import BY_NAME, Engine, NotAsked
from random_graphs.explained import Explained, explanation
from random_graphs.judging import Difference, judge

LEVELS = ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL", "ORT_ENABLE_ALL", "ORT_ENABLE_BASIC")
WAYS = ("", "to and fro", "bound", "", "by names", "laid out", "shared")


@dataclass(frozen=True)
class GraphsProvider:
    """A provider that is judged.

    Attributes:
        name: its name.
        options: choices of options, of which each seed takes one.
        known: differences that are no fault of it, as narrow as the table of all engines.
        prepare: is called once before any session, where the name is not one of an installed plugin.
        is_repeatable: whether it promises the same bits in every run.
    """

    name: str
    options: Sequence[Mapping[str, str]] = ({},)
    known: Sequence[Explained] = ()
    prepare: Callable[[], None] = lambda: None
    is_repeatable: bool = False

    def engine(self, seed: int) -> ProviderEngine:
        """Return the engine of a seed: its level, its way to run and its options."""
        way = WAYS[seed % len(WAYS)]
        return ProviderEngine(
            self.name,
            self.name,
            LEVELS[seed % len(LEVELS)],
            repeats=1 if way else 2,
            way=way,
            is_repeatable=self.is_repeatable,
            options=self.options[seed % len(self.options)],
        )

    def explanation(self, case: Case, found: Difference) -> str | None:
        """Return why a difference is no fault of the provider, ``None`` where nobody knows."""
        beside = judge(case, [BY_NAME["cpu"]]).differences
        if any(each.kind == found.kind for each in beside):
            return "the CPU provider alone shows it, too"
        own = next((row.reason for row in self.known if row.fits(case, found)), None)
        return own or explanation(case, found)


@dataclass(frozen=True)
class ProviderEngine(Engine):
    """Sessions of a provider, with the CPU behind it; ``claimed`` counts what they got of it."""

    options: Mapping[str, str] = field(default_factory=dict)
    claimed: collections.Counter[str] = field(default_factory=collections.Counter)

    def session(self, case: Case) -> Any:
        """Return a session.

        Raises:
            NotAsked: the provider claims nothing.
            EPFail: it claims what it does not compile then, which other providers would run.
        """
        session = ort.InferenceSession(
            case.served.SerializeToString(),
            self._options(case),
            providers=[(self.provider, dict(self.options)), "CPUExecutionProvider"],
            enable_fallback=False,
        )
        report = session.explain()
        if report.fallbacks:
            raise EPFail("; ".join(report.fallbacks))
        nodes = [each for each in report.nodes if each.provider == self.provider]
        if not nodes:
            raise NotAsked("the provider claims nothing")
        self.claimed.update(each.op_type for each in nodes)
        return session


def provider_of_file(path: str) -> GraphsProvider:
    """Return the provider that a file describes, ready for sessions."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    found = runpy.run_path(path)["PROVIDER"]
    found.prepare()
    return found
