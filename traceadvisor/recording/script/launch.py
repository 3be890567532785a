"""Identifies this process within its job, and the folder on which all its processes agree without communication."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psutil

from traceadvisor.frozen import frozen
from traceadvisor.system import clocks
from traceadvisor.system.processes import host_name, safe_name, start_ticks
from traceadvisor.text.secrets import without_secrets

RUNS = Path("runs")


class _Launcher(NamedTuple):
    """Environment variables of a launcher."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str
    """Ranks on this node."""

    job: tuple[str, ...]
    """Variables that together identify the job on all its nodes."""


_LAUNCHERS = (
    # torchrun, and others that follow it
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID",)),
    _Launcher(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    # MPICH, Intel MPI
    _Launcher("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("PMI_JOBID",)),
    # srun; in sbatch's own shell there is no step
    _Launcher("slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)

_BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
"""Ids of batch systems, in which launchers run."""

_NO_ID = {"", "none"}
"""``none`` is torchrun's id if the user gives none."""


@frozen
class Launch:
    """One process of a job, by the environment variables of its launcher."""

    rank: int
    world_size: int
    local_rank: int
    started_ns: int
    """Start of the job, equal in all processes of a node."""

    host: str
    restart: int
    """Restarts of the job by torchrun."""

    requeue: int = 0
    """Restarts of the job by the batch system."""

    block: int = 0
    """Number of the captured block in this process, from 0."""

    pid: int = 0
    """The process whose start is that of the job: this one, or the launcher's on this node."""

    job_id: str | None = None
    """The launcher's id of a job on several nodes, safe in file names; None without one, and on a single node."""

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """Read the launcher's variables; a process without them is a job of its own."""
        launcher = next((each for each in _LAUNCHERS if set(each[1:4]) <= environment.keys()), _LAUNCHERS[0])
        launched = launcher.rank in environment and launcher.local_rank in environment
        world_size = _number(environment, launcher.world_size, 1)
        pid = os.getppid() if launched and world_size > 1 else os.getpid()
        return cls(
            rank=_number(environment, launcher.rank, 0),
            world_size=world_size,
            local_rank=_number(environment, launcher.local_rank, 0),
            started_ns=_start_ns(pid),
            host=host_name(),
            restart=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
            requeue=_number(environment, "SLURM_RESTART_COUNT", 0),
            pid=pid,
            job_id=_job_id(launcher, environment) if launched and world_size > 1 else None,
        )

    def of_training(self) -> Launch:
        """The same once the process trains: then torch knows its rank, also without a launcher's variables."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return self
        return replace(self, rank=distributed.get_rank(), world_size=distributed.get_world_size())

    @property
    def job(self) -> str:
        """The same text in all ranks of one attempt of a job, and another in each other job.

        It comes from the launcher's id if there are several nodes, and from the launcher's process if there is one.
        """
        of_node = f"{self.host} {self.pid} {self.started_ns}"
        parts = (self.job_id or of_node, self.requeue, self.restart, self.block)
        return " ".join(str(part) for part in parts)

    def is_of_job(self, job: str | None) -> bool:
        """Whether a job that :func:`agreed` gave is this one, as far as the launcher's id tells."""
        return job is not None and job.partition(AGREED)[0] == self.job

    def folder(self, script: str) -> Path:
        """The default folder of the bundle."""
        block = f"-{self.block + 1}" if self.block else ""
        if self.job_id:
            return RUNS / f"{_safe(script)}-{self.job_id}{self._suffix}{block}"
        time = datetime.fromtimestamp(self.started_ns / 1e9).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        return RUNS / f"{time}-{_safe(script)}-{self.pid}{self._suffix}{block}"

    def given(self, folder: Path) -> Path:
        """The bundle's folder for a given folder: a restarted job does not overwrite the bundle of its first start."""
        return folder.with_name(f"{folder.name}{self._suffix}") if self._suffix else folder

    def restarted(self, folder: Path) -> Path:
        """The bundle of the job after restarts by torchrun, for that of its first start."""
        return folder.with_name(f"{folder.name}-restart{self.restart}") if self.restart else folder

    def of_block(self, number: int) -> Launch:
        """The same for another captured block of the process, which is a run of its own."""
        return replace(self, started_ns=self.started_ns + number, block=number)

    @property
    def _suffix(self) -> str:
        requeue = f"-requeue{self.requeue}" if self.requeue else ""
        return f"{requeue}-restart{self.restart}" if self.restart else requeue


AGREED = "#"
"""Separates the launcher's id from what the ranks of a job agreed on."""


def _job_id(launcher: _Launcher, environment: Mapping[str, str]) -> str | None:
    """The id of a job on several nodes."""
    if not _spans_nodes(launcher, environment):
        return None
    found = [environment.get(name, "") for name in launcher.job]
    batch = next((environment[name] for name in _BATCH_JOBS if environment.get(name) and name not in launcher.job), "")
    given = [launcher.name, *(part for part in (batch, *found) if part not in _NO_ID)]
    if _NO_ID.isdisjoint(found):
        return _safe("-".join(given))
    meeting = [environment[name] for name in ("MASTER_ADDR", "MASTER_PORT") if environment.get(name)]
    return _safe("-".join([*given, *meeting])) if meeting or batch else None


def _spans_nodes(launcher: _Launcher, environment: Mapping[str, str]) -> bool:
    if not launcher.local_size:
        return _number(environment, "SLURM_STEP_NUM_NODES", 1) > 1
    world_size = _number(environment, launcher.world_size, 1)
    return _number(environment, launcher.local_size, world_size) < world_size


_MOST_DIGITS = 18


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() and len(value) <= _MOST_DIGITS else default


def _start_ns(pid: int) -> int:
    """The start of a process, rounded to the kernel's ticks (10 ms) so that every process computes the same.

    Where ``/proc`` is missing or hides it: now for this process, and 0 for that of the launcher.
    """
    try:
        start_s = psutil.Process(pid).create_time()
    except (psutil.Error, OSError):
        start_s = clocks.time() if pid == os.getpid() else 0.0
    return round(start_s * 100) * 10_000_000


def start_of_this_process() -> tuple[int, int]:
    """The start of this process on the wall clock and on the monotonic clock, to the kernel's ticks; now if unknown.

    The age comes from the kernel's boot clock: the process's creation time on the wall clock is off by up to a second.
    """
    wall_ns, clock_ns = clocks.time_ns(), clocks.perf_counter_ns()
    try:
        ticks = start_ticks("self") or 0
        boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - boot_ns if ticks else 0
    except (OSError, ValueError, AttributeError):
        age_ns = 0
    age_ns = max(age_ns, 0)
    return wall_ns - age_ns, clock_ns - age_ns


def _safe(name: str) -> str:
    return safe_name(without_secrets(name), default="script")
