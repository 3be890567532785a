"""Outcomes of rules, the inputs that rules require, and how to get them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import Enum
from typing import Self

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.json_hints import NOT_IN_JSON, MaybeNan
from traceadvisor.model.location import Location as Location  # noqa: PLC0414  # exported here, defined in a module without numpy
from traceadvisor.model.location import Role
from traceadvisor.model.origins import Origins
from traceadvisor.model.replay import WhatIf
from traceadvisor.model.saving import WIDE_RATIO as WIDE_RATIO  # noqa: PLC0414  # as above
from traceadvisor.model.saving import Certainty as Certainty  # noqa: PLC0414
from traceadvisor.model.saving import Estimate as Estimate  # noqa: PLC0414
from traceadvisor.model.saving import Method as Method  # noqa: PLC0414
from traceadvisor.model.saving import Reason
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Part


class Option(Enum):
    """An option of a recording, as a user writes it."""

    CPU = "ProfilerActivity.CPU"
    CUDA = "ProfilerActivity.CUDA"
    STACKS = "with_stack=True"
    SHAPES = "record_shapes=True"
    MEMORY = "profile_memory=True"
    CAPTURE = "`traceadvisor capture`"


class Input(Enum):
    """An input that a rule may require, as the documentation names it."""

    __hash__ = object.__hash__  # a member equals only itself; by its name, as enums do, takes five times as long

    STEPS = "steps"
    DEVICE = "GPU activity"
    LOADER = "data loader events"
    LAUNCHES = "kernel launches"
    COLLECTIVES = "GPU collectives"
    STACKS = "call stacks"
    DTYPES = "operator input types"
    SHAPES = "operator input shapes"
    DEVICE_MODEL = "a known GPU model"
    PEAK_RATES = "a GPU with known peak rates"
    SETTINGS = "settings of the run"
    HOST_TELEMETRY = "CPU samples"
    DEVICE_TELEMETRY = "GPU samples"
    DEVICE_MEMORY = "GPU memory use and capacity"
    SEVERAL_STEPS = "three complete steps"
    REAL_STEP = "a marked step with real work"


FEWEST_STEPS = 3
"""With fewer steps, averages do not represent the run, because the first steps compile, load and allocate."""

LEAST_OPERATIONS = 10
"""GPU operations per step. One or two steps with fewer show a test, not a training loop."""


def few_steps(count: int) -> str:
    """Say how few steps were recorded, as a sentence without its stop; ``count`` is below ``FEWEST_STEPS``."""
    words = ("No complete step was recorded", "One step was recorded", "Two steps were recorded")
    return words[count]


@frozen
class Hint:
    """Why an input is missing, and how to record it."""

    reason: str
    """A sentence without its stop."""

    options: tuple[Option, ...] = ()
    """Any of them records it; none if no option does."""

    what_else: str = ""
    """Need of the recording beside an option, such as a GPU."""

    def sentence(self, recorded_with: Collection[Option] = ()) -> str:
        """The reason with its remedy, which never names what was recorded with."""
        used = [option.value for option in self.options if option in recorded_with]
        if used:
            return f"{self.reason}, although it was recorded with {used[0]}."
        if not self.options:
            return f"{self.reason}."
        options = " or ".join(option.value for option in self.options)
        return f"{self.reason}: record with {options}{self.what_else}."


HOW_TO_GET: Mapping[Input, Hint] = {
    Input.STEPS: Hint("No complete step was recorded: record several steps in the profiler's active window"),
    Input.DEVICE: Hint("No kernels were recorded", (Option.CUDA,), " on a machine with a GPU"),
    Input.LOADER: Hint("No data loader events were recorded: iterate over the DataLoader in the profiled loop"),
    Input.LAUNCHES: Hint("No launch calls were recorded", (Option.CUDA,)),
    Input.STACKS: Hint("No call stacks were recorded", (Option.STACKS,)),
    Input.DTYPES: Hint("No operator input types were recorded", (Option.SHAPES,)),
    Input.COLLECTIVES: Hint("No collectives ran on the GPU: there is a single process, or they run on the CPU"),
    Input.SHAPES: Hint("No operator input shapes were recorded", (Option.SHAPES,)),
    Input.DEVICE_MODEL: Hint("The GPU's capabilities are unknown: its model was not recorded or is not supported"),
    Input.PEAK_RATES: Hint("The GPU's peak rates are unknown: its model was not recorded or is not supported"),
    Input.SETTINGS: Hint("The data loader settings are unknown", (Option.CAPTURE,)),
    Input.HOST_TELEMETRY: Hint("The CPU was not sampled", (Option.CAPTURE,)),
    Input.DEVICE_TELEMETRY: Hint("The GPU was not sampled", (Option.CAPTURE,), " on a machine with NVML"),
    Input.DEVICE_MEMORY: Hint("GPU memory was not recorded", (Option.MEMORY, Option.CAPTURE)),
    Input.SEVERAL_STEPS: Hint(
        f"Fewer than {FEWEST_STEPS} steps were recorded, too few for a typical step: record more"
    ),
    Input.REAL_STEP: Hint(
        "No marked step with real work was recorded: mark steps with the profiler's step(), and record real training "
        "steps"
    ),
}
"""The reason to skip a rule without an input, and how to record the input."""


class MissingInput(Exception):  # noqa: N818  # not an error: the rule is skipped
    """An input of a rule was not recorded. The engine skips the rule and says how to get the input."""

    def __init__(self, what: Input) -> None:
        super().__init__(HOW_TO_GET[what].sentence())
        self.what = what


class Severity(Enum):
    """The expected saving as a share of the step: at least 10%, at least 3%, less."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Confidence(Enum):
    """How certain the cause is. How certain the saving is, is its :class:`Certainty`."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Effort(Enum):
    """How much work the fix is: a setting, a line of code, or a restructuring."""

    SETTING = "setting"
    LINE = "line"
    REFACTOR = "refactor"


class Unit(Enum):
    """Units of figures in reports. Durations are in nanoseconds."""

    __hash__ = object.__hash__  # a member equals only itself; by its name, as enums do, takes five times as long

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


@frozen
class Evidence:
    """A measured figure with its label."""

    label: str
    value: MaybeNan | int | str
    unit: Unit


@frozen
class LineEdit:
    """The line to edit for a fix: it constructs the object that the settings of the fix belong to."""

    name: str
    """The class of the object."""

    place: Location
    keywords: Mapping[str, SettingValue] = field(default_factory=dict)
    """The arguments to set there; empty if the object is changed after its construction."""

    before: str | None = None
    """The lines from the place on, as they are; None if they cannot be changed by themselves."""

    after: str | None = None
    """The same lines with the arguments."""

    replaced: Mapping[str, str] = field(default_factory=dict)
    """Arguments for which the lines had an expression, not a constant; with it."""

    unchanged: str | None = None
    """Why there are no lines, as a clause about the call."""

    is_recorded: bool = True
    """Whether a capture recorded the line; otherwise it was found by its name in the script's file."""

    through: str | None = None
    """The library that constructs the object for this line; None if the line itself does."""

    takes: str | None = None
    """The class of that library that takes the arguments; None if unknown."""


@frozen
class Fix:
    """The change to make.

    A fix with neither ``what_if`` nor ``not_replayed`` saves no time: it frees memory or prevents errors.
    """

    summary: str
    change: str | None = None
    """The change as code or command; None if unknown."""

    what_if: WhatIf | None = None
    """The change of the recorded step for the simulation, alone and with all other fixes."""

    not_replayed: str | None = None
    """Why it cannot be simulated, as a clause without its stop; the saving is then an upper limit."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """The settings that the change sets, by the names of `sweep` and `try`; empty if it changes other code."""

    edit: LineEdit | None = None
    """The line to edit for the settings; None if it is not known. Filled in by the engine."""

    needs_torch: str | None = None
    """First torch version that has everything in the change; None if the recorded version has it, or every version
    does. Filled in by the engine."""

    is_conditional: bool = field(default=False, metadata=NOT_IN_JSON)
    """Whether its words name several changes with their conditions, of which the recording shows none to hold. The
    finding then states the time of its place, and promises no saving."""

    edits: Role | None = field(default=None, metadata=NOT_IN_JSON)
    """The object whose construction is the line to edit, for a change without settings that belong to one."""

    effort: Effort | None = field(default=None, metadata=NOT_IN_JSON)
    """How much work it is; None if that is the same for all fixes of the rule, which then tells it."""

    caveats: tuple[str, ...] = field(default=(), metadata=NOT_IN_JSON)
    """Sentences on this fix. Those on the cause are the rule's."""

    needs: frozenset[Part] = field(default=frozenset(), metadata=NOT_IN_JSON)
    """Parts of the program that the summary and the change are about."""

    otherwise: Fix | None = field(default=None, metadata=NOT_IN_JSON)
    """The same fix in other words, for a program without one of these parts; None leaves out the change."""

    @classmethod
    def conditional(cls, summary: str, needs: frozenset[Part] = frozenset()) -> Self:
        """A fix with several changes, of which the recording does not show which one is possible."""
        return cls(summary, not_replayed="which change is possible is unknown", is_conditional=True, needs=needs)

    def fitting(self, program: frozenset[Part]) -> Fix:
        """The fix in words for a program with these parts."""
        if self.needs <= program:
            return replace(self, otherwise=None)
        words = self.otherwise or Fix(self.summary)
        return replace(
            self,
            summary=words.summary,
            change=words.change,
            settings=words.settings,
            needs=words.needs,
            otherwise=words.otherwise,
        ).fitting(program)


@frozen
class RuleMeta:
    """Id, name and title of a rule."""

    id: str
    name: str
    title: str


UNSTAMPED = RuleMeta("", "", "")
"""Placeholder in a finding until the engine fills in its rule. A title here replaces that of the rule."""


@frozen(eq=False, kw_only=True)
class Finding:
    """A cost with its cause and fix, in one recording."""

    claims: SpanSet
    """The time that the finding claims."""

    saving: Estimate
    confidence: Confidence
    effort: Effort
    evidence: tuple[Evidence, ...]
    fix: Fix
    locations: tuple[Location, ...] = ()
    caveats: tuple[str, ...] = ()
    rule: RuleMeta = UNSTAMPED
    """Filled in by the engine."""

    of_run: bool = False
    """Whether the saving is a share of the training time of the whole run, applied to the step. Rare losses are not in
    the median step, so such a saving is not a part of it."""

    whole_ns: float | None = field(default=None, metadata=NOT_IN_JSON)
    """The time per step that a share of the run is of, if it is more than the step: a part lies outside steps."""

    origins: Origins | None = None
    """Origins of the claimed time, filled in by the engine; None if nothing is claimed."""

    also_shortens: SpanSet = field(default_factory=SpanSet.empty, metadata=NOT_IN_JSON)
    """Other time that the fix makes shorter. An upper limit includes all of it."""

    set_off_by: SpanSet = field(default_factory=SpanSet.empty, metadata=NOT_IN_JSON)
    """Time of the work that causes this cost, wherever it falls: a fix of this work may save the cost, too."""

    alone_ns: float | None = field(default=None, metadata=NOT_IN_JSON)
    """Saving without other programs on the machine, in the time of the recorded step; None if they do not change it."""

    most_ns: float | None = field(default=None, metadata=NOT_IN_JSON)
    """Upper limit of the saving per typical step, from which the saving is still to be found; None once it is known."""

    @property
    def places(self) -> tuple[Location, ...]:
        """The line to edit, if it is known, then the lines that cost the time."""
        return (*((self.fix.edit.place,) if self.fix.edit else ()), *self.locations)


class ClearedBecause(Enum):
    """Why a check passes although its cause is there."""

    TAKEN_OVER = "taken_over"
    """Other work takes the place of the time that the fix removes."""

    SAVES_LITTLE = "saves_little"
    """The fix is expected to save less than anybody would act on."""


class NotCounted(Enum):
    """Time of a category that findings and checks leave out, while the step by category shows it."""

    START_UP = "start_up"
    """Start-up: later steps have none."""

    RANK_WAITS = "rank_waits"
    """Time in which collectives only wait for other ranks."""


@frozen
class Clear:
    """A passed check: its figure and the limit of the figure."""

    label: str
    value: MaybeNan
    limit: MaybeNan
    unit: Unit
    remark: str | None = None
    """Another reason for passing, besides the limit; None without one."""

    saving_share: float | None = None
    """Simulated upper limit of the popular fix's saving, as a share of the step; None if not simulated."""

    doubt: Reason | None = None
    """Why that fix was not simulated; None if it was, or without such a fix."""

    because: ClearedBecause | None = field(default=None, kw_only=True)
    """Why a check passes whose cause is there; None where the figure is within its limit."""

    at_least: bool = field(default=False, kw_only=True)
    """Whether the check passes from the limit on. By default it passes up to the limit."""

    not_counted: tuple[NotCounted, ...] = field(default=(), kw_only=True)
    """Parts of its category that the figure leaves out, filled in by the engine; empty if it is the whole category."""

    hidden_at: Location | None = field(default=None, kw_only=True)
    """The line that is as slow as in a finding, while loader workers hide it from the step; None without one."""

    judged_share: float | None = None
    """Share of kernel time that the check could judge, 0..1; None for a check that does not judge kernels. With less
    than :data:`LEAST_JUDGED_SHARE`, the check counts as skipped."""


LEAST_JUDGED_SHARE = 0.5
"""With less of the kernel time judged, a passed check says too little."""

WHOLE_SHARE = 0.95
"""With at least this share judged, the rest changes no conclusion, and reports do not mention it."""


@frozen
class Skipped:
    """A check that was skipped."""

    reason: str
    """The missing input, and how to get it."""


@frozen
class Silenced:
    """The part of a finding of one recording that a law took away. A rule that often loses something needs a change."""

    rule_id: str
    recording_id: str
    finding: str
    """Its fix."""

    law: str
    figure: str
    """The figure that the law limits."""

    before_ns: float
    """Per step, before the law."""

    after_ns: float
    """0 where the law allows no finding."""


@frozen
class Failed:
    """A rule that failed; the report contains the other rules."""

    error: str


@frozen(eq=False)
class Found:
    """A check with a finding."""

    finding: Finding


Outcome = Finding | Clear | Skipped
"""The results that a rule may return."""

RuleOutcome = Found | Clear | Skipped | Failed
"""All outcomes of running a rule."""
