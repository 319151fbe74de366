"""The replay tool: what fails is told apart from what was digested, and is no result to compare."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "tools/replay.py"


@pytest.fixture
def replay(monkeypatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "replay", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_what_fails_is_kept_apart_with_its_words(replay) -> None:
    def fails(subject):
        yield "a line"
        raise ValueError("weights are missing")

    found = replay.Found()
    replay.note(replay.Subject("m"), fails, found, None)
    assert found.failed == {"fails m": "ValueError: weights are missing"}
    assert found.digests.keys() == {"fails m"}


def test_what_cannot_be_imported_is_no_result(replay) -> None:
    def fails(subject):
        raise ModuleNotFoundError("No module named 'gone'")

    with pytest.raises(ImportError, match=r"fails m was not digested: No module named 'gone'"):
        replay.note(replay.Subject("m"), fails, replay.Found(), None)


@pytest.mark.parametrize(
    ("after", "status", "says"),
    [
        ({"digests": {"cpu m": "1"}, "failed": {}}, 0, "0 of 1 digests differ; 0 failed before, 0 behind"),
        (
            {"digests": {"cpu m": "1"}, "failed": {"cpu m": "Fail: no weights"}},
            1,
            "failed only behind: cpu m: Fail: no",
        ),
        ({"digests": {"cpu m": "2"}, "failed": {}}, 1, "differs: cpu m"),
        ({"digests": {}, "failed": {}}, 1, "gone: cpu m"),
    ],
)
def test_comparison_is_red_where_digests_or_failures_differ(replay, tmp_path, capsys, after, status, says) -> None:
    files = tmp_path / "before.json", tmp_path / "after.json"
    for file, content in zip(files, ({"digests": {"cpu m": "1"}, "failed": {}}, after), strict=True):
        file.write_text(json.dumps(content))
    assert replay.compare(argparse.Namespace(before=files[0], after=files[1])) == status
    assert says in capsys.readouterr().out


def test_nothing_compared_is_red(replay, tmp_path) -> None:
    (tmp_path / "none.json").write_text(json.dumps({"digests": {}, "failed": {}}))
    assert replay.compare(argparse.Namespace(before=tmp_path / "none.json", after=tmp_path / "none.json")) == 1
