"""A process that compiles for this one: LLVM, and what it holds while it compiles, is never in this one's memory.

LLVM takes 70 MB of the process that it is loaded into, 100 while it compiles for a model, and gives next to nothing of
that back. A process of its own gives all back: it ends where it has had nothing to do for three seconds. It starts
while this process still reads the model.

Where there is none, this process compiles: one whose interpreter is not known (an embedding program, a frozen one), one
that has loaded llvmlite anyway, and wherever starting the other one or talking to it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterable

from ort_core.cpu.codegen.machine_code.compiler_frames import (
    ANSWER,
    ASK_HOST,
    COMPILE,
    COMPILE_VECTORIZED,
    SET_TARGET,
    OutOfStep,
    read_frame,
    write_frame,
)
from ort_core.cpu.codegen.machine_code.module_text import ModuleText
from ort_core.cpu.codegen.machine_code.target import Target, target_of
from ort_core.cpu.codegen.machine_code.target_setting import setting_key
from ort_core.plugin import Rejection, environment_value

assert sys.platform == "linux"

_PROCESS_NBYTES = 8  # of the number that the starter tells
_PROGRAM = """
import os, sys
process = os.fork()
if process:
    os.write(0, process.to_bytes({nbytes}, "little"))
    os._exit(0)
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        try:
            os.close(int(name))
        except OSError:
            pass
sys.path[:] = {path!r}
try:
    from ort_core.cpu.codegen.machine_code.compiler_worker import serve
except ImportError:
    sys.exit(1)
serve(0)
"""
"""What is started only starts the one that compiles, so that no program waits for, or meets, a child that ended later.

It keeps no file of this process open, and says nothing where its path alone does not find all modules.
"""


class CompilerProcess:
    """One that runs; whoever uses it holds ``compiling``."""

    def __init__(self, starter: int, channel: socket.socket) -> None:
        self.owner, self.setting = os.getpid(), setting_key()
        self._starter: int | None = starter  # until it has told which process it started
        self._channel = channel
        self._process = 0

    def process(self) -> int:
        """Return the number of the process that compiles.

        Raises:
            OSError: none was started.
        """
        if self._starter is not None:
            told = self._channel.recv(_PROCESS_NBYTES, socket.MSG_WAITALL)
            self._wait_for_starter()
            if len(told) < _PROCESS_NBYTES:
                raise OutOfStep("none was started")
            self._process = int.from_bytes(told, "little")
        return self._process

    def _wait_for_starter(self) -> None:
        starter, self._starter = self._starter, None
        if starter is not None and self.owner == os.getpid():  # a forked child has but a copy of the socket
            with contextlib.suppress(ChildProcessError):  # somebody who waits for any child was first
                os.waitpid(starter, 0)

    def host(self) -> Target:
        """Return what ``llvm_targets.host_target`` returns there.

        Raises:
            OSError: the process has ended, or could not tell.
        """
        self.process()
        self._write(ASK_HOST, 0, b"")
        kind, _, content = read_frame(self._channel.fileno())
        if kind != ANSWER:
            raise OutOfStep(content.decode())
        triple, cpu, features, compiler = json.loads(content)
        return target_of(triple, cpu, features, compiler)

    def object_codes(self, texts: Iterable[ModuleText], target: Target, num_threads: int) -> list[bytes]:
        """Return the object code of modules; while one is written here, those before it are compiled there.

        Raises:
            OSError: the process has ended.
            RuntimeError: a text is no valid LLVM IR; a bug of a generator.
        """
        self.process()
        facts = [target.triple, target.cpu, target.features, target.compiler, num_threads]
        self._write(SET_TARGET, 0, json.dumps(facts).encode())
        count = 0
        for count, each in enumerate(texts, 1):
            self._write(COMPILE_VECTORIZED if each.is_vectorized else COMPILE, count, each.text.encode())
        answers = sorted(self._answers(count))
        refused = [content.decode() for _, kind, content in answers if kind != ANSWER]
        if refused:
            raise RuntimeError(refused[0])
        return [content for _, _, content in answers]

    def _answers(self, count: int) -> list[tuple[int, int, bytes]]:
        frames = [read_frame(self._channel.fileno()) for _ in range(count)]
        return [(number, kind, content) for kind, number, content in frames]

    def _write(self, kind: int, number: int, content: bytes) -> None:
        write_frame(lambda part: self._channel.send(part, socket.MSG_NOSIGNAL), kind, number, content)

    def has_ended(self) -> bool:
        """Return whether it ended by itself, or says what nobody asked."""
        if self._starter is not None:
            return False
        try:
            self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Let it end; what it compiles meanwhile is lost."""
        self._channel.close()
        self._wait_for_starter()


class _Running:
    """The compiler of this process, ``None`` where there is none now."""

    process: CompilerProcess | None = None
    refusal: Rejection | None = None


_running = _Running()


def compiler_process() -> CompilerProcess | Rejection:
    """Return the process that compiles for this one, started if there is none; its caller holds ``compiling``."""
    refusal = _refusal()
    if refusal is not None:
        return refusal
    known = _running.process
    if known is not None and known.owner == os.getpid() and known.setting == setting_key() and not known.has_ended():
        return known
    give_up()
    try:
        _running.process = _started()
    except OSError as error:
        _running.refusal = Rejection(f"no process could be started: {error}")
        return _running.refusal
    return _running.process


def give_up() -> None:
    """End the process that compiles, if there is one: it said what it should not, or nobody knows where it is."""
    known, _running.process = _running.process, None
    if known is not None:
        known.close()


def _refusal() -> Rejection | None:
    if not (environment_value("ORT_COMPILER_PROCESS") and environment_value("ORT_SHORT_CUTS")):
        return Rejection("it is switched off")
    if "llvmlite.binding" in sys.modules:
        return Rejection("LLVM is in this process anyway")
    if getattr(sys, "frozen", False) or not os.path.basename(sys.executable or "").startswith("python"):
        return Rejection(f"{sys.executable!r} is no interpreter of Python")
    return _running.refusal


def _started() -> CompilerProcess:
    ours, theirs = socket.socketpair()
    with theirs:
        path = [os.path.abspath(each) for each in sys.path]
        flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        if sys.pycache_prefix:
            flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
        command = [sys.executable, *flags, "-c", _PROGRAM.format(path=path, nbytes=_PROCESS_NBYTES)]
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            starter = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setpgroup=0)
        except BaseException:
            ours.close()
            raise
    return CompilerProcess(starter, ours)
