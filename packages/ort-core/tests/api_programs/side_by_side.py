"""Work of several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def side_by_side(work: Callable[[int], object], count: int) -> list[object]:
    """Return what ``work(number)`` returns in each of so many threads; the first error of them is raised."""
    found: list[object] = [None] * count

    def done(number: int) -> None:
        try:
            found[number] = work(number)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is raised below
            found[number] = error

    threads = [threading.Thread(target=done, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found
