"""Which of a job's processes this is, and on which folder all of them agree without talking."""

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
    """One process of a job as its launcher describes it in the environment."""

    rank: int
    world_size: int
    local_rank: int
    started_ns: int
    """When the job started: the same in every process of a node."""

    host: str
    restart: int
    """How often the launcher has started the job anew."""

    block: int = 0
    """Which of the process's captured blocks, from 0."""

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """Read the variables that torchrun sets; a process without them is a job of its own."""
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
        """Where the bundle goes when no folder is named."""
        time = datetime.fromtimestamp(self.started_ns / 1e9).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        block = f"-{self.block + 1}" if self.block else ""
        return RUNS / f"{time}-{_safe(script)}{self._suffix}{block}"

    def given(self, folder: Path) -> Path:
        """Where the bundle goes when a folder is named: a job started anew does not overwrite its first try."""
        return folder.with_name(f"{folder.name}{self._suffix}") if self._suffix else folder

    def of_block(self, number: int) -> Launch:
        """The same for a later captured block of the process, from 0: a run of its own."""
        return replace(self, started_ns=self.started_ns + number, block=number)

    @property
    def _suffix(self) -> str:
        return f"-restart{self.restart}" if self.restart else ""


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() else default


def _start_ns(pid: int) -> int:
    """A process's start, rounded to the kernel's own hundredths so that every reader gets the same."""
    return round(psutil.Process(pid).create_time() * 100) * 10_000_000


def _safe(name: str) -> str:
    """A name fit for a file's."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "script"
