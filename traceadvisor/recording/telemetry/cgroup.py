"""How much CPU time the control groups of this process grant it (version 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Mount:
    folder: Path
    root: PurePosixPath
    """The group that the folder shows: not ``/`` in many a container."""


def cpu_quota(process: Path = Path("/proc/self")) -> float | None:
    """Cores granted: the least of any group this process is in; None where none sets a limit or none can be read."""
    return min(_quotas(process), default=None)


def _quotas(process: Path) -> Iterator[float]:
    try:
        memberships = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for folder in _folders(_mount(mounts, "cgroup2", None), group):
                yield from _quota_of(folder, "cpu.max", None)
        elif "cpu" in controllers.split(","):
            for folder in _folders(_mount(mounts, "cgroup", "cpu"), group):
                yield from _quota_of(folder, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _mount(lines: list[str], kind: str, controller: str | None) -> _Mount | None:
    """Where a hierarchy is mounted, as ``/proc/self/mountinfo`` (proc(5)) tells it."""
    for line in lines:
        mount, _, source = line.partition(" - ")
        fields, what = mount.split(), source.split()
        if len(fields) < 5 or len(what) < 3 or what[0] != kind:
            continue
        if controller is None or controller in what[2].split(","):
            return _Mount(Path(fields[4]), PurePosixPath(fields[3]))
    return None


def _folders(mount: _Mount | None, group: str) -> Iterator[Path]:
    """The folder of a group and of those above it, as far as they can be seen from here."""
    if mount is None:
        return
    path = PurePosixPath(group)
    below = path.relative_to(mount.root) if path.is_relative_to(mount.root) else PurePosixPath()
    if ".." in below.parts:
        below = PurePosixPath()
    for part in (below, *below.parents) if below.parts else (below,):
        yield mount.folder / part


def _quota_of(folder: Path, quota_file: str, period_file: str | None) -> Iterator[float]:
    """The quota that one group sets, if it does."""
    try:
        words = (folder / quota_file).read_text().split()
        if period_file is not None:
            words += (folder / period_file).read_text().split()
        quota_us, period_us = (float(word) for word in words)
    except (OSError, ValueError):  # no such file, or "max"
        return
    if quota_us > 0 and period_us > 0:
        yield quota_us / period_us
