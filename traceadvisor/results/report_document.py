"""The document that the JSON report is: its types are its schema.

``docs/report.schema.json`` is generated from this module, ``recording_document.py`` and ``run_document.py``; the
texts under the fields are its descriptions. Within version 1 keys are added, never renamed or removed. Every time is
in microseconds (``_us``) and rounded to the nanosecond, every share is 0..1, and what is not known is null. Times of
a recording count from its first event.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from traceadvisor.model.findings import Confidence, Effort, Method, Severity
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import SourceKind
from traceadvisor.results.recording_document import RecordingDocument


class DocumentUnit(Enum):
    """Units of evidence and thresholds."""

    SHARE = "share"
    US = "us"
    US_PER_STEP = "us/step"
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


class OutcomeStatus(Enum):
    """What came of a rule."""

    FOUND = "found"
    CLEAR = "clear"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """What was read."""

    paths: list[str]
    """As given; a home directory is written ``~``."""

    kind: SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDocument:
    """One thing to know before believing the figures."""

    code: str
    """Stable, for machines."""

    message: str
    recording: str | None
    """Id of the recording; null where the note is about the input as a whole."""

    degrades: bool
    """False where the note only informs and every figure stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthDocument:
    """The state of the input."""

    status: HealthStatus
    events_read: int
    events_dropped: int
    events_repaired: int
    notes: list[NoteDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDocument:
    """A measured figure."""

    label: str
    value: float | int | str | None
    unit: DocumentUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdDocument:
    """The limit that a figure was held against."""

    value: float | None
    unit: DocumentUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingDocument:
    """Time saved per step."""

    low: float
    expected: float
    high: float
    method: Method
    """How it was obtained."""

    reason: str | None
    """Why it is a bound and not replayed; null where it is no bound, or could not have been replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStepDocument:
    """How long a step would take."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationDocument:
    """A place in the user's code."""

    file: str
    line: int
    function: str | None
    is_call: bool
    """Whether the line is that of the call; else the function begins there, or stood there when recording began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRangeDocument:
    """A span of time in a recording."""

    recording: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixDocument:
    """What to change."""

    summary: str
    change: str | None
    """The exact change, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountsDocument:
    """Money saved."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorthDocument:
    """A saving in money, at the price that was set."""

    currency: str
    per_hour: AmountsDocument
    """Of training as it goes on, on all GPUs of the run."""

    per_million_samples: AmountsDocument | None
    """Null where the rate of samples is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingDocument:
    """A cost, its cause and its remedy."""

    rule_id: str
    rule: str
    title: str
    recordings: list[str]
    """Ids; several only where a rule compares ranks."""

    severity: Severity
    confidence: Confidence
    effort: Effort
    saving_us_per_step: SavingDocument
    saving_share: float | None
    """Expected saving over ``step_us``."""

    step_us: float | None
    """The step that the saving is of: the undisturbed one where it is known, else the median recorded one, the first
    and the last apart where there are others."""

    predicted_step_us: PredictedStepDocument | None
    """The step with the fix made; null where the fix was not replayed."""

    evidence: list[EvidenceDocument]
    locations: list[LocationDocument]
    time_ranges_us: list[TimeRangeDocument]
    """The longest spans of time that the finding accounts for, at most 20, in order of time."""

    fix: FixDocument
    caveats: list[str]
    also: list[str]
    """Ids of rules whose findings account for the same time and were folded into this one."""

    worth: WorthDocument | None
    """Null where no price is set, and where nothing is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWorthDoingDocument:
    """A popular fix that would gain next to nothing here."""

    what: str
    saving_share: float | None
    """The most it could gain, over the mean step."""

    reason: str
    recordings: list[str]
    """Ids of the recordings that this holds for; empty where it is about all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDocument:
    """What came of one rule on one recording."""

    rule_id: str
    recordings: list[str]
    status: OutcomeStatus
    reason: str | None
    """Why it was skipped or failed; for a clear one, what stands beside the threshold."""

    evidence: list[EvidenceDocument]
    threshold: ThresholdDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSettingsDocument:
    """What the user had set, as far as it bears on the report."""

    file: str | None
    """Where it was read from."""

    select: list[str]
    """Rules asked for; empty for all."""

    ignore: list[str]
    thresholds: dict[str, dict[str, bool | int | float | str]]
    """By rule, those that were set."""

    plugins: dict[str, str]
    """Rules that other distributions brought: id, then name and version of the distribution."""

    gpu_price_per_hour: float | None
    currency: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """Where training time goes and what to change first."""

    schema: Literal["traceadvisor.report/1"]
    tool_version: str
    source: SourceDocument
    health: HealthDocument
    recordings: list[RecordingDocument]
    findings: list[FindingDocument]
    """Ranked: expected saving, then confidence, then ease. Savings do not add up."""

    not_worth_doing: list[NotWorthDoingDocument]
    outcomes: list[OutcomeDocument]
    settings: UsedSettingsDocument
