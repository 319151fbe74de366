"""Threads may ask an environment at the same time: each thing in it is made once, and nobody waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from ort_core.environment import Environment
from ort_core.providers.discovery import PluginSource
from ort_core.providers.provider import Available, Unavailable
from ort_core.testing.fake_providers import EchoProvider, plugin_of

LIMIT_S = 200.0  # of a hang; how busy the machine is decides nothing
FIRST_QUESTIONS = f"""
import faulthandler, threading
from ort_core.environment import Environment
faulthandler.dump_traceback_later({LIMIT_S}, exit=True)
environment, begin = Environment(), threading.Barrier(2)
def discover():
    begin.wait()
    environment.plugins
def check():
    begin.wait()
    environment.check("CPUExecutionProvider")
threads = [threading.Thread(target=each) for each in (discover, check)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class _Sources:
    """The sources of one plugin, which are found slowly enough for another thread to come in between."""

    def __init__(self) -> None:
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self) -> Sequence[PluginSource]:
        self.count += 1
        self.is_asked.set()
        self.may_go_on.wait(0.2)
        return [plugin_of(EchoProvider)]


def _together(sources: _Sources, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    """Return what both give; the second begins when the first has asked for plugins."""
    results: dict[int, object] = {}

    def run(number: int, function: Callable[[], object]) -> None:
        results[number] = function()

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate((first, second))]
    threads[0].start()
    assert sources.is_asked.wait(LIMIT_S)
    threads[1].start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads), "two threads wait for each other"
    return [results[number] for number in range(2)]


@pytest.mark.parametrize("name", ["plugins", "devices", "passes", "operators"])
def test_what_threads_ask_for_at_the_same_time_is_made_once(name: str) -> None:
    sources = _Sources()
    environment = Environment(sources)
    one, other = _together(sources, lambda: getattr(environment, name), lambda: getattr(environment, name))
    assert one is other, f"two threads were given different {name}"
    assert sources.count == 1


def test_a_check_beside_a_discovery_does_not_wait_for_ever(tmp_path: Path) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", FIRST_QUESTIONS],
        capture_output=True,
        text=True,
        env={**os.environ, "ORT_CACHE_DIR": str(tmp_path)},
    )
    assert asked.returncode == 0, f"two threads wait for each other:\n{asked.stderr}"


class HangingProvider(EchoProvider):
    """A provider whose driver hangs until the test ends."""

    name = "HangingExecutionProvider"
    driver = threading.Event()
    asked: ClassVar[list[str]] = []

    @classmethod
    def check(cls) -> Available | Unavailable:
        cls.asked.append(threading.current_thread().name)
        cls.driver.wait(LIMIT_S)
        return Available("after all")


def test_a_check_that_hangs_makes_the_provider_unavailable_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_PROVIDER_CHECK_TIMEOUT_S", "0.3")
    monkeypatch.setattr(HangingProvider, "is_listed", True)
    monkeypatch.setattr(HangingProvider, "asked", [])
    environment = Environment(lambda: [plugin_of(HangingProvider)])
    try:
        assert HangingProvider.name not in environment.available_providers()
        answer = environment.check(HangingProvider.name)
        assert isinstance(answer, Unavailable)
        assert "no answer within 0.3 s" in answer.reason
        assert "ORT_PROVIDER_CHECK_TIMEOUT_S" in str(answer)
        assert len(HangingProvider.asked) == 1, "it is asked once, whoever asks again"
    finally:
        HangingProvider.driver.set()


def test_while_a_check_takes_its_time_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HangingProvider, "asked", [])
    monkeypatch.setattr(HangingProvider, "driver", threading.Event())
    environment = Environment(lambda: [plugin_of(HangingProvider, EchoProvider)])
    answers: list[object] = []
    askers = [
        threading.Thread(target=lambda: answers.append(environment.check(HangingProvider.name)), daemon=True)
        for _ in range(3)
    ]
    for asker in askers:
        asker.start()
    assert environment.check(EchoProvider.name), "it waits for a provider that it does not concern"
    HangingProvider.driver.set()
    for asker in askers:
        asker.join(LIMIT_S)
    assert [str(each) for each in answers] == [str(Available("after all"))] * 3
    assert len(HangingProvider.asked) == 1
