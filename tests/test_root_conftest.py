"""What the root's conftest promises every test: the same random numbers in any order, and calls counted exactly."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

RANDOM = np.random.default_rng(3)


@pytest.fixture
def drawn() -> int:
    return int(RANDOM.integers(1 << 60))


@pytest.mark.parametrize("turn", range(3))
def test_every_test_and_its_fixtures_begin_with_the_same_numbers(turn: int, drawn: int) -> None:
    first = int(np.random.default_rng(3).integers(1 << 60))
    assert (drawn, int(RANDOM.integers(1 << 60))) == (first, first)


def test_calls_are_counted_with_those_of_c_and_those_below(calls_of) -> None:
    def work(count: int) -> int:
        return sum(abs(each) for each in range(count))

    few, _ = calls_of(work, 10)
    many, total = calls_of(work, 1010)
    assert total == 509_545
    assert many - few == 2000, "each number: one step of the generator, and one abs"


def test_examples_that_hypothesis_tries_are_the_same_every_day(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--hypothesis-profile") or request.config.getoption("--hypothesis-seed"):
        pytest.skip("other examples were asked for")
    assert (settings.default.derandomize, settings.default.database, settings.default.deadline) == (True, None, None)


def test_a_test_that_imports_a_missing_onnxruntime_is_skipped(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = next(each for each in request.config.pluginmanager.get_plugins() if hasattr(each, "NO_PEER"))
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(sys, "meta_path", [root._AbsentPeer(), *sys.meta_path])
    with pytest.raises(pytest.skip.Exception, match="no wheel"):
        importlib.import_module("onnxruntime")
    importlib.import_module("ort_core")


def test_all_workers_of_a_run_share_its_cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path_factory.getbasetemp()
    of_run = own.parent if hasattr(request.config, "workerinput") else own
    assert Path(os.environ["ORT_CACHE_DIR"]) == of_run / "cache"


def test_what_lives_rests_where_it_is_much(request: pytest.FixtureRequest) -> None:
    root = next(each for each in request.config.pluginmanager.get_plugins() if hasattr(each, "NO_PEER"))
    root._let_rest()
    rested = gc.get_freeze_count()
    kept = [[] for _ in range(root.MANY_OBJECTS + 1000)]
    gc.collect()
    root._let_rest()
    assert gc.get_freeze_count() - rested >= len(kept) - 1000, "a few others end meanwhile"


def test_a_test_that_takes_memory_without_end_ends_by_itself_and_is_named(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    module = tmp_path / "test_memory.py"
    module.write_text(
        "import time\n\ndef test_small(): pass\n\ndef test_large():\n    kept = []\n    end = time.monotonic() + 60\n"
        "    while time.monotonic() < end:\n        kept.append(b'x' * 10_000_000)\n        time.sleep(0.01)\n"
    )
    root = next(each for each in request.config.pluginmanager.get_plugins() if hasattr(each, "NO_PEER"))
    (tmp_path / "conftest.py").write_text(
        f"import importlib.util as util\nspec = util.spec_from_file_location('root', {root.__file__!r})\n"
        "root = util.module_from_spec(spec)\nspec.loader.exec_module(root)\nroot.MOST_MEMORY = 1_000_000_000\n"
        "_limited_memory = root._limited_memory\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--import-mode=importlib", str(module)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 1
    assert "test_memory.py::test_large (call) takes more than 1 GB of memory" in ended.stderr
    assert "in test_large" in ended.stderr
