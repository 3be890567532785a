"""A captured run: the time of every step, the settings, the samples of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from statistics import fmean, median

from traceadvisor.frozen import frozen
from traceadvisor.model.json_hints import NOT_IN_JSON
from traceadvisor.model.location import Constructed, Location
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.samples import StepState as StepState  # noqa: PLC0414  # exported here
from traceadvisor.model.telemetry import Telemetry


@frozen
class ClockReading:
    """Both clocks, read one right after the other."""

    wall_ns: int
    """Since the epoch; it jumps when it is set."""

    clock_ns: int
    """Monotonic, from an arbitrary zero; it may stand still while the machine is suspended."""


@frozen
class TimedStep:
    """One step of the run, timed with a few clock reads."""

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

    clock_ns: int | None = None
    """Monotonic clock at its start, read right before :attr:`start_ns`; None if not recorded."""

    checkpoint_ns: int | None = None
    """Time in it to save checkpoints; None if not recorded."""


@frozen
class TimedBatch:
    """One batch of the training loader, timed by clock reads in the process that made it."""

    worker: int | None
    """Number of the loader worker; None for the training process."""

    start_ns: int
    """Wall clock, since the epoch."""

    fetch_ns: int
    """Time to get the samples from the data set."""

    fetch_cpu_ns: int
    """CPU time of the loading thread in it."""

    collate_ns: int | None
    """Time to collate the samples; None if it was not separated from the fetch."""

    collate_cpu_ns: int | None
    core_wait_ns: int | None
    """Time in which the loading thread could run but had no CPU core; None if the system does not tell."""

    process_cpu_ns: int
    """CPU time of all threads of a worker since its previous batch; of the training process, since this fetch began."""

    threads_cpu_ns: int | None = None
    """CPU time of the other threads of the process while the batch was made, in a worker without the one that sends its
    batches; None if not recorded."""

    @property
    def duration_ns(self) -> int:
        """Time to make the batch."""
        return self.fetch_ns + (self.collate_ns or 0)

    @property
    def thread_cpu_ns(self) -> int:
        """CPU time of the thread that made the batch."""
        return self.fetch_cpu_ns + (self.collate_cpu_ns or 0)


@frozen
class LoaderLoops:
    """Loops over one data loader with workers, without the first. Times are sums over these loops."""

    workers: int
    keeps_workers: bool
    """Whether its workers live on between loops."""

    trains: bool
    """Whether it is the training loader."""

    count: int
    start_ns: int
    """Time in its ``__iter__``."""

    sampler_ns: int
    """Part in the sampler, until workers have their first indices."""

    worker_start_ns: int
    """Part that starts processes."""

    worker_stop_ns: int
    """Time to stop processes at the ends of loops."""

    first_batch_ns: int
    """Time to get the first batch of each loop."""

    batch_ns: int | None = None
    """Median time of a worker to make a batch; None if none was timed. Of an iterable data set, whose ``__iter__`` runs
    in each loop also in workers that are kept, it is the time of the longest, which are the first of each loop."""

    location: Location | None = None
    """The loop over it, in the user's code."""

    constructed: Location | None = None
    """The line that constructs it; None if unknown."""

    loaders: int = 1
    """Loaders that these loops go over: more than one if the script makes one for each loop."""

    same_data: bool = True
    """Whether these loaders go through the same data."""

    @property
    def workers_ns(self) -> int:
        """Time that kept workers save: processes start and stop, and the first batch comes later than it takes."""
        late_ns = max(self.first_batch_ns - (self.batch_ns or 0) * self.count, 0)
        return self.worker_start_ns + self.worker_stop_ns + late_ns


@frozen
class LoaderSettings:
    """The training loader's arguments; None where unknown."""

    batch_size: int | None = None
    worker_count: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    drop_last: bool | None = None
    dataset_length: int | None = None
    location: Location | None = None
    """The loop over it, in the user's code."""

    sample_count: int | None = None
    """Samples per epoch of this rank."""

    batch_count: int | None = None
    """Batches per epoch of this rank."""

    sampler: str | None = None
    """Class of the sampler."""

    collates: bool | None = None
    """Whether the loader takes samples one by one and collates them; without it, the data set makes whole batches."""

    pads_at: Location | None = None
    """The line of the user's ``collate_fn`` that pads samples, by its compiled code; None if there is none."""

    in_order: bool | None = None
    """Whether batches come in their order; None before torch 2.6, where they always do."""

    data_digest: str | None = field(default=None, metadata=NOT_IN_JSON)
    """Digest of the data, where the loader goes through all of it; None for a sampler that chooses some, or if the data
    set does not hold its data or a list of it."""

    tensor_row_bytes: int | None = field(default=None, metadata=NOT_IN_JSON)
    """Bytes of a sample of a ``TensorDataset`` in the CPU's memory, with torch's function to collate; None for other
    data."""

    @property
    def last_batch(self) -> int | None:
        """Samples in the last batch of this rank's epoch, 0 without any batch; None where unknown."""
        if not self.batch_size or self.sample_count is None:
            return None
        rest = self.sample_count % self.batch_size
        if rest and not self.drop_last:
            return rest
        return self.batch_size if self.sample_count >= self.batch_size else 0


@frozen
class TrainingDevice:
    """Identifiers of a GPU of the training; None where torch does not tell."""

    uuid: str | None = None
    """As NVML writes that of a whole GPU (``GPU-...``). That of a slice (MIG) is no whole GPU's."""

    pci_bus_id: str | None = None


@frozen
class UnusedGradients:
    """Gradients that backward passes computed and no optimizer used, in a few early steps."""

    step_share: float
    """Share of the time, from the last gradient that an optimizer uses to the last one of a backward pass."""

    parameter_count: int
    """Parameter tensors with such gradients."""

    pass_count: int
    """Backward passes measured."""

    is_cleared: bool
    """Whether an optimizer has some of these parameters, and their gradients are cleared before it steps."""


@frozen
class RepeatedResult:
    """Code of the script whose results follow from the data alone."""

    place: Location
    """A line, or a function that holds several."""

    is_same: bool
    """Whether the results are the same in each step; otherwise they follow from the batch."""

    operator_share: float
    """Share of the time of all operators of the step."""

    operator_count: int
    """Operators of the step."""


@frozen
class RepeatedResults:
    """Code that neither trained parameters nor random numbers change, from an early step."""

    places: tuple[RepeatedResult, ...]
    """The outermost ones, the costliest first."""

    are_drawn: bool
    """Whether loading draws random numbers: then code that follows from the batch is left out."""


@frozen
class IgnoredTargets:
    """Targets of a cross entropy that it leaves out, in an early step."""

    ignored_share: float
    """Share of all targets."""

    target_count: int
    class_count: int


MASK = "attention_mask"
"""Name of the mask of the Transformers library, with 1 for tokens and 0 for padding."""

REPEATED = "a value that only ends or only begins rows"

LENGTHS = "lengths in the batch"


@frozen
class Padding:
    """Padding of sequences in the first batches of the run, as the loader returned them."""

    padded_share: float
    """Share of all positions."""

    surplus_share: float
    """Share of positions beyond the longest sample of their batch."""

    longest: int
    """Most positions of a sample, with padding."""

    batch_count: int
    source: str
    """The sign of the padding."""

    varies: bool = False
    """Whether batches differ in their positions of a sample: these follow their samples."""


class PauseKind(Enum):
    """Kinds of long pauses of the training thread."""

    COLLECTION = "collection"
    """Python's garbage collection."""

    COMPILATION = "compilation"
    """``torch.compile`` compiled a function, or its backward pass."""


class Change(Enum):
    """Kinds of changes after which a function is compiled again."""

    SHAPE = "shape"
    """The sizes or strides of a tensor."""

    OTHER = "other"
    """A number, a flag, a type, or something else that the compiled code depends on."""


@frozen
class Pause:
    """A long pause of the training, timed where it happened."""

    kind: PauseKind
    clock_ns: int
    """Steady clock at its start, as that of the steps."""

    duration_ns: int
    file: str | None = None
    """File of the compiled function, like the next; None for a backward pass."""

    line: int | None = None
    function: str | None = None
    reason: str | None = None
    """The change since it was compiled before, as torch says it; None for the first time."""

    change: Change | None = None
    """The same as a kind."""


@frozen
class RunSettings:
    """Settings of the run; None where unknown."""

    loader: LoaderSettings | None = None
    optimizer: str | None = None
    optimizer_fused: bool | None = None
    """As passed to it, like the next; None also where torch chose."""

    optimizer_foreach: bool | None = None
    optimizer_groups: int | None = None
    """Its parameter groups, each updated on its own."""

    optimizer_tensors: int | None = None
    """Its parameters."""

    parameter_count: int | None = None
    """Elements of the parameters of all optimizers."""

    autocast_dtype: str | None = None
    """None also where autocast was not used."""

    grad_scaler: bool | None = None
    matmul_tf32: bool | None = None
    cudnn_tf32: bool | None = None
    cudnn_benchmark: bool | None = None
    torch_version: str | None = None
    cuda_version: str | None = None
    python_version: str | None = None
    cpu_count: int | None = None
    cpu_quota: float | None = None
    """Cores the process may use: the smaller of affinity and cgroup quota; None without a limit."""

    ranks_on_host: int = 1
    """Processes of the job on this host."""

    torch_threads: int | None = None
    """Threads per CPU operator."""

    detect_anomaly: bool | None = None
    """Whether anomaly detection was on at any time."""

    cuda_sync_debug_mode: int | None = None
    """0 (off), 1 (warns about synchronising calls) or 2 (raises an error)."""

    gc_share: float | None = None
    """Share of the time since the first step spent in Python's garbage collector."""

    gc_longest_ns: int | None = None
    """Longest garbage collection since the first step."""

    gc_long_count: int | None = None
    """Garbage collections of 10 ms or longer since the first step."""

    gc_long_share: float | None = None
    """Share of the time since the first step spent in these."""

    gc_long_steps: tuple[int, ...] = ()
    """Steps of the first of these, counted by the optimizer."""

    own_profiler_share: float | None = None
    """Share of optimizer steps during which a ``torch.profiler`` of the script was active."""

    python_profiler: str | None = None
    """Latest profiler or tracer of the script's Python code: its package, such as cProfile, or the function that
    sets it if it is of the script. None without any."""

    python_profiler_share: float | None = None
    """Share of optimizer steps with one."""

    python_profiler_recorded: int | None = None
    """Optimizer steps in recordings with one."""

    own_code: frozenset[str] | None = None
    """First path components of the user's own modules, as in recorded stacks."""

    own_lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=NOT_IN_JSON)
    """Checksum of each line of the user's files, by path as in recorded stacks; 0 for a line without code, or one that
    looks like a secret. Empty where not recorded."""

    devices: tuple[TrainingDevice, ...] = ()
    """The GPUs of the training, ``cuda:0`` first; empty where unknown."""

    padding: Padding | None = None
    """None also where no batch showed any."""

    unused_gradients: UnusedGradients | None = None
    """None where they were not measured."""

    repeated_results: RepeatedResults | None = field(default=None, metadata=NOT_IN_JSON)
    """None where no step was looked at."""

    ignored_targets: IgnoredTargets | None = field(default=None, metadata=NOT_IN_JSON)
    """Those of the largest cross entropy; None also without one."""

    constructed: tuple[Constructed, ...] = ()
    """The places at which the script constructs the objects of the training; at most one of each role
    but tables: one of each place and size."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that affect training and were set."""

    loops: tuple[LoaderLoops, ...] | None = None
    """Loops over each data loader with workers, validation's too, without the first loop; None where not timed."""

    thread_pools: tuple[str, ...] = ()
    """Native libraries in the training process that compute in threads of their own, as :mod:`bundle.settings` names
    them."""

    pauses: tuple[Pause, ...] = field(default=(), metadata=NOT_IN_JSON)
    """Collections of 10 ms or longer since the first step, and compilations: the longest ones, in no order."""

    positions_per_sample: float | None = None
    """Length of the rows of integers, such as token ids, in the first batches; None where the loader returned none."""

    subnormal_share: float | None = None
    """Largest share of subnormal numbers among the parameters, buffers and gradients on the CPU that were looked at;
    None if there were none to look at."""

    allocator_retries: int | None = None
    """How often torch freed its cache of GPU memory over the run, because an allocation failed, and tried again; None
    where CUDA was not used."""

    repeated_share: float | None = None
    """Share of the different rows in the first batches that more than one loader worker returned, of a data set that
    workers iterate; None where that tells nothing."""

    validation_nodes: float | None = None
    """Nodes of autograd per batch in loops over a data loader without an optimizer step or new gradients; None where no
    such loop came to its end."""


@frozen
class Repository:
    """The Git repository of the script when the run started; None where unknown."""

    root: str
    commit: str | None
    branch: str | None
    """None for a detached head."""

    dirty: bool | None
    """Whether tracked files differed from the commit."""

    folder: str | None = None
    """Folder of the script, or working directory of a module, relative to the root; ``.`` for the root itself. Paths in
    torch's call stacks are usually relative to it."""


@frozen
class CaptureOfScript:
    """A capture, and where its script was."""

    path: Path
    started_ns: int
    source: tuple[str, str | None] | None
    """Root of the repository, and the folder of the script in it; None without a repository."""

    commit: str | None
    is_dirty: bool | None
    """Whether tracked files were changed; None if unknown."""


@frozen
class StateSteps:
    """Times of the steps with the same profiler activity, without the first step of the run."""

    state: StepState
    count: int
    median_ns: float
    mean_ns: float
    longest_ns: int
    mean_loader_ns: float
    """Mean time in the training loader's ``__next__``. A median would mislead: several workers deliver in bursts."""


@frozen
class RunSummary:
    """The steps of a run, counted."""

    step_count: int
    by_state: tuple[StateSteps, ...]
    """As :func:`steps_by_state` gives them."""


@frozen(eq=False)
class Run:
    """One rank of a captured run."""

    command: tuple[str, ...]
    ending: str
    """How the script ended, for people."""

    steps: tuple[TimedStep, ...]
    settings: RunSettings
    telemetry: Telemetry | None
    """Samples of the rank's node."""

    world_size: int = 1
    """Ranks of the run, from its launcher."""

    batches: tuple[TimedBatch, ...] = ()
    """Batches of the training loader, in order of their start; empty if not timed. Long runs hold a part of them."""

    started: ClockReading | None = None
    """When the script, or the captured block, started; None if not recorded."""

    ended: ClockReading | None = None
    """When it ended; None if not recorded, as for a killed process."""

    checkpoint_after_ns: int | None = None
    """Time to save checkpoints after the last step; None if not recorded."""

    repository: Repository | None = None
    """The repository of the script."""

    stacks: StackSamples | None = None
    """Samples of the training thread's Python stack over the whole run; None if not sampled."""

    loader_stacks: StackSamples | None = None
    """Samples of the stacks of its loader workers while they made batches; None if not sampled."""

    was_stopped: bool = False
    """Whether the capture ended the script after its recording."""

    summary: RunSummary | None = None
    """Its steps, counted: in a report, whose JSON has no single steps."""

    @property
    def step_count(self) -> int:
        """All steps, including the first one and those that did not train."""
        return self.summary.step_count if self.summary else len(self.steps)


def steps_by_state(run: Run) -> tuple[StateSteps, ...]:
    """The steps of each state that occurred, without the run's first step, which includes start-up."""
    if run.summary:
        return run.summary.by_state
    later = [step for step in run.steps if step.index > 0]
    by_state = ((state, [step for step in later if step.state is state]) for state in StepState)
    return tuple(_counted(state, steps) for state, steps in by_state if steps)


def undisturbed_count(run: Run) -> int:
    """Number of steps in the undisturbed median."""
    if run.summary:
        return sum(row.count for row in run.summary.by_state if row.state is StepState.PLAIN)
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
