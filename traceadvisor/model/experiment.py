"""The result of an experiment: settings of a training script, measured against the script as it is."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.patch import CodeChange
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.verdict import BUSY_SHARE

FILE = "experiment.json"
"""Name of the JSON file."""

SCHEMA = "traceadvisor.experiment/2"
"""Identifies the JSON file and its version."""

SAME_STEP = 1.25
"""Two runs of a script differ by up to this factor for no reason; beyond it, something else differs."""


@frozen(kw_only=True)
class MeasuredRatio:
    """Time per sample with changed settings over that of the base."""

    ratio: float
    """Below 1 the changed settings are faster."""

    low: float
    high: float
    """Ends of the 99% interval."""

    null_low: float
    null_high: float
    """The base over itself, the smallest and largest of a round: the A/A band."""

    smallest_visible: float
    """The smallest relative change that these rounds could have shown."""

    rounds: int
    verdict: str
    """``faster``, ``slower``, ``no difference`` or ``inconclusive``."""


@frozen(kw_only=True)
class MeasuredArm:
    """Settings that were tried."""

    name: str
    settings: dict[str, SettingValue]
    """The changes on top of the section's base."""

    measured: MeasuredRatio | None
    """None if the settings could not be measured."""

    problem: str | None = None
    """Why they could not be measured, or do not count."""

    samples_per_s: float | None = None
    step_ns: float | None = None
    peak_bytes: int | None = None
    loss_problem: str | None = None
    """Problem of the loss; None without one, or if it was not compared."""

    cost_per_million_samples: float | None = None
    gpu_busy_share: float | None = None
    """Share of the time in which a kernel ran, by NVML; None if it was not sampled."""

    gpu_power_watts: float | None = None
    cpu: MeasuredRatio | None = None
    """CPU time of the training process per sample over that of the base: a second witness where other programs use the
    CPU. None where it does not tell: on a GPU, if the step is more waiting than work, and for settings of the loader,
    which move work into other processes."""

    @property
    def is_compared(self) -> bool:
        """Whether its figures count: a single round shows nothing."""
        return self.measured is not None and not self.problem and self.measured.rounds > 1


@frozen(kw_only=True)
class CurvePoint:
    """A value of an axis, and a rate."""

    value: int
    samples_per_s: float
    peak_bytes: int | None = None


@frozen(kw_only=True)
class AxisResult:
    """The results on an axis."""

    name: str
    """``batch_size``, ``workers`` or another setting with whole numbers."""

    own: int | None
    """The script's own value."""

    knee: int | None
    """The smallest value within 3% of the best; None with too few rounds."""

    knee_low: int | None
    knee_high: int | None
    """The knee lies between these two."""

    best: int | None
    is_faster: bool
    """Whether the knee is faster than the script's own value."""

    loop: tuple[CurvePoint, ...]
    """Throughput of the training loop."""

    model: tuple[CurvePoint, ...]
    """Throughput with cached batches: the ceiling of the model. One point, or one for each batch size."""

    loader: tuple[CurvePoint, ...]
    """Throughput of the loader alone: its ceiling."""

    out_of_memory_at: int | None
    memory_bytes: int | None
    good_memory_at: int | None
    """Batch size at which 80% of the memory are in use, by the line through the measured peaks."""

    def __post_init__(self) -> None:
        if len({one is None for one in (self.knee, self.knee_low, self.knee_high)}) > 1:
            raise ValueError("a knee and its two ends are known together")


@frozen(kw_only=True)
class Section:
    """Settings that were alternated with one base."""

    name: str
    base: dict[str, SettingValue]
    """Differences from the script's own settings in all arms."""

    base_samples_per_s: float | None
    base_step_ns: float | None
    base_peak_bytes: int | None
    arms: tuple[MeasuredArm, ...]
    axis: AxisResult | None = None
    base_cost_per_million_samples: float | None = None
    base_gpu_busy_share: float | None = None
    base_gpu_power_watts: float | None = None


@frozen(kw_only=True)
class LedgerRow:
    """A fix that a report proposed: predicted beside measured."""

    fix: str
    """Id of the rule, or all fixes together."""

    title: str
    settings: dict[str, SettingValue]
    """The measured settings; the proposed ones, if nothing was measured."""

    predicted_low: float | None
    predicted: float | None
    predicted_high: float | None
    """Predicted step time over that without the fix; without an expected one, the prediction is an upper limit."""

    measured: MeasuredRatio | None
    problem: str | None = None
    change: str | None = None
    """The code that the report proposed. A finding with the same code has this row's figures."""


@frozen(kw_only=True)
class MeasuredFix:
    """Measurement of the fix of a finding."""

    settings: dict[str, SettingValue]
    """The changed settings."""

    measured: MeasuredRatio


@frozen(kw_only=True)
class ExperimentResult:
    """All that ``sweep`` or ``try`` measured."""

    tool_version: str
    kind: str
    """``sweep`` or ``try``."""

    command: tuple[str, ...]
    """The script and its arguments."""

    device: str
    device_name: str | None
    torch: str | None
    cores: int | None
    own_settings: dict[str, SettingValue]
    optimizer: str | None
    seconds: float
    steps: int
    processes: int
    sections: tuple[Section, ...]
    ledger: tuple[LedgerRow, ...]
    recommended: dict[str, SettingValue]
    """Settings that were faster together; empty if none were."""

    recommended_ratio: float | None
    """Time per sample with them over that of the script as it is."""

    lines: tuple[str, ...]
    """Code to paste for them."""

    unavailable: dict[str, str]
    """Settings that cannot be switched in this script while it runs, with reasons."""

    not_applicable: dict[str, str]
    """Fixes of the report that are no settings of a run, with reasons."""

    left_out: tuple[str, ...]
    """Settings that a sweep without options did not measure, with the reason and the command for each."""

    notes: tuple[str, ...]
    problem: str | None
    """Why less was measured than planned."""

    scratch: str | None
    """Folder with what the script saved meanwhile; None if it saved nothing."""

    changed_files: tuple[str, ...] | None
    """Files below the working directory that are new, differ or are gone; None if not known."""

    trace_report: str | None = None
    """The recording whose report lies beside this result."""

    recorded_start_ns: int | None = None
    """Start of that recording on the wall clock, since the epoch; None without one, or if it is unknown."""

    recorded_step_ns: float | None = None
    """Step of that recording, to which its predictions refer."""

    currency: str | None = None
    code: CodeChange | None = None
    """A change of the user's code that was measured; None without one."""

    others_cpu_share: float | None = None
    """Share of the machine's cores that other programs kept busy while the settings alternated; None if unknown."""

    is_short_of_time: bool = False
    """Whether more time would measure more settings."""

    @property
    def is_busy(self) -> bool:
        """Whether other programs may have changed the steps."""
        return self.others_cpu_share is not None and self.others_cpu_share >= BUSY_SHARE

    @property
    def base_step_ns(self) -> float | None:
        """The step with the script's own settings."""
        return next((one.base_step_ns for one in self.sections if one.base_step_ns and not one.base), None)

    @property
    def is_as_recorded(self) -> bool | None:
        """Whether the script's own step is about that of the recording; None if either is unknown."""
        here, then = self.base_step_ns, self.recorded_step_ns
        return None if not here or not then else 1 / SAME_STEP < here / then < SAME_STEP
