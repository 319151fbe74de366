"""CompiledModule: machine code in this process, and the lock of those who make some."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.plugin.forks import new_reentrant_lock, no_fork


class _Compiling:
    """A reentrant lock that keeps other threads from forking while it is held."""

    def __init__(self) -> None:
        self._lock = new_reentrant_lock()
        self._gate = no_fork()

    def __enter__(self) -> None:
        self._gate.__enter__()  # first: a fork waits for whoever waits for the lock, too, and for its holder
        try:
            self._lock.acquire()
        except BaseException:  # a program's signal ended the wait
            self._gate.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        self._gate.__exit__()


compiling = _Compiling()
"""Held by whoever compiles or loads code: LLVM is not made for concurrent callers. A fork waits for it: a child would
find LLVM's own locks held for ever by a thread that it does not have."""


class CompiledModule:
    """Machine code in this process; functions found in it are addresses that live as long as it does.

    Args:
        object_code: the object file that it was made of.
        find: returns the address of a function, 0 where there is none.
        owner: what holds the memory.
    """

    def __init__(self, object_code: bytes, find: Callable[[str], int], owner: object) -> None:
        self.object_code = object_code
        self._find, self._owner = find, owner

    def address(self, function: str) -> int:
        """Return the address of a function.

        Raises:
            KeyError: the module has no such function.
        """
        found = self._find(function)
        if not found:
            raise KeyError(function)
        return found
