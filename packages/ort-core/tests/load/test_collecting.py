"""The collector rests while a model loads, and goes on as it was behind."""

from __future__ import annotations

import gc

import pytest
from growing_models import GROWING

import ort_core
from ort_core import collecting
from ort_core.collecting import paused_collection


@pytest.fixture(autouse=True)
def _collecting():
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def test_collector_is_off_until_the_outermost_pause_ends():
    with paused_collection():
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_goes_on_behind_an_error():
    with pytest.raises(KeyError), paused_collection():
        raise KeyError
    assert gc.isenabled()


def test_collector_that_was_off_stays_off():
    gc.disable()
    with paused_collection():
        pass
    assert not gc.isenabled()


def test_load_collects_a_few_times_however_many_nodes_it_has(tmp_path, monkeypatch):
    content = GROWING["residual"](600).proto()
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])  # what is imported
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "other"))
    seen: list[str] = []
    note = lambda phase, facts: seen.append(phase)  # noqa: E731 - it is taken off by identity
    gc.callbacks.append(note)
    try:
        ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    finally:
        gc.callbacks.remove(note)
    assert seen.count("start") < 20, "a collection for every 700 new objects were hundreds"
    assert gc.isenabled()


@pytest.fixture
def thawed(monkeypatch):
    """Nothing is frozen, and few objects are many."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    monkeypatch.setattr(collecting, "MANY_YOUNG", 1000)
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()


def test_what_a_large_load_made_counts_as_old_at_once(thawed):
    with paused_collection():
        made = [[] for _ in range(2000)]
    assert any(each is made[7] for each in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_what_somebody_froze_stays_frozen(thawed):
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collection():
        made = [[] for _ in range(2000)]
    assert gc.get_freeze_count() >= frozen - 1000 > 0, "a few die by themselves"
    assert len(made) == 2000
