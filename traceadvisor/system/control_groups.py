"""The control groups of a process, version 1 and 2, read from ``/proc`` (cgroups(7), proc(5))."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from traceadvisor.frozen import frozen

OWN_PROCESS = Path("/proc/self")


@frozen
class ControlGroup:
    """A group's folder, and the version of its files."""

    folder: Path
    version: int

    def number(self, name: str) -> int | None:
        """The number in a file; None if there is no such file or no number in it (``max``)."""
        try:
            return int((self.folder / name).read_text())
        except (OSError, ValueError):
            return None

    def counts(self, name: str) -> dict[str, int]:
        """The lines ``name number`` of a file; empty if there is no such file."""
        try:
            lines = [line.split() for line in (self.folder / name).read_text().splitlines()]
            return {line[0]: int(line[1]) for line in lines if len(line) == 2}
        except (OSError, ValueError):
            return {}


def control_groups(controller: str, process: Path = OWN_PROCESS) -> Iterator[ControlGroup]:
    """Yield the process's group under a controller (``cpu``, ``memory``), then the visible groups above it.

    Yields nothing if ``/proc`` cannot be read.
    """
    try:
        memberships = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for folder in _folders(mounts, "cgroup2", None, group):
                yield ControlGroup(folder, 2)
        elif controller in controllers.split(","):
            for folder in _folders(mounts, "cgroup", controller, group):
                yield ControlGroup(folder, 1)


def _folders(mounts: list[str], kind: str, controller: str | None, group: str) -> Iterator[Path]:
    """The folder of a group and of those above it, by the lines of ``/proc/self/mountinfo`` on its hierarchy."""
    for line in mounts:
        mount, _, source = line.partition(" - ")
        fields, what = mount.split(), source.split()
        if len(fields) < 5 or len(what) < 3 or what[0] != kind:
            continue
        if controller is None or controller in what[2].split(","):
            path, root = PurePosixPath(group), PurePosixPath(fields[3])  # in many containers, the root is not ``/``
            below = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
            if ".." in below.parts:
                below = PurePosixPath()
            for part in (below, *below.parents) if below.parts else (below,):
                yield Path(fields[4]) / part
            return
