"""What a capture knows of a run beside its recordings: every step's time, the settings, the machine's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean, median

from traceadvisor.model.location import Location
from traceadvisor.model.telemetry import Telemetry


class StepState(Enum):
    """The profiler's influence on a step's time, as ``steps.<rank>.csv`` names it."""

    PLAIN = "plain"
    WARMUP = "warmup"
    """The profiler ran but did not record."""

    SETTLING = "settling"
    """Too soon after a stall to count, recorded or not."""

    RECORDED = "recorded"
    STALLED = "stalled"
    """The profiler exported right before it, or stopped before its end."""

    OTHER = "other"
    """Not a training step: validation, for example."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step of the run, timed by a few clock reads."""

    index: int
    start_ns: int
    """Wall clock, since the epoch."""

    duration_ns: int
    loader_ns: int
    """Time in the training loader's ``__next__``."""

    fetches: int
    """Batches taken from the training loader."""

    state: StepState
    loader_start_ns: int | None = None
    """Time to start a loop over the training loader (its ``__iter__``), right before the step or in it: above 0 in the
    first step of each epoch. None if not recorded."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The training loader's arguments; None where not known."""

    batch_size: int | None = None
    worker_count: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    drop_last: bool | None = None
    dataset_length: int | None = None
    location: Location | None = None
    """Where its loop stands in the user's code."""

    sample_count: int | None = None
    """Samples that this rank draws in an epoch."""

    batch_count: int | None = None
    """Batches in an epoch of this rank."""

    sampler: str | None = None
    """The sampler's class."""

    @property
    def last_batch(self) -> int | None:
        """Samples in the last batch of this rank's epoch, 0 where it has none at all; None where not known."""
        if not self.batch_size or self.sample_count is None:
            return None
        rest = self.sample_count % self.batch_size
        if rest and not self.drop_last:
            return rest
        return self.batch_size if self.sample_count >= self.batch_size else 0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a trace does not hold; None where not known."""

    loader: LoaderSettings | None = None
    optimizer: str | None = None
    optimizer_fused: bool | None = None
    """As passed to it; None also where the choice was left to torch. So is the next."""

    optimizer_foreach: bool | None = None
    autocast_dtype: str | None = None
    grad_scaler: bool | None = None
    matmul_tf32: bool | None = None
    cudnn_tf32: bool | None = None
    cudnn_benchmark: bool | None = None
    torch_version: str | None = None
    cuda_version: str | None = None
    python_version: str | None = None
    cpu_count: int | None = None
    cpu_quota: float | None = None
    """Cores the process may use: the smaller of affinity and cgroup quota; None where nothing limits it."""

    ranks_on_host: int = 1
    """Processes of the job that share the host's cores."""

    torch_threads: int | None = None
    """Threads of an operator on the CPU."""

    detect_anomaly: bool | None = None
    """Whether autograd looked for its own errors at any time."""

    cuda_sync_debug_mode: int | None = None
    """0, 1 (warns of synchronising calls) or 2 (refuses them)."""

    gc_share: float | None = None
    """Share of the time since the first step in which Python's garbage collector held the run up."""

    gc_longest_ns: int | None = None
    """Its longest pause since then."""

    own_profiler_share: float | None = None
    """Share of optimizer steps during which a profiler of the script's own was at work."""

    own_code: frozenset[str] | None = None
    """First parts of the paths of the user's own modules, as recorded stacks have them."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change how training runs, as far as they were set."""


@dataclass(frozen=True, slots=True)
class StateSteps:
    """The steps of one state."""

    state: StepState
    count: int
    median_ns: float
    mean_ns: float
    longest_ns: int
    mean_loader_ns: float
    """Time in the training loader's ``__next__``. Not the median: a loader with several workers delivers in bursts, and
    most steps wait for none."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The steps of a run, counted."""

    step_count: int
    by_state: tuple[StateSteps, ...]
    """As :func:`steps_by_state` gives them."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One rank of a captured run."""

    command: tuple[str, ...]
    ending: str
    """How the script ended, in words."""

    steps: tuple[TimedStep, ...]
    settings: RunSettings
    telemetry: Telemetry | None
    """Of the rank's node."""

    world_size: int = 1
    """Ranks of the run, as its launcher said."""

    known_summary: RunSummary | None = None
    """Where the steps are not known one by one: in a report that was read back."""

    @property
    def step_count(self) -> int:
        """All steps, with the first one and those that did not train."""
        return self.known_summary.step_count if self.known_summary else len(self.steps)


def steps_by_state(run: Run) -> tuple[StateSteps, ...]:
    """The states that occurred, without the run's first step, which starts everything up."""
    if run.known_summary:
        return run.known_summary.by_state
    later = [step for step in run.steps if step.index > 0]
    by_state = ((state, [step for step in later if step.state is state]) for state in StepState)
    return tuple(_counted(state, steps) for state, steps in by_state if steps)


def undisturbed_count(run: Run) -> int:
    """How many steps the undisturbed median is over."""
    if run.known_summary:
        return sum(row.count for row in run.known_summary.by_state if row.state is StepState.PLAIN)
    return sum(step.state is StepState.PLAIN and step.index > 0 for step in run.steps)


def _counted(state: StepState, steps: Sequence[TimedStep]) -> StateSteps:
    return StateSteps(
        state=state,
        count=len(steps),
        median_ns=float(median(step.duration_ns for step in steps)),
        mean_ns=fmean(step.duration_ns for step in steps),
        longest_ns=max(step.duration_ns for step in steps),
        mean_loader_ns=fmean(step.loader_ns for step in steps),
    )
