"""Prepared models, run on feeds as commands have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core import stages
from ort_core.runtime.feeds import FeedChecker


def run_prepared(prepared: stages.PreparedModel, feeds: Mapping[str, object], names: Sequence[str]) -> list[object]:
    """Return outputs of a prepared model by name."""
    values = FeedChecker(prepared.model.graph.inputs).convert(feeds)
    return list(prepared.plan.run(values, names))
