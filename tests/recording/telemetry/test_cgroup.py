"""Control groups as the kernel shows them, in a folder that stands in for ``/proc/self`` and ``/sys/fs/cgroup``."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.recording.telemetry.cgroup import cpu_quota


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def group(folder: Path, membership: str, mount: str) -> None:
    write(folder / "cgroup", membership)
    write(folder / "mountinfo", mount)


def second(folder: Path, path: str = "/job", root: str = "/") -> None:
    group(folder, f"0::{path}", f"31 23 0:28 {root} {folder}/sys rw shared:9 - cgroup2 cgroup2 rw,nsdelegate")


def first(folder: Path) -> None:
    group(folder, "4:cpu,cpuacct:/job\n0::/", f"32 31 0:29 / {folder}/sys rw - cgroup cgroup rw,cpu,cpuacct")


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
