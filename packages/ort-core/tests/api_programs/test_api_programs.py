"""Random programs over the API find what they find with onnxruntime, but for what is meant and has its reason.

``nox -s api_programs`` runs thousands of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")  # which the programs run on, too

from campaign import differences, outcomes

FIRST, COUNT = 20_000, 120


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory):
    """What each engine gives for each seed, and which seeds ended it."""
    folder: Path = tmp_path_factory.mktemp("api-programs")
    return [outcomes(engine, FIRST, COUNT, folder) for engine in ("theirs", "ours")]


def test_programs_find_what_they_find_with_onnxruntime(programs):
    (theirs, _), (ours, ended) = programs
    shown, _ = differences(theirs, ours)
    assert ended == []
    assert shown == [], "\n".join(shown)


def test_the_programs_do_and_refuse_many_things(programs):
    (theirs, ended), (ours, _) = programs
    assert len(theirs) > COUNT * 0.9, ended
    assert len(ours) == COUNT
    kinds = Counter(step[1] for program in theirs.values() for step in program["steps"])
    assert min(kinds["ok"], kinds["error"]) > COUNT
    labels = {word for program in theirs.values() for step in program["steps"] for word in step[0].split()}
    assert {"bound", "vectors", "two_threads", "in_the_background", "profile", "optimized", "facts"} <= labels
