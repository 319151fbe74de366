"""What a forked child needs to live: it has one thread, and everything that the others held stays held for ever.

Two rules. Work that leaves half of something behind, or holds what no child can open (an import, LLVM), is done inside
``no_fork()``: a fork waits for the end of such work of other threads. Locks are made by ``new_lock`` or
``new_reentrant_lock``: a child finds them open, however the parent's other threads held them.

A fork waits for a minute at most: a program may hold, while it forks, what a load of another thread waits for.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

PATIENCE_S = 60.0  # a load takes seconds
_IMPORT_PATIENCE_S = 60.0  # an import of a second takes far longer on a busy machine
_IMPORTED = frozenset({"ort_core", "onnx", "google", "llvmlite", "numpy", "ml_dtypes", "pluggy", "concurrent", "json"})

# Modules that take a lock of their own for a fork, and what they call it.
_LOCKING = {"logging": "_lock", "concurrent.futures.thread": "_global_shutdown_lock"}

if TYPE_CHECKING:
    Lock = Any  # Any: threading.Lock is a function, and its type has no public name
else:
    Lock = object

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def new_lock() -> Lock:
    """Return a lock that is open in a forked child."""
    return _registered(threading.Lock())


def new_reentrant_lock() -> Lock:
    """Return a reentrant lock that is open in a forked child, unless the thread that forked holds it."""
    return _registered(threading.RLock())


def _registered(lock: Lock) -> Lock:
    _locks.add(lock)
    return lock


class _GateState:
    """Who is inside ``no_fork()``, and how many forks wait."""

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())
        self.inside: dict[int, int] = {}
        self.forks = 0

    def enter(self) -> None:
        """Wait for a fork that is under way, but not while somebody is inside: he may wait for this thread's work."""
        me = threading.get_ident()
        be_first()
        with self.condition:
            while self.forks and not self.inside:
                self.condition.wait()
            self.inside[me] = self.inside.get(me, 0) + 1

    def leave(self) -> None:
        """Leave once."""
        me = threading.get_ident()
        with self.condition:
            self.inside[me] -= 1
            if not self.inside[me]:
                del self.inside[me]
                self.condition.notify_all()

    def begin_fork(self) -> None:
        """Wait until nobody is inside, and keep all out; a thread inside waits for none: it may hold what they need."""
        me = threading.get_ident()
        with self.condition:
            self.forks += 1
            if me not in self.inside:
                self.condition.wait_for(lambda: not self.inside, PATIENCE_S)

    def end_fork(self) -> None:
        """Let others in again."""
        with self.condition:
            self.forks -= 1
            self.condition.notify_all()

    def become_child(self) -> None:
        """Forget the threads that are no more."""
        me = threading.get_ident()
        self.condition = threading.Condition(threading.Lock())
        self.inside = {thread: count for thread, count in self.inside.items() if thread == me}
        self.forks = 0


_gate = _GateState()


class _NoFork:
    """As ``contextlib.contextmanager`` would make of a function, without its import."""

    def __enter__(self) -> None:
        _gate.enter()

    def __exit__(self, *error: object) -> None:
        _gate.leave()


_no_fork = _NoFork()


def no_fork() -> _NoFork:
    """Let no other thread fork meanwhile. May be nested; the thread itself may fork."""
    return _no_fork


_turn = threading.local()


def _before_fork() -> None:
    if getattr(_turn, "is_forking", False):  # registered more than once
        return
    _turn.is_forking = True
    unknown = [name for name in _LOCKING if name not in sys.modules]
    _gate.begin_fork()
    limit = time.monotonic() + _IMPORT_PATIENCE_S
    while threading.active_count() > 1 and _is_importing() and time.monotonic() < limit:
        time.sleep(0.001)
    for name in unknown:
        _hold_late_lock(name)


def _hold_late_lock(name: str) -> None:
    """Take the lock of a module that a load imported while this fork waited.

    The system calls what the module registered behind the fork, which lets the lock go, but not what it registered
    before the fork. The locks have no public names; where one has another name, the system writes a line to stderr.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        lock = getattr(module, _LOCKING[name], None)
        if lock is not None:
            lock.acquire()


def _is_importing() -> bool:
    """Return whether a module that sessions use is half imported: a run imports some that no load needs."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _IMPORTED and getattr(getattr(module, "__spec__", None), "_initializing", False):
            return True
    return False


def _after_in_parent() -> None:
    if getattr(_turn, "is_forking", False):
        _turn.is_forking = False
        _gate.end_fork()


def _after_in_child() -> None:
    _turn.is_forking = False
    _gate.become_child()
    _forget_imports_of_others()
    for lock in list(_locks):
        is_own = getattr(lock, "_is_owned", None)
        if is_own is None or not is_own():
            lock._at_fork_reinit()  # as threading and logging do with theirs


def _forget_imports_of_others() -> None:
    """Let the child import anew what another thread was importing after all, as where patience came to an end.

    CPython keeps the locks of modules by name in ``_frozen_importlib``; where it does not, nothing is forgotten.
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    me = threading.get_ident()
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if name.partition(".")[0] != "ort_core" or owner in (None, me):
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


_seen: set[str] = set()


def be_first() -> None:
    """Let forks wait for loads before they take the locks of modules that loads may need.

    The system asks those first that registered last. Whoever imports such a module within a load, and uses it, calls
    this in between.
    """
    for name in _LOCKING:
        if name not in _seen and name in sys.modules and hasattr(os, "register_at_fork"):
            _seen.add(name)
            os.register_at_fork(before=_before_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
