"""Identifies processes: their machine, and when they started."""

from __future__ import annotations

import re
import socket
from pathlib import Path


def host_name() -> str:
    """The network name of this machine, with only those characters that are safe in file names."""
    return safe_name(socket.gethostname(), default="host")


def safe_name(name: str, *, default: str) -> str:
    """The name with only those characters that are safe in file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or default


def start_ticks(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot; None without such a process or without ``/proc``."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = content.rpartition(b")")[2].split()  # a name may hold spaces and brackets
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])
