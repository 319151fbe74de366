"""Signals that end a command: each raises what lets the command remove what it has begun.

Python loses what is raised where no exception can leave, in callbacks of weak references and finalizers: such a signal
is repeated.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable

_SECONDS_UNTIL_REPEATED = 0.05


_ENDING = ("SIGTERM", "SIGHUP", "SIGBREAK")  # of `kill`; of a closed terminal; of Windows' Ctrl-Break


class Terminated(SystemExit):
    """The command was told to end by a signal. Its code is the one that shells show for that.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def end_in_order() -> None:
    """Let signals that end a command raise ``Terminated``, where they would end the process at once.

    Halves of files and folders of the moment would stay, and processes that measure. A signal that is ignored, as
    under ``nohup``, stays so.
    """
    for name in _ENDING:
        number = getattr(signal, name, None)  # only Windows has SIGBREAK, and no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def run_program(main: Callable[[], object]) -> None:
    """Run what a program does; a signal that ends it gives 128 and its number, and a sentence on stderr.

    Files of the moment are removed on the way, and what stood under their names before stays.

    Args:
        main: the program; a whole number that it returns is its code.
    """
    repeat_lost_interrupts()
    end_in_order()
    try:
        code = main()
    except KeyboardInterrupt:
        _tell(signal.SIGINT)
        sys.exit(128 + signal.SIGINT)
    except Terminated as ended:
        _tell(signal.Signals(ended.number))
        raise
    if type(code) is int:  # and not whether something was found, say
        sys.exit(code)


def _tell(number: signal.Signals) -> None:
    sys.stderr.write(f"ended by {number.name}: what was being written is not there, and what was there before stays\n")


def _terminate(number: int, frame: object) -> None:
    raise Terminated(number)


def repeat_lost_interrupts() -> None:
    """Signal the main thread again when it could not raise where the signal met it.

    Python hands such an exception to :func:`sys.unraisablehook` and goes on, so the command would not end. The
    import system has such callbacks, and most of a command's first second is imports. The signal is repeated from
    another thread, a moment later: raised inside of the hook it would be lost like the first.
    """
    report = sys.unraisablehook

    def repeat(unraisable: sys.UnraisableHookArgs, /) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            number = signal.SIGINT
        elif isinstance(unraisable.exc_value, Terminated):
            number = signal.Signals(unraisable.exc_value.number)
        else:
            report(unraisable)
            return
        timer = threading.Timer(_SECONDS_UNTIL_REPEATED, _signal_main_thread, (number,))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat


def _signal_main_thread(number: signal.Signals) -> None:
    thread = threading.main_thread().ident
    if thread is not None and hasattr(signal, "pthread_kill"):  # ends a wait in the system, too
        signal.pthread_kill(thread, number)
    else:
        _thread.interrupt_main(number)
