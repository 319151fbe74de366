"""The process that compiles for another one (``compiler_process_linux``): it reads modules and writes object code.

It ends where the other does, and where that has had nothing to compile for a while.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from ort_core.cpu.codegen.machine_code.compiler_frames import (
    ANSWER,
    ASK_HOST,
    COMPILE_VECTORIZED,
    REFUSAL,
    SET_TARGET,
    read_frame,
    write_frame,
)
from ort_core.cpu.codegen.machine_code.jit import MOST_AT_ONCE, object_of
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, initialize
from ort_core.cpu.codegen.machine_code.module_text import ModuleText
from ort_core.cpu.codegen.machine_code.target import Target, target_of
from ort_core.plugin import raise_interruption

PATIENCE_S = 3.0  # between two programs of one load lie tenths of a second


class _WorkerState:
    """What modules are compiled for, and by which threads."""

    def __init__(self, file: int) -> None:
        self._file, self._writing = file, Lock()
        self._target: Target | None = None
        self._threads = ThreadPoolExecutor(1)
        self._started: list[Future[None]] = []

    @property
    def is_busy(self) -> bool:
        """Whether something is not compiled yet."""
        self._started = [each for each in self._started if not each.done()]
        return bool(self._started)

    def take(self, kind: int, number: int, content: bytes) -> None:
        """Do what a frame asks for; modules are compiled on other threads."""
        if kind == ASK_HOST:
            self._answer(number, _host)
        elif kind == SET_TARGET:
            triple, cpu, features, compiler, num_threads = json.loads(content)
            self._target = target_of(triple, cpu, features, compiler)
            initialize(self._target)
            self._threads = ThreadPoolExecutor(min(num_threads, MOST_AT_ONCE))
        else:
            self._started.append(self._threads.submit(self._compile, kind, number, content))

    def _compile(self, kind: int, number: int, content: bytes) -> None:
        target, text = self._target, ModuleText(content.decode(), kind == COMPILE_VECTORIZED)
        assert target is not None, "SET_TARGET comes first"
        self._answer(number, lambda: object_of(text, target))

    def _answer(self, number: int, work: Callable[[], bytes]) -> None:
        try:
            kind, content = ANSWER, work()
        except Exception as error:  # noqa: BLE001 - whoever asked raises it
            raise_interruption(error)
            kind, content = REFUSAL, str(error).encode()
        with self._writing:
            write_frame(lambda part: os.write(self._file, part), kind, number, content)


def _host() -> bytes:
    found = host_target()
    return json.dumps([found.triple, found.cpu, found.features, found.compiler]).encode()


def serve(file: int) -> None:
    """Answer frames of a socket until nobody asks any more, then end this process."""
    state = _WorkerState(file)
    while select.select([file], [], [], PATIENCE_S)[0] or state.is_busy:
        try:
            state.take(*read_frame(file))
        except OSError:  # the other process has ended
            break
    os._exit(0)  # without waiting for threads that compile what nobody reads
