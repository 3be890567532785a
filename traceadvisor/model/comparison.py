"""The result of a comparison: what changed from BASE to HEAD, from which every format is rendered.

A difference is always HEAD less BASE: above zero, HEAD takes longer.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.explanation import StepExplanation
from traceadvisor.model.findings import Estimate, Fix, RuleMeta, Severity
from traceadvisor.model.job import Job
from traceadvisor.model.json_hints import NOT_IN_JSON, MaybeNan
from traceadvisor.model.location import Location
from traceadvisor.model.memory_advice import MemoryAdvice
from traceadvisor.model.memory_figures import DeviceMemoryFigures
from traceadvisor.model.report import PredictedStep, Recording
from traceadvisor.model.step_contents import Sizes
from traceadvisor.model.verdict import NO_DIFFERENCE, USUAL_NOISE, Verdict, VerdictCertainty

SCHEMA = "traceadvisor.comparison/2"
"""Identifies a comparison in every format, and the version of its JSON."""


class Side(Enum):
    """The two sides of a comparison."""

    BASE = "base"
    HEAD = "head"


class Measure(Enum):
    """The figure that a verdict compares."""

    UNDISTURBED_STEP = "undisturbed_step"
    """The median of the steps that the profiler did not slow down."""

    RECORDED_STEP = "recorded_step"
    """The mean typical recorded step, where a side has no undisturbed steps."""

    UNDISTURBED_SAMPLE = "undisturbed_sample"
    """The undisturbed step per sample, where both sides have a known, different number of samples per step."""

    RECORDED_SAMPLE = "recorded_sample"
    """The mean typical recorded step, for as many samples as a step of BASE has, where the inputs of operators show
    that both sides have different numbers."""


class OtherProgram(Enum):
    """The sign that both sides are not one program before and after a change."""

    FRAMEWORK = "framework"
    CODE = "code"
    """Other operators, or parameters of other sizes."""

    MODEL = "model"
    """One script with another number of parameters."""

    UNKNOWN = "unknown"
    """Too little was recorded to tell whether it is one program."""


class WorkUnit(Enum):
    """The unit of a batch."""

    SAMPLE = "sample"
    ROW = "row"
    """Samples, or samples and tokens together: the inputs do not tell which."""


@frozen
class WorkChange:
    """The work of a step on both sides, as far as it differs."""

    program: OtherProgram | None = None
    """None for one program, or where nothing shows another one."""

    growth: float | None = None
    """Samples or tokens of a step of HEAD over those of BASE, of one rank; None where unknown."""

    unit: WorkUnit = WorkUnit.SAMPLE
    sizes: tuple[Sizes, Sizes] | None = None
    """Sizes of a sample: channels, height and width, or tokens; None where they are the same or unknown."""

    ranks: tuple[int, int] | None = None
    """Processes that train together; None for the same number."""

    devices: tuple[str, str] | None = None
    """Models of the GPUs; None for the same one, or where one is unknown."""

    products: tuple[int, int] | None = None
    """Matrix products of equal sizes per step, where one side has at least twice as many, and nothing tells whether
    its batch or its model is larger; None for all others."""

    @property
    def is_other_program(self) -> bool:
        """Whether findings and steps of both sides may have nothing to do with each other."""
        return self.program in {OtherProgram.FRAMEWORK, OtherProgram.CODE, OtherProgram.UNKNOWN}

    @property
    def is_same(self) -> bool:
        """Whether nothing shows other work, so that a prediction for BASE is one for HEAD."""
        return not (self.program or self.sizes or self.ranks or self.devices or self.products) and self.growth in (
            None,
            1.0,
        )


class LikelyBecause(Enum):
    """Grounds on which a change is likely."""

    FAR = "far"
    """It is far beyond what identical runs may differ by."""

    EXPLAINED = "explained"
    """The changed program explains it: the rest of the step is as before."""

    WITNESSED = "witnessed"
    """Other programs used the CPU, and what does not depend on them changed alike: CPU time, GPU time or counts."""


@frozen
class CpuChange:
    """CPU time of the training per step or sample, HEAD over BASE, where other programs used the CPU."""

    ratio: float
    low: float | None
    """End of the 98% interval; None if the spread between captures is unknown."""

    high: float | None
    verdict: Verdict

    @property
    def is_called(self) -> bool:
        """Whether it is known to have changed."""
        return self.verdict in {Verdict.FASTER, Verdict.SLOWER}

    def has(self, ratio: float) -> bool:
        """Whether a ratio of wall times is the same, but for what does not matter or identical runs differ by."""
        low, high = self.low or self.ratio, self.high or self.ratio
        least = 1 + (USUAL_NOISE if self.low is None else NO_DIFFERENCE)
        return low / least <= ratio <= high * least


@frozen
class StepChange:
    """Whether the step changed, and how certain that is."""

    verdict: Verdict
    certainty: VerdictCertainty
    measure: Measure
    base_ns: float
    """Geometric mean over the captures of BASE, and over the ranks of each."""

    head_ns: float
    ratio: float
    """HEAD over BASE."""

    ratio_low: float | None
    """End of the 98% interval of the ratio; None if the spread between captures is unknown."""

    ratio_high: float | None
    smallest_visible_share: float | None
    """The smallest relative difference that these captures could have called; None if they could call none."""

    captures_needed: int | None
    """Captures of each side that would settle the measured difference; None if unknown or more than 50."""

    base_captures: int
    head_captures: int
    history_captures: int
    """Earlier captures that the spread is taken from, too."""

    within_share: float | None
    """Half the width of the interval of the ratio within the captures; None with too few steps."""

    noise_share: float | None = None
    """Assumed difference of identical runs, where the captures are too few to tell; None with an interval."""

    base_step_ns: float = 0.0
    """The step of BASE, whatever the verdict compares."""

    head_step_ns: float = 0.0
    because: LikelyBecause | None = None
    """Why a change is likely; None for any other."""

    witness_ratio: float | None = None
    """CPU or GPU time of the process itself per step, HEAD over BASE, where it is the ground; None for others."""

    is_crowded: bool = False
    """Whether other programs used the CPU so much that they alone may have changed the step, as far as known."""

    cpu: CpuChange | None = None
    """None on an idle machine, on a GPU, if steps are more waiting than work, and if it is unknown."""

    @property
    def is_settled(self) -> bool:
        """Whether the spread between captures is known, and the interval decides."""
        return self.ratio_low is not None

    @property
    def change_share(self) -> float:
        """The change of the step as a share of that of BASE; negative if HEAD is faster."""
        return self.ratio - 1


@frozen(eq=False)
class ComparedRank:
    """One rank, or one device of it, in both sides."""

    name: str
    """``rank 0``, or the worker's name."""

    base_ids: tuple[str, ...]
    """Recordings of BASE, one or several per capture."""

    head_ids: tuple[str, ...]
    explanation: StepExplanation | None
    """None where a side has no complete step."""

    base: Recording = field(metadata=NOT_IN_JSON)
    """The most typical recording of BASE, for its timeline."""

    head: Recording = field(metadata=NOT_IN_JSON)
    base_recordings: tuple[Recording, ...] = field(default=(), metadata=NOT_IN_JSON)
    """All of BASE, for their steps."""

    head_recordings: tuple[Recording, ...] = field(default=(), metadata=NOT_IN_JSON)


class DifferenceKind(Enum):
    """Kinds of differences between both sides, in the order in which they are shown."""

    DEVICE = "device"
    MACHINE = "machine"
    RECORDING = "recording"
    VERSION = "version"
    SETTING = "setting"
    EDIT = "edit"
    """A file of the user: the number of lines of code that only BASE, and only HEAD, has."""

    CODE = "code"


class Differing(Enum):
    """A difference on which more depends than a row of a table."""

    COMMAND = "command"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    MACHINE_MEMORY = "machine_memory"
    RANK = "rank"
    RANK_COUNT = "rank_count"
    LOADER_ITERATOR = "loader_iterator"
    WORKER_COUNT = "worker_count"
    DATASET_LENGTH = "dataset_length"
    BATCH_COUNT = "batch_count"
    STEP_SOURCE = "step_source"
    OPERATORS = "operators"
    """The number of different operators."""


@frozen
class Difference:
    """A setting, version or device that differs."""

    kind: DifferenceKind
    name: str
    base: str
    """Its value, or the values of several captures. Memory is in bytes."""

    head: str
    what: Differing | None = None
    """None for a difference on which nothing else depends."""


class FindingStatus(Enum):
    """Change of a finding from BASE to HEAD, in the order in which it is shown."""

    NEW = "new"
    GONE = "gone"
    """HEAD does not have it, and what its fix changes was changed."""

    HIDDEN = "hidden"
    """HEAD does not wait for it any more, and still has its cause: loader workers run the same line."""

    LOST = "no_longer_found"
    """HEAD does not have it, although nothing shows that what its fix changes was changed: no fix was made."""

    CHANGED = "changed"
    """Other places, or a saving that differs by 3% of the step of BASE or more."""

    UNKNOWN = "unknown"
    """One side did not run the check: its input is missing, or the rule was not selected or not known."""

    SAME = "same"


@frozen
class FindingState:
    """A finding in one side."""

    severity: Severity | None
    """None for a finding that is part of another one."""

    saving: Estimate
    """The saving of its fix alone."""

    saving_share: MaybeNan
    """Expected saving as a share of the step, 0..1."""

    locations: tuple[Location, ...]
    part_of: str | None
    """Rule of the finding that it is part of; None for a finding of its own."""

    captures: int
    """Captures of the side that have it."""

    of_run: bool = False
    """Whether the saving is a share of the training time of the whole run."""

    of_inference: bool = False
    """Whether nothing shows that this run trains."""


@frozen
class FindingChange:
    """A finding in both sides, compared by rule, file and function."""

    rule: RuleMeta
    status: FindingStatus
    fix: Fix
    base: FindingState | None
    head: FindingState | None
    places_added: tuple[Location, ...] = ()
    """Places of HEAD in another function than those of BASE."""

    places_removed: tuple[Location, ...] = ()
    reason: str | None = None
    """Why the status is unknown, or what hides the cause; None for all others."""

    sign: ChangeSign | None = None
    """The sign that its fix was made, or taken back; None without one."""

    instead: RuleMeta | None = None
    """The finding that is part of it and whose fix was made instead; None if it is its own, or none was made."""

    @property
    def is_smaller(self) -> bool:
        """Whether both sides have it, and its saving fell by 3% of the step or more."""
        before, after = self.base, self.head
        if not before or not after or before.part_of:
            return False
        is_less = after.saving.expected_ns < before.saving.expected_ns
        return is_less and after.saving_share <= before.saving_share - NO_DIFFERENCE

    @property
    def is_fixed(self) -> bool:
        """Whether it is gone, or half or less of it is left, with a sign that its fix was made."""
        before, after = self.base, self.head
        if before is None or before.part_of or not before.saving.high_ns or self.sign is None or self.instead:
            return False
        is_less = after is not None and after.saving_share <= FIXED_SHARE * before.saving_share
        return self.status is FindingStatus.GONE or (is_less and self.sign is not ChangeSign.FUNCTION)

    @property
    def fixed_share(self) -> float:
        """Predicted share of the step of BASE that its fix took away, 0..1; 0 if none was made, or of a whole run."""
        before, after = self.base, self.head
        if before is None or before.of_run or not self.is_fixed:
            return 0.0
        left = after.saving.expected_ns / max(before.saving.expected_ns, 1.0) if after else 0.0
        return before.saving_share * max(1 - left, 0.0)


FIXED_SHARE = 0.5
"""A finding whose saving fell to this share of it or less counts as fixed if what its fix changes was changed."""


class ChangeSign(Enum):
    """The sign that what a fix changes differs between both sides."""

    SETTING = "setting"
    LOADER = "loader"
    """Another iterator of the data loader."""

    LINES = "lines"
    """One side does not run the lines."""

    EDITED = "edited"
    """Its lines were edited or removed."""

    FUNCTION = "function"
    """Other lines of its function were edited or removed."""

    OPERATORS = "operators"
    """One side runs the operators half as often, or not at all."""

    KERNELS = "kernels"
    LAUNCHES = "launches"
    COPIES = "copies"
    COLLECTIVES = "collectives"
    STREAMS = "streams"
    PADDING = "padding"
    """Batches hold at most half as much of it."""


class Agreement(Enum):
    """A measured saving beside the predicted one."""

    WITHIN = "within"
    """Within the predicted range."""

    LESS = "less"
    MORE = "more"
    NOT_SHORTER = "not_shorter"
    """The step is not shorter than before: something else changed, too, or hides the finding."""


@frozen
class PredictionCheck:
    """A saving that the report on BASE predicted for a finding that HEAD does not have any more."""

    rules: tuple[RuleMeta, ...]
    """Several for the prediction of their fixes together."""

    fixes: tuple[str, ...]
    predicted: PredictedStep
    """The step with the fix made."""

    base_step_ns: float
    """The step that the prediction refers to."""

    measured_step_ns: float
    """The same kind of step of HEAD. It also contains all other changes."""

    is_limit: bool
    """Whether only the upper end of the saving was predicted."""

    agreement: Agreement


@frozen(eq=False)
class ComparedJob:
    """The ranks of a job in both sides, each of the capture with the median step."""

    base: Job
    head: Job


@frozen(eq=False)
class ComparedRun:
    """One script, or one named run, in both sides."""

    name: str
    change: StepChange | None
    """None where a side has no step time."""

    ranks: tuple[ComparedRank, ...]
    differences: tuple[Difference, ...]
    findings: tuple[FindingChange, ...]
    """New, gone, changed, then those with an unknown status and those that did not change."""

    predictions: tuple[PredictionCheck, ...]
    cautions: tuple[str, ...] = ()
    """Limits of the comparison, as sentences."""

    other_scripts: tuple[str, str] | None = None
    """The scripts of BASE and HEAD if they differ: the change is between two programs. None for one script, or if one
    is unknown."""

    job: ComparedJob | None = None
    """All ranks of both sides; None if a side has no two ranks that were recorded together."""

    work: WorkChange = WorkChange()
    """The difference in the work of a step."""

    is_same_code: bool | None = None
    """Whether all lines of the user's files are the same; None where a side did not record them."""

    diff: tuple[str, ...] = ()
    """Lines of the difference of a file that was renamed; empty if none was, or if a version is not at hand."""


@frozen
class Unpaired:
    """A recording without a partner in the other side."""

    side: Side
    recording_id: str
    reason: str


@frozen(eq=False)
class ComparedMemory:
    """The memory of a device, from a snapshot or a recording of each side."""

    name: str
    """Names of the snapshots, or of the rank."""

    base: DeviceMemoryFigures
    head: DeviceMemoryFigures
    gone: MemoryAdvice | None = None
    """The only advice for BASE that saves memory and whose rule finds nothing in HEAD; None if there are several or
    none, if the peak is not lower, or if the bytes of parameters, or of inputs that are known, differ."""


@frozen(eq=False)
class Comparison:
    """The changes from BASE to HEAD."""

    tool_version: str
    base_paths: tuple[Path, ...]
    """As given by the user."""

    head_paths: tuple[Path, ...]
    history_paths: tuple[Path, ...]
    verdict: Verdict
    """Slower if any run is slower, else that of the least certain run; inconclusive without a pair."""

    certainty: VerdictCertainty
    """The highest of the runs with that verdict."""

    runs: tuple[ComparedRun, ...]
    unpaired: tuple[Unpaired, ...]
    notes: tuple[str, ...]
    """Problems of the input."""

    memory: tuple[ComparedMemory, ...] = ()
    """Memory of snapshots and of recordings with allocations, as far as both sides have them."""
