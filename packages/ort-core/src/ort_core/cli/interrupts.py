"""Interrupts that Python loses: raised where no exception can leave, in callbacks of weak references and finalizers."""

from __future__ import annotations

import _thread
import signal
import sys
import threading

_SECONDS_UNTIL_REPEATED = 0.05


def repeat_lost_interrupts() -> None:
    """Interrupt the main thread again when it could not raise a ``KeyboardInterrupt`` where the signal met it.

    Python hands such an exception to :func:`sys.unraisablehook` and goes on, so the command would not end. The
    import system has such callbacks, and most of a command's first second is imports. The interrupt is repeated from
    another thread, a moment later: raised inside of the hook it would be lost like the first.
    """
    report = sys.unraisablehook

    def repeat(unraisable: sys.UnraisableHookArgs, /) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        timer = threading.Timer(_SECONDS_UNTIL_REPEATED, _interrupt_main_thread)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat


def _interrupt_main_thread() -> None:
    thread = threading.main_thread().ident
    if thread is not None and hasattr(signal, "pthread_kill"):  # ends a wait in the system, too
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        _thread.interrupt_main()
