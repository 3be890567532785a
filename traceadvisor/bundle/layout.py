"""The capture folder on disk: what its files are called and what they hold.

A capture writes one folder::

    manifest.json                          what was run, how it ended, every file with its rank and cycle
    <host>_<pid>.<ns>.pt.trace.json.gz     a rank's recording; opens in TensorBoard and Perfetto as it is
    telemetry.<host>.jsonl                 samples of the node's devices, host and processes
    steps.<rank>.csv                       every step of the run, recorded or not
    settings.<rank>.json                   what a trace does not hold

Whoever writes and whoever reads meet in this module. All times are wall-clock nanoseconds since the epoch; what was
not supported or not known is null, never 0.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FORMAT = "traceadvisor.bundle/1"
MANIFEST = "manifest.json"


class FileKind(Enum):
    """What a file of a bundle is."""

    TRACE = "trace"
    TELEMETRY = "telemetry"
    STEPS = "steps"
    SETTINGS = "settings"


class Ending(Enum):
    """How the script ended."""

    COMPLETED = "completed"
    EXIT = "exit"
    """It called ``sys.exit`` with something other than success."""

    EXCEPTION = "exception"
    INTERRUPTED = "interrupted"
    """Ctrl-C."""

    TERMINATED = "terminated"
    """SIGTERM, as launchers send it when another rank died."""


class BundleFile(msgspec.Struct, frozen=True):
    """A file of the bundle."""

    path: str
    """Relative to the bundle."""

    kind: FileKind
    rank: int | None = None
    """None for what belongs to a node."""

    cycle: int | None = None
    """Which repetition of the schedule, from 0; traces only."""

    host: str | None = None


class Schedule(msgspec.Struct, frozen=True):
    """Steps that pass before, between and in the recorded windows, as they were asked for."""

    skip_first: int
    wait: int
    warmup: int
    active: int
    repeat: int


class RankEnding(msgspec.Struct, frozen=True):
    """How one rank's script ended."""

    rank: int
    ending: Ending
    exit_code: int
    steps: int
    """How many steps it took."""

    recorded_steps: int
    message: str | None = None


class Note(msgspec.Struct, frozen=True):
    """Something about the capture that a reader of the report must know."""

    code: str
    message: str
    rank: int | None = None


class Manifest(msgspec.Struct, frozen=True):
    """``manifest.json``."""

    format: str
    tool_version: str
    started_ns: int
    command: tuple[str, ...]
    """As ``python`` would be given it: the script or ``-m module``, then its arguments."""

    schedule: Schedule
    world_size: int
    endings: tuple[RankEnding, ...] = ()
    files: tuple[BundleFile, ...] = ()
    notes: tuple[Note, ...] = ()


class StepTime(msgspec.Struct, frozen=True):
    """A row of ``steps.<rank>.csv``; the columns are the fields, in this order."""

    step: int
    """Counted from 0 over the whole run; the number in the recording's ``ProfilerStep#``."""

    start_ns: int
    duration_ns: int
    loader_ns: int
    """Time in the training loader's ``__next__``."""

    fetches: int
    """Batches taken from the training loader; several with gradient accumulation."""

    state: str
    """``plain``, ``warmup`` (the profiler runs but does not record), ``settling`` (too soon after a stall to count,
    whether it was recorded or not), ``recorded``, ``stalled`` (the profiler exported right before it, or stopped before
    its end), or ``other`` (validation and whatever else is no training step)."""

    loader_start_ns: int | None = None
    """Time it took to begin an iteration over the training loader (its ``__iter__``), right before the step or within
    it: 0 in all steps but the first of each epoch. None where not recorded."""


TOLD_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
)
"""Environment variables that change how training runs; no other is ever read, as some hold secrets."""


class LoaderSettings(msgspec.Struct, frozen=True):
    """The training ``DataLoader``'s arguments, and where its loop stands."""

    batch_size: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    drop_last: bool | None = None
    shuffled: bool | None = None
    dataset_length: int | None = None
    sample_count: int | None = None
    """Samples that this rank draws in an epoch, as its sampler has it."""

    batch_count: int | None = None
    """Batches in an epoch of this rank."""

    sampler: str | None = None
    """The sampler's class."""

    file: str | None = None
    line: int | None = None
    function: str | None = None


class OptimizerSettings(msgspec.Struct, frozen=True):
    """The optimizer that ended the steps."""

    name: str
    fused: bool | None = None
    foreach: bool | None = None
    parameter_count: int | None = None
    parameter_bytes: int | None = None


class Settings(msgspec.Struct, frozen=True):
    """``settings.<rank>.json``: what a trace does not hold. None where not known."""

    torch_version: str | None = None
    cuda_version: str | None = None
    python_version: str | None = None
    device_name: str | None = None
    loader: LoaderSettings | None = None
    optimizer: OptimizerSettings | None = None
    autocast_dtype: str | None = None
    """The dtype seen active at an optimizer step or a forward pass; None where autocast was not seen."""

    grad_scaler: bool | None = None
    matmul_tf32: bool | None = None
    cudnn_tf32: bool | None = None
    cudnn_benchmark: bool | None = None
    cpu_count: int | None = None
    cpu_affinity: int | None = None
    cpu_quota: float | None = None
    """Cores that the cgroup grants; None where it sets no limit."""

    torch_threads: int | None = None
    """Threads of an operator on the CPU."""

    detect_anomaly: bool | None = None
    """Whether autograd looked for its own errors at any time."""

    cuda_sync_debug_mode: int | None = None
    """``torch.cuda.get_sync_debug_mode()``: 0, 1 (warn) or 2 (error)."""

    gc_share: float | None = None
    """Share of the time since the first step, 0..1, in which Python's garbage collector held the run up."""

    gc_longest_ns: int | None = None
    """Its longest pause since then."""

    own_profiler_share: float | None = None
    """Share of optimizer steps, 0..1, during which a profiler of the script's own was at work."""

    own_code: tuple[str, ...] | None = None
    """What the paths of the script and of its own modules begin with, below a folder of ``sys.path``: ``train.py``,
    ``datasets``. Stacks name files so, those of libraries as well."""

    environment: dict[str, str] = {}
    """Of the process; those of :data:`TOLD_VARIABLES` that are set."""
