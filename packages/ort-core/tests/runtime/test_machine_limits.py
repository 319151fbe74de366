"""Control groups and cores as Linux tells them: the least limit on the way from a process's group to the root holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ort_core import machine_processors
from ort_core.machine_linux import count_cores, group_memory, group_quota
from ort_core.plugin.machine import available_processors, available_threads, usable_memory

NO_LIMIT = str((1 << 63) - 4096)  # as kernels write it for memory


class Machine:
    """A tree of files like those below /sys, and the file that names the groups of a process."""

    def __init__(self, folder: Path) -> None:
        self.system, self.membership = folder / "sys", folder / "membership"

    def limits(self, group: str, **files: str) -> None:
        """Write the limits of a group; ``__`` in a name stands for a dot."""
        place = self.system / "fs/cgroup" / group
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name.replace("__", ".")).write_text(text + "\n")

    def belongs(self, *lines: str) -> None:
        self.membership.write_text("".join(f"{line}\n" for line in lines))

    def quota(self) -> float | None:
        return group_quota(self.system, self.membership)

    def memory(self) -> int | None:
        return group_memory(self.system, self.membership)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("quota", "expected"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("50000 100000", 0.5)]
)
@pytest.mark.parametrize("is_named", [True, False])
def test_quota_is_read_from_both_versions_of_control_groups(
    tmp_path: Path, quota: str, expected: float | None, is_named: bool
) -> None:
    newer, older = Machine(tmp_path / "newer"), Machine(tmp_path / "older")
    newer.limits("", cpu__max=quota)
    amount, _, period = quota.partition(" ")
    older.limits("cpu", cpu__cfs_quota_us="-1" if amount == "max" else amount, cpu__cfs_period_us=period)
    if is_named:
        newer.belongs("0::/")
        older.belongs("4:memory:/", "3:cpu,cpuacct:/", "1:name=systemd:/user.slice")
    assert newer.quota() == older.quota() == expected


def test_a_service_is_limited_by_its_own_group_and_by_those_around_it(machine: Machine) -> None:
    """A service of systemd: the root of the tree has no limits at all."""
    machine.belongs("0::/system.slice/model.service")
    machine.limits("system.slice/model.service", cpu__max="400000 100000", memory__max="max")
    assert (machine.quota(), machine.memory()) == (4.0, None)
    machine.limits("system.slice", cpu__max="250000 100000", memory__max="6000000000")
    assert (machine.quota(), machine.memory()) == (2.5, 6_000_000_000)
    machine.limits("system.slice/model.service", cpu__max="100000 100000", memory__max="4000000000")
    assert (machine.quota(), machine.memory()) == (1.0, 4_000_000_000)
    machine.limits("system.slice/another.service", cpu__max="10000 100000", memory__max="4096")
    assert (machine.quota(), machine.memory()) == (1.0, 4_000_000_000)


def test_a_job_is_limited_by_the_groups_of_each_controller(machine: Machine) -> None:
    """A job of a scheduler on the first version: each controller has a tree of its own, and its groups other names."""
    machine.belongs("5:cpu,cpuacct:/slurm/job_7", "4:memory:/slurm/uid_1/job_7/step_0", "0::/slurm/job_7")
    machine.limits("memory", memory__limit_in_bytes=NO_LIMIT)
    machine.limits("memory/slurm/uid_1/job_7", memory__limit_in_bytes="8589934592")
    machine.limits("memory/slurm/uid_1/job_7/step_0", memory__limit_in_bytes=NO_LIMIT)
    machine.limits("cpu/slurm/job_7", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    machine.limits("cpu/slurm", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert (machine.quota(), machine.memory()) == (3.0, 8_589_934_592)


@pytest.mark.parametrize("group", ["/docker/8d2f", "/../../pod/8d2f", ""])
def test_a_container_that_sees_its_own_group_as_the_root(machine: Machine, group: str) -> None:
    """The name of the group is the host's, and no folder; or it lies out of sight."""
    machine.belongs(f"0::{group}", "not a line of the kernel")
    machine.limits("", cpu__max="200000 100000", memory__max="1073741824")
    assert (machine.quota(), machine.memory()) == (2.0, 1 << 30)


def test_both_versions_at_once(machine: Machine) -> None:
    machine.belongs("1:name=systemd:/", "0::/user.slice")
    machine.limits("unified/user.slice", cpu__max="300000 100000")
    machine.limits("cpu", cpu__cfs_quota_us="500000", cpu__cfs_period_us="100000")
    assert machine.quota() == 3.0


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for processor, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert count_cores(range(4), tmp_path) == 2
    assert count_cores([0, 1], tmp_path) == 2
    assert count_cores([0, 2], tmp_path) == 1
    assert count_cores([7], tmp_path) == 1, "a processor that the system says nothing of is a core of its own"


@pytest.mark.parametrize(("quota", "expected"), [(0.5, 1), (1.0, 1), (2.2, 3), (1000.0, 12), (None, 12)])
def test_a_quota_limits_the_default_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(machine_processors.sys, "platform", "an operating system of ours")
    monkeypatch.setattr(machine_processors, "usable_processors", lambda: range(12))
    monkeypatch.setattr(machine_processors, "processor_quota", lambda: quota)
    assert available_threads() == available_processors() == expected


def test_this_machine_has_processors_and_memory() -> None:
    assert 1 <= available_threads() <= available_processors() <= (os.cpu_count() or 1)
    assert usable_memory() > 0
