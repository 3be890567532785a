"""Identifies this process within its job, and the folder on which all its processes agree without communication."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psutil

RUNS = Path("runs")


class _Variables(NamedTuple):
    """Environment variables of a launcher."""

    rank: str
    world_size: str
    local_rank: str


_LAUNCHERS = (
    _Variables("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, and others that follow it
    _Variables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    _Variables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
    _Variables("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),  # srun; in sbatch's own shell there is no step
)


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
        """Read the launcher's variables; a process without them is a job of its own."""
        names = next((each for each in _LAUNCHERS if set(each) <= environment.keys()), _LAUNCHERS[0])
        launched = names.rank in environment and names.local_rank in environment
        world_size = _number(environment, names.world_size, 1)
        return cls(
            rank=_number(environment, names.rank, 0),
            world_size=world_size,
            local_rank=_number(environment, names.local_rank, 0),
            started_ns=_start_ns(os.getppid() if launched and world_size > 1 else os.getpid()),
            host=_safe(socket.gethostname()),
            restart=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        )

    def of_training(self) -> Launch:
        """The same once the process trains: then torch knows its rank, also without a launcher's variables."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return self
        return replace(self, rank=distributed.get_rank(), world_size=distributed.get_world_size())

    @property
    def job(self) -> str:
        """The same text in all ranks of a job on this node, and another in each other job of the node."""
        if self.world_size == 1:
            return f"process {os.getpid()}"
        port = os.environ.get("MASTER_PORT")
        address = f"{os.environ.get('MASTER_ADDR')}:{port}" if port else f"child of {os.getppid()}"
        return f"{address}, {self.world_size} ranks, restart {self.restart}"

    def bundle(self, folder: Path | None, script: str) -> Path:
        """The folder of the bundle: the given one, or else the default of a script."""
        return self.given(folder) if folder else self.folder(script)

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


def start_of_this_process() -> tuple[int, int]:
    """The start of this process on the wall clock and on the monotonic clock, to the kernel's ticks; now if unknown.

    The age comes from the kernel's boot clock: the process's creation time on the wall clock is off by up to a second.
    """
    wall_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_START_TICKS])
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        age_ns = 0
    age_ns = max(age_ns, 0)
    return wall_ns - age_ns, clock_ns - age_ns


_START_TICKS = 19
"""Place of the start time among the fields of ``/proc/self/stat`` after the process's name; proc(5), field 22."""


def _safe(name: str) -> str:
    """The name with only those characters that are safe in file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "script"
