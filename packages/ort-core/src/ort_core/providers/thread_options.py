"""ThreadOptions: how many threads a provider may use, how they wait, and which processors they may run on.

Affinities are written as onnxruntime writes them: one group for each thread but the caller's own, groups parted by
``;``, processors counted from 1, as a list ``1,2`` or a range ``1-8``.
"""

from __future__ import annotations

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen

MOST_PROCESSORS = 1024  # of one affinity mask: glibc's cpu_set_t has as many


@frozen
class ThreadOptions:
    """What a session asks of the threads within its operators.

    Attributes:
        num_threads: the caller's own included; 0 lets the provider choose.
        allow_spinning: whether idle threads look for work a while before they sleep.
        spin_duration_us: how long they look, in microseconds; 0 lets the provider choose.
        spin_between_runs: whether they go on looking when a run is over.
        affinities: the processors of each thread but the caller's, counted from 0; empty: any.
    """

    num_threads: int = 0
    allow_spinning: bool = True
    spin_duration_us: int = 0
    spin_between_runs: bool = True
    affinities: tuple[tuple[int, ...], ...] = ()

    def with_threads(self, num_threads: int) -> ThreadOptions:
        """Return the same for another number of threads (``dataclasses.replace`` would make a dataclass: 1.5 ms)."""
        return ThreadOptions(
            num_threads, self.allow_spinning, self.spin_duration_us, self.spin_between_runs, self.affinities
        )

    def __post_init__(self) -> None:
        """Check that there is an affinity for each worker.

        Raises:
            InvalidArgument: the number of affinities is not ``num_threads - 1``.
        """
        if self.affinities and len(self.affinities) != self.num_threads - 1:
            raise InvalidArgument(
                f"session.intra_op_thread_affinities names {len(self.affinities)} groups of processors; "
                f"intra_op_num_threads is {self.num_threads}, so {max(self.num_threads - 1, 0)} are expected: one for "
                "each thread but the caller's own. Set intra_op_num_threads and give one group fewer than it."
            )


def parse_affinities(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the processors of each group in ``1,2;3-4``, counted from 0.

    Raises:
        InvalidArgument: a group is empty, is not numbers, starts below 1, or goes beyond 1,024 processors.
    """
    return tuple(_group(group.strip(), text) for group in text.split(";")) if text.strip() else ()


def _group(group: str, text: str) -> tuple[int, ...]:
    low, dash, high = group.partition("-")
    numbers = [low, high] if dash else group.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise _refused(group, text, "is not a list as 1,2 nor a range as 1-8")
    values = [int(number) for number in numbers]
    if min(values) < 1 or max(values) > MOST_PROCESSORS:
        raise _refused(group, text, f"names processors outside 1 to {MOST_PROCESSORS}")
    if dash and values[0] > values[1]:
        raise _refused(group, text, "is a range that ends before it starts")
    chosen = range(values[0], values[1] + 1) if dash else values
    return tuple(processor - 1 for processor in chosen)


def _refused(group: str, text: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"session.intra_op_thread_affinities is {text!r}: the group {group!r} {why}. Processors count from 1; groups "
        "are parted by ';', as in '1,2;3,4' or '1-8;9-16'."
    )
