"""Identifies processes: their machine, and when they started."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Literal, TypeVar

import msgspec


def host_name() -> str:
    """The network name of this machine, with only those characters that are safe in file names."""
    return safe_name(socket.gethostname(), default="host")


def safe_name(name: str, *, default: str) -> str:
    """The name with only those characters that are safe in file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or default


def start_ticks(pid: int | Literal["self"]) -> int | None:
    """When a process started, in the kernel's ticks since boot; None without such a process or without ``/proc``."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = content.rpartition(b")")[2].split()  # a name may hold spaces and brackets
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


_Value = TypeVar("_Value")


def written(value: object) -> str:
    """A value as ASCII. Bytes of a path that are no UTF-8, which Python holds as lone surrogates, are escaped."""
    return json.dumps(msgspec.to_builtins(value))


def understood(text: str | bytes, kind: type[_Value]) -> _Value:
    """The value that was written; raises ValueError for anything else."""
    return msgspec.convert(json.loads(text), type=kind)
