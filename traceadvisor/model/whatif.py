"""The answer of ``traceadvisor whatif``: steps on another GPU, with another batch, more ranks or other workers."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from traceadvisor.frozen import frozen

SCHEMA = "traceadvisor.whatif/1"
"""Identifies an answer in every format, and the version of its JSON."""


@frozen
class Range:
    """A figure that is not known exactly."""

    low: float
    expected: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the interval multiplied by a factor above 0."""
        return Range(self.low * factor, self.expected * factor, self.high * factor)

    def dividing(self, dividend: float) -> Range:
        """Return a number above 0 divided by the interval, whose ends must be above 0."""
        return Range(dividend / self.high, dividend / self.expected, dividend / self.low)


@frozen
class Change:
    """Difference from the recording; None for what stays as it was."""

    gpu: str | None = None
    """Name of the GPU, as in the table of devices."""

    batch: int | None = None
    """Samples per batch and rank."""

    workers: int | None = None
    cpu_cores: int | None = None
    ranks: int | None = None
    """GPUs that train together, each with a batch of its own."""

    is_largest: bool = False
    """Whether the batch is the largest that surely fits, as asked for."""


class StepLimit(Enum):
    """The part that sets the pace of a step."""

    GPU = "gpu"
    CPU = "cpu"
    LOADER = "loader"
    COMMUNICATION = "communication"
    SEVERAL = "several"
    """CPU and GPU take turns: either one alone would be faster."""


class Fit(Enum):
    """Whether the training fits into the memory of a GPU."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"
    """The memory of the GPU lies inside the interval."""


class Remedy(Enum):
    """Changes that lower the memory of a training."""

    CHECKPOINTING = "checkpointing"
    """Activations are computed again in the backward pass."""

    MIXED_PRECISION = "mixed_precision"
    """Activations in 16 bits."""

    OPTIMIZER_STATE = "optimizer_state"
    """The optimizer's state in 8 bits."""


@frozen
class Relief:
    """A training with one change that lowers its memory."""

    remedy: Remedy
    needed_bytes: Range
    fit: Fit


@frozen
class MemoryFit:
    """Memory that a training needs beside the memory of a GPU."""

    needed_bytes: Range
    capacity_bytes: int
    fit: Fit
    largest_batch: int | None = None
    """The largest batch that surely fits; 0 if none does, None if the recorded batch or its growth is unknown."""

    reliefs: tuple[Relief, ...] = ()
    """Changes that may make it fit, by the recorded allocations; empty where it fits."""


class Basis(Enum):
    """Evidence that a figure rests on."""

    MEASURED = "measured"
    """Steps of the recording."""

    ARITHMETIC = "arithmetic"
    """Kernels of known operations, scaled by the published rates of their number type or of memory."""

    NAMED = "named"
    """Matrix kernels that are known by name alone, scaled by the published rates of their number type or of memory."""

    BANDWIDTH = "bandwidth"
    """Kernels that multiply no matrices, scaled by memory bandwidth."""

    UNKNOWN_KERNELS = "unknown_kernels"
    """Kernels of unknown work: any ratio of published rates."""

    CPU_KEPT = "cpu_kept"
    """The CPU takes as long as in the recording."""

    CPU_UNKNOWN = "cpu_unknown"
    """The CPU of another machine: at the ends, faster or slower than the recorded one."""

    CPU_STATED = "cpu_stated"
    """The CPU is as much faster or slower as the user says."""

    CPU_CORES = "cpu_cores"
    """The CPU takes between as long as in the recording and in proportion to its cores."""

    HOST_LINK = "host_link"
    """Copies scaled by published links to the CPU."""

    PEER_LINK = "peer_link"
    """Collectives by published links between GPUs."""

    BATCH_ASSUMED = "batch_assumed"
    """One batch size was recorded: how time grows with it is assumed."""

    BATCH_MEASURED = "batch_measured"
    """A line through recordings of several batch sizes."""

    BATCHES_BY_CLOCK = "batches_by_clock"
    """The time of workers for a batch, from clocks, samples or the loader's own time."""

    LOSSES = "losses"
    """Time in which the recording does not show what the GPU did."""


@frozen
class Ground:
    """One thing that a row rests on."""

    basis: Basis
    share: float | None = None
    """Share of the recorded GPU time; None for what is no GPU time."""


class Unknown(Enum):
    """Why a row has no figures."""

    NO_STEP = "no_step"
    """No step can be simulated."""

    RECORDED_GPU = "recorded_gpu"
    """Rates of the recorded GPU are unknown."""

    NO_GPU = "no_gpu"
    """The recording has no GPU operation."""

    NO_RATE = "no_rate"
    """The GPU has no published rate for a number type of the recording."""

    NO_LINK = "no_link"
    """No published link between GPUs, for collectives."""

    RECORDED_BATCH = "recorded_batch"
    MEMORY_OF_BATCH = "memory_of_batch"
    """The largest batch that fits: how memory grows with the batch was not recorded."""

    NOTHING_FITS = "nothing_fits"
    """The largest batch that fits: none does."""

    BATCH_COST = "batch_cost"
    """Time of a loader worker for a batch."""

    GRADIENTS = "gradients"
    """The size of gradients."""

    COLLECTIVES = "collectives"
    """The exchange between several recorded ranks."""

    CORES = "cores"
    """The number of cores that were recorded."""

    IN_PROCESS = "in_process"
    """Loading in the training process, recorded with workers."""


@frozen
class Row:
    """One change and what follows; figures are None if unknown."""

    change: Change
    unknown: Unknown | None = None
    """Why there are no figures."""

    missing: str | None = None
    """The number type without a rate."""

    step_ns: Range | None = None
    samples_per_s: Range | None = None
    """Sum over all ranks; None also where the batch is unknown."""

    gpu_busy: Range | None = None
    """Share of the step in which the GPU works."""

    limit: StepLimit | None = None
    """The part that sets the pace, with the likely times."""

    memory: MemoryFit | None = None
    """None where memory was not recorded."""

    cost_per_million: Range | None = None
    """Price of a million samples; None without a price or a batch."""

    grounds: tuple[Ground, ...] = ()


@frozen
class Program:
    """A recording and all changes of it."""

    name: str
    device: str | None
    """The recorded GPU; None without one."""

    batch: int | None
    ranks: int
    recorded: Row
    rows: tuple[Row, ...]
    smallest_batches: tuple[int, ...] = ()
    """Rows with the smallest batch whose rate is within 3% of the best one of the same GPU, ranks and workers."""

    cheapest: int | None = None
    """The row with the lowest expected cost of those that are not known not to fit; None without two prices."""

    as_cheap: tuple[int, ...] = ()
    """Further rows whose interval of cost has a part in common with that one."""

    faster_gpu: Range | None = None
    """The recorded step over the step with a GPU twice as fast in every respect: its speed-up; None if unknown."""


@frozen
class Rates:
    """Published figures of a GPU that were used."""

    name: str
    memory_gb: float
    bandwidth_gb_per_s: float
    tflops: dict[str, float]
    sources: tuple[str, ...]
    """Titles of documents; empty for a GPU of the user's own file."""

    others: tuple[str, ...] = ()
    """Further GPUs of the table that the given name may mean."""


@frozen
class Answer:
    """The answer for some recordings."""

    tool_version: str
    paths: tuple[Path, ...]
    programs: tuple[Program, ...]
    gpus: tuple[Rates, ...]
    currency: str = "USD"
    cpu_speed: tuple[float, float] | None = None
    """How many times as fast as recorded the CPU is, as the user says."""

    notes: tuple[str, ...] = ()
