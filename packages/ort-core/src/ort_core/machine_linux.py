"""What Linux tells in files: which processors share a core, and the limits of the control groups around this process.

A process is in a group of a tree: a service of systemd, a job of a scheduler, a container. Each group on the way to
the root may limit processor time and memory, and the least limit holds. In a container the root that is seen is mostly
its own group; where the name of the group is that of the host and no folder, the root alone is asked.

Source: cgroups(7), https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from typing import TypeAlias

SYSTEM, MEMBERSHIP = "/sys", "/proc/self/cgroup"
_NO_LIMIT = 1 << 60  # bytes; kernels write a number of pages beyond any machine where nothing limits

Place: TypeAlias = str | PathLike[str]


def count_cores(processors: Iterable[int], system: Place = SYSTEM) -> int:
    """Return how many different cores these processors belong to; a processor of unknown core is one of its own."""
    cores = set()
    for processor in processors:
        siblings = _read(f"{fspath(system)}/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores.add(siblings or str(processor))
    return len(cores)


def group_quota(system: Place = SYSTEM, membership: Place = MEMBERSHIP) -> float | None:
    """Return the processor time that the groups leave this process, in processors; ``None`` without a limit."""
    found = []
    for folder in _groups("cpu", system, membership):
        quota, _, period = _read(f"{folder}/cpu.max").partition(" ")
        if not quota:
            quota, period = (_read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def group_memory(system: Place = SYSTEM, membership: Place = MEMBERSHIP) -> int | None:
    """Return the bytes of memory that the groups leave this process; ``None`` without a limit."""
    found = []
    for folder in _groups("memory", system, membership):
        limit = _read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes")
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            found.append(int(limit))
    return min(found, default=None)


def _groups(controller: str, system: Place, membership: Place) -> Iterator[str]:
    """Yield the folders of the groups of this process, each up to its root: of the unified tree and a controller's."""
    paths = {"": "/", controller: "/"}
    for line in _read(membership).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for name in controllers.split(","):
            if name in paths:
                paths[name] = path
    root = f"{fspath(system)}/fs/cgroup"
    for mount, path in ((root, paths[""]), (f"{root}/unified", paths[""]), (f"{root}/{controller}", paths[controller])):
        parts = [part for part in path.split("/") if part]
        if ".." in parts:  # the group of a process that was moved out of the tree that is seen
            parts = []
        for count in range(len(parts), -1, -1):
            yield "/".join((mount, *parts[:count]))


def _read(path: Place) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # not every kernel and container has every file
        return ""
