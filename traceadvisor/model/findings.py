"""What rules say: findings, or why there is none; what a rule needs, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Self

from traceadvisor.model.location import Location as Location  # noqa: PLC0414  # part of this vocabulary, in a module without numpy
from traceadvisor.model.replay import WhatIf
from traceadvisor.model.spans import SpanSet


class Input(Enum):
    """What a rule cannot do without."""

    STEPS = "steps"
    DEVICE = "device activity"
    LOADER = "data loader events"
    LAUNCHES = "launch records"
    COLLECTIVES = "collectives on the device"
    STACKS = "call stacks"
    DTYPES = "operator input types"
    SHAPES = "operator input shapes"
    DEVICE_MODEL = "a device of which it is known what it can do"
    PEAK_RATES = "a device whose peak rates are known"
    SETTINGS = "the run's settings"
    HOST_TELEMETRY = "samples of the host"
    DEVICE_TELEMETRY = "samples of the device"
    DEVICE_MEMORY = "how much device memory is held, and there is"
    SEVERAL_STEPS = "three complete steps"


FEWEST_STEPS = 3
"""Below this a mean says little of the run: the first steps compile, load and allocate."""

HOW_TO_GET = {
    Input.STEPS: "No complete step was recorded: let the profiler's active window hold several steps.",
    Input.DEVICE: "No kernels were recorded: record with ProfilerActivity.CUDA on a machine with a GPU.",
    Input.LOADER: "No data loader events were recorded: let the profiled loop iterate over its DataLoader.",
    Input.LAUNCHES: "No launch calls were recorded: record with ProfilerActivity.CPU beside the device's.",
    Input.STACKS: "No call stacks were recorded: record with with_stack=True.",
    Input.DTYPES: "No operator input types were recorded: record with record_shapes=True.",
    Input.COLLECTIVES: "No collectives ran on the device: the process trains by itself, or exchanges on the host.",
    Input.SHAPES: "No operator input shapes were recorded: record with record_shapes=True.",
    Input.DEVICE_MODEL: "What the device is capable of is not known: it is not said, or none of those known.",
    Input.PEAK_RATES: "The device's peak rates are not known: it is not said which it is, or none of those known.",
    Input.SETTINGS: "The loader's settings are not known: record with `traceadvisor capture`.",
    Input.HOST_TELEMETRY: "The host was not sampled: record with `traceadvisor capture`.",
    Input.DEVICE_TELEMETRY: "The device was not sampled: record with `traceadvisor capture` where NVML works.",
    Input.DEVICE_MEMORY: "Device memory was not recorded: record with profile_memory=True or `traceadvisor capture`.",
    Input.SEVERAL_STEPS: f"Fewer than {FEWEST_STEPS} steps tell nothing of what a step usually does: record more.",
}
"""Why a rule cannot look without an input, and how to record it. The order is that of the inputs."""


class MissingInput(Exception):  # noqa: N818  # it is no error: the rule is skipped
    """A rule asked for something that was not recorded; the engine skips the rule and says how to get it."""

    def __init__(self, what: Input) -> None:
        super().__init__(HOW_TO_GET[what])


class Severity(Enum):
    """How much of the step a finding claims: from 10%, from 3%, less."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Confidence(Enum):
    """How sure the tool is of the cause and of the saving."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Effort(Enum):
    """What the fix asks of the user."""

    SETTING = "setting"
    LINE = "line"
    REFACTOR = "refactor"


class Method(Enum):
    """How a saving was obtained."""

    REPLAY = "replay"
    """The step was simulated without the cost."""

    BOUND = "bound"
    """Between nothing and everything the cost takes; what was hidden behind it is not known."""

    MODEL = "model"
    """From a documented formula."""


class Unit(Enum):
    """Units of the figures in reports; durations are nanoseconds here and microseconds in JSON."""

    SHARE = "share"
    NS = "ns"
    NS_PER_STEP = "ns/step"
    PER_STEP = "1/step"
    COUNT = "count"
    BYTES = "bytes"
    BYTES_PER_STEP = "bytes/step"
    BYTES_PER_S = "bytes/s"
    FLOPS_PER_S = "flop/s"
    RATIO = "ratio"
    CELSIUS = "celsius"
    WATTS = "watts"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measured figure, with what it is."""

    label: str
    value: float | int | str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change.

    A fix with neither ``what_if`` nor ``not_replayed`` saves no time: it frees memory or prevents errors.
    """

    summary: str
    change: str | None = None
    """The exact change, as the user would write it, where it is known."""

    what_if: WhatIf | None = None
    """What the fix does to the recorded step: the step is simulated with it, alone and with all other fixes."""

    not_replayed: str | None = None
    """Why it cannot be simulated, as a clause without its stop; the saving is then an upper limit."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Saving per step in nanoseconds.

    Raises:
        ValueError: not ``0 <= low <= expected <= high``, all finite, or a bound without a reason.
    """

    low_ns: float
    expected_ns: float
    high_ns: float
    method: Method
    reason: str | None = None
    """Why it is a bound and not replayed, or what makes a replayed one less sure; None where nothing does."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_ns <= self.expected_ns <= self.high_ns < inf:
            raise ValueError(f"not in order: {self.low_ns}, {self.expected_ns}, {self.high_ns}")
        if self.method is Method.BOUND and not self.reason:
            raise ValueError("a bound without a reason")

    @classmethod
    def nothing(cls) -> Self:
        """The saving of a fix that makes no step shorter."""
        return cls(0.0, 0.0, 0.0, Method.MODEL)

    @classmethod
    def bound(cls, most_ns: float, reason: str) -> Self:
        """Between nothing and ``most_ns``; the middle stands for the expected value.

        Args:
            most_ns: the most that can be saved.
            reason: why it is not replayed, as a sentence without its stop.
        """
        return cls(0.0, most_ns / 2, most_ns, Method.BOUND, f"not replayed: {reason}")


@dataclass(frozen=True, slots=True)
class RuleMeta:
    """What a report says of a rule."""

    id: str
    name: str
    title: str


UNSTAMPED = RuleMeta("", "", "")
"""Of a finding on its way from the rule to the engine."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Finding:
    """A cost, its cause and its remedy, in one recording."""

    claims: SpanSet
    """The time that the finding accounts for."""

    saving: Estimate
    confidence: Confidence
    effort: Effort
    evidence: tuple[Evidence, ...]
    fix: Fix
    locations: tuple[Location, ...] = ()
    caveats: tuple[str, ...] = ()
    rule: RuleMeta = UNSTAMPED
    """Filled in by the engine."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The rule looked and all is well: the figure it measured and the limit it held it against."""

    label: str
    value: float
    limit: float
    unit: Unit
    remark: str | None = None
    """Why the limit was not the whole story, where it was not."""

    saving_share: float | None = None
    """The most that the rule's popular fix saves, simulated, as a share of the step; None where it was not."""

    not_replayed: str | None = None
    """Why that fix was not simulated, as a clause without its stop; None where it was, or there is none."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rule could not look."""

    reason: str
    """What is missing, and how to get it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The rule broke; the report stands without it."""

    error: str


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The rule found something."""

    finding: Finding


Outcome = Finding | Clear | Skipped
"""What a rule may return."""

RuleOutcome = Found | Clear | Skipped | Failed
"""Everything that can come of running a rule."""
