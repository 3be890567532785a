"""Control groups as the kernel shows them, in a folder that stands in for ``/proc/self`` and ``/sys/fs/cgroup``."""

from pathlib import Path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def group(folder: Path, membership: str, mount: str) -> None:
    write(folder / "cgroup", membership)
    write(folder / "mountinfo", mount)


def second(folder: Path, path: str = "/job", root: str = "/") -> None:
    """Version 2, all controllers in one hierarchy."""
    group(folder, f"0::{path}", f"31 23 0:28 {root} {folder}/sys rw shared:9 - cgroup2 cgroup2 rw,nsdelegate")


def first(folder: Path, controllers: str = "cpu,cpuacct") -> None:
    """Version 1, a hierarchy for some controllers."""
    group(folder, f"4:{controllers}:/job\n0::/", f"32 31 0:29 / {folder}/sys rw - cgroup cgroup rw,{controllers}")
