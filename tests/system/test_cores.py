import os
from pathlib import Path

import pytest

from tests.control_groups import first, second, write
from traceadvisor.system import cores
from traceadvisor.system.cores import cpu_quota, usable_cores


def test_version_2_gives_quota_over_period(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/cpu.max", "250000 100000")
    assert cpu_quota(tmp_path) == 2.5


def test_version_2_without_a_limit_has_no_quota(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/cpu.max", "max 100000")
    assert cpu_quota(tmp_path) is None


def test_the_group_above_limits_too(tmp_path: Path) -> None:
    second(tmp_path, "/pod/job")
    write(tmp_path / "sys/pod/job/cpu.max", "max 100000")
    write(tmp_path / "sys/pod/cpu.max", "400000 100000")
    assert cpu_quota(tmp_path) == 4


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    second(tmp_path, "/docker/abc", root="/docker/abc")
    write(tmp_path / "sys/cpu.max", "150000 100000")
    assert cpu_quota(tmp_path) == 1.5


def test_version_1_gives_quota_over_period(tmp_path: Path) -> None:
    first(tmp_path)
    write(tmp_path / "sys/job/cpu.cfs_quota_us", "300000")
    write(tmp_path / "sys/job/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == 3


def test_version_1_without_a_limit_has_no_quota(tmp_path: Path) -> None:
    first(tmp_path)
    write(tmp_path / "sys/job/cpu.cfs_quota_us", "-1")
    write(tmp_path / "sys/job/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) is None


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("machine", "affinity", "quota", "usable"),
    [(8, 8, None, 8), (8, 6, None, 6), (8, 6, 2.5, 2), (8, 8, 0.5, 1), (8, 1, 16.0, 1), (None, 2, None, 2)],
)
def test_the_smallest_limit_decides_how_many_cores_are_usable(
    machine: int | None, affinity: int, quota: float | None, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert usable_cores() == usable


def test_a_system_without_affinity_limits_by_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(cores, "cpu_quota", lambda: None)
    assert usable_cores() == 3
