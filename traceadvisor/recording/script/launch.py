"""Identifies this process within its job, and the folder on which all its processes agree without communication."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import psutil

RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a job, by the environment variables of its launcher."""

    rank: int
    world_size: int
    local_rank: int
    started_ns: int
    """Start of the job, equal in all processes of a node."""

    host: str
    restart: int
    """How often the launcher has restarted the job."""

    block: int = 0
    """Number of the captured block in this process, from 0."""

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """Read torchrun's variables; a process without them is a job of its own."""
        rank, world_size = _number(environment, "RANK", 0), _number(environment, "WORLD_SIZE", 1)
        launched = "RANK" in environment and "LOCAL_RANK" in environment
        return cls(
            rank=rank,
            world_size=world_size,
            local_rank=_number(environment, "LOCAL_RANK", 0),
            started_ns=_start_ns(os.getppid() if launched else os.getpid()),
            host=_safe(socket.gethostname()),
            restart=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        )

    def folder(self, script: str) -> Path:
        """The default folder of the bundle."""
        time = datetime.fromtimestamp(self.started_ns / 1e9).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        block = f"-{self.block + 1}" if self.block else ""
        return RUNS / f"{time}-{_safe(script)}{self._suffix}{block}"

    def given(self, folder: Path) -> Path:
        """The bundle's folder for a given folder: a restarted job does not overwrite the bundle of its first start."""
        return folder.with_name(f"{folder.name}{self._suffix}") if self._suffix else folder

    def of_block(self, number: int) -> Launch:
        """The same for another captured block of the process, which is a run of its own."""
        return replace(self, started_ns=self.started_ns + number, block=number)

    @property
    def _suffix(self) -> str:
        return f"-restart{self.restart}" if self.restart else ""


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() else default


def _start_ns(pid: int) -> int:
    """The start of a process, rounded to the kernel's ticks (10 ms) so that every process computes the same."""
    return round(psutil.Process(pid).create_time() * 100) * 10_000_000


def _safe(name: str) -> str:
    """The name with only those characters that are safe in file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "script"
