"""When a file last changed, by a time that no ordinary program sets: who writes to a file, or replaces it, moves it.

Programs set the time of a file's contents: copies and archives keep that of the original.
"""

from __future__ import annotations

import os
import sys


def changed_ns(file: str | os.PathLike[str] | int, status: os.stat_result) -> int:
    """Return when a file last changed, in nanoseconds since the epoch.

    Args:
        file: its path, or a descriptor of it.
        status: what the system says of it; its ``st_ctime_ns`` is the time of creation on Windows, which stays.
    """
    if sys.platform == "win32":
        from ort_core.file_changes_windows import change_time_ns  # of this system

        return change_time_ns(file) or status.st_ctime_ns
    return status.st_ctime_ns
