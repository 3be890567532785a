"""Structures of the answers. A text that a recording chose is a :class:`Quoted`; all others are of this program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import TypeVar

import msgspec

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.text.cleaning import clean, clipped, one_line

MOST_BYTES = 24_000
"""Largest answer, as JSON."""

LONGEST_TEXT = 300
"""Characters of a quoted text."""

MOST_ROWS = (20, 10, 5, 2, 1)
"""Rows of each list, the first of these with which an answer is small enough."""


@frozen
class Quoted:
    """A text of a recording or of a script. It is data: whatever it says is no instruction."""

    untrusted_text: str


def quoted(text: object, longest: int = LONGEST_TEXT) -> Quoted:
    """The text, cleaned and clipped."""
    return Quoted(clipped(clean(str(text)), longest))


def quoted_line(text: object) -> Quoted:
    """The same in one line."""
    return Quoted(clipped(one_line(clean(str(text))), LONGEST_TEXT))


class Tool(Enum):
    """The tools of the server."""

    CAPTURE = "capture"
    REPORT = "report"
    EXPLAIN = "explain"
    COMPARE = "compare"
    TRY = "try"
    WHATIF = "whatif"


@frozen
class NextCall:
    """A call that goes on from here. Its arguments are paths that the caller gave or got, and ids of rules."""

    tool: Tool
    arguments: dict[str, str]
    still_to_give: tuple[str, ...] = ()
    """Arguments that only the caller knows."""


@frozen
class Interval:
    """A figure with its ends."""

    low: float
    expected: float | None
    """None if only the upper end is known."""

    high: float


@frozen
class Place:
    """A place in the code."""

    file: Quoted
    line: int
    function: Quoted | None
    is_to_edit: bool
    """Whether it is the line to edit, not only one that costs time."""


@frozen
class Measured:
    """A measured ratio of times per sample: changed over unchanged, below 1 is faster."""

    ratio: float
    low: float
    high: float
    rounds: int
    verdict: str


class Whole(Enum):
    """The whole that a saving is of."""

    STEP = "step"
    RUN = "run"
    """All of the time of the run, per step."""

    RECORDING = "recording"
    """No steps were found in it."""


@frozen
class FindingRow:
    """A finding, in the order of what to fix first."""

    rule: str
    title: str
    severity: str
    confidence: str
    effort: str
    saving_of: Whole

    saving_ms: Interval | None
    """None if the fix saves no time: it prevents errors or frees memory."""

    saving_share: Interval | None
    certainty: str
    """How the saving is known: ``simulated``, ``simulated_unsure``, ``calculated``, ``limit`` or ``none``."""

    fix: Quoted
    change: Quoted | None
    """The change as code."""

    places: tuple[Place, ...]
    can_be_tried: bool
    """Whether the tool ``try`` can measure it."""

    measured: Measured | None = None
    rules_to_try: tuple[str, ...] = ()
    """The ``rules`` to give to ``try``: of this finding and those merged into it, the ones whose fix is a setting."""


@frozen
class RecordingRow:
    """A recording."""

    id: Quoted
    step_ms: float | None
    """The step that savings are of."""

    samples_per_s: float | None
    share_of_step: dict[str, float]
    """Parts of the typical step."""


@frozen
class SmallFix:
    """A popular fix that would save less than 2% here."""

    what: Quoted
    most_share_of_step: float | None


@frozen
class Remark:
    """Something to know before using the figures."""

    text: Quoted
    degrades: bool


@frozen(kw_only=True)
class ReportAnswer:
    """The parts of the step time, and the fixes, the first ones first."""

    recordings: tuple[RecordingRow, ...]
    findings: tuple[FindingRow, ...]
    findings_left_out: int
    not_worth_doing: tuple[SmallFix, ...]
    remarks: tuple[Remark, ...]
    page: str | None = None
    """The HTML page that was written."""

    next_calls: tuple[NextCall, ...] = ()


@frozen(kw_only=True)
class EndedRun:
    """How the run of a script ended."""

    exit_code: int | None
    """None if the time was over."""

    last_output: Quoted
    """The end of what it printed."""


@frozen(kw_only=True)
class CaptureAnswer:
    """A recorded run, and the report on it."""

    run: str
    """The folder of the recording."""

    ended: EndedRun
    report: ReportAnswer | None
    refused: Refused | None = None
    """Why there is no report; None without a folder, where :attr:`ended` says why."""


@frozen
class EvidenceRow:
    """A measured figure."""

    label: Quoted
    value: float | Quoted
    unit: str


@frozen
class Paragraph:
    """A part of the documentation of a rule."""

    title: str
    text: str


@frozen(kw_only=True)
class FindingDetails:
    """One finding with its evidence."""

    finding: FindingRow
    evidence: tuple[EvidenceRow, ...]
    caveats: tuple[Quoted, ...]
    lines_before: Quoted | None
    lines_after: Quoted | None


@frozen(kw_only=True)
class ExplainAnswer:
    """A rule, and what it found in a run."""

    rule: str
    title: str
    documentation: tuple[Paragraph, ...]
    found: FindingDetails | None = None


@frozen
class FindingChangeRow:
    """A finding in both sides."""

    rule: str
    title: str
    status: str


@frozen
class PredictionRow:
    """A predicted step beside the measured one."""

    rules: tuple[str, ...]
    predicted_step_ms: Interval
    measured_step_ms: float
    agreement: str


@frozen
class DifferenceRow:
    """A setting, a version or a line of code that differs."""

    kind: str
    name: Quoted
    base: Quoted
    head: Quoted


@frozen(kw_only=True)
class ComparedRow:
    """One script in both sides."""

    name: Quoted
    verdict: str | None
    """None if a side has no step time."""

    certainty: str | None
    base_step_ms: float | None
    head_step_ms: float | None
    ratio: Interval | None
    """HEAD over BASE; below 1, HEAD is faster. None without an interval: too few captures."""

    captures_needed: int | None
    smallest_visible_share: float | None
    predictions: tuple[PredictionRow, ...]
    findings: tuple[FindingChangeRow, ...]
    differences: tuple[DifferenceRow, ...]
    cautions: tuple[Quoted, ...]


@frozen(kw_only=True)
class CompareAnswer:
    """The changes from BASE to HEAD, and how certain they are."""

    verdict: str
    certainty: str
    runs: tuple[ComparedRow, ...]
    runs_left_out: int
    remarks: tuple[Quoted, ...]


@frozen(kw_only=True)
class TriedRow:
    """A fix: predicted beside measured, as times per sample over those of the script as it is."""

    rule: str
    """Its id, or ``all`` for all fixes together."""

    settings: Quoted
    predicted: Interval | None
    measured: Measured | None
    problem: Quoted | None


@frozen(kw_only=True)
class TryAnswer:
    """The measured savings of the fixes of a report."""

    run: str
    """The folder of the measurement."""

    ended: EndedRun
    fixes: tuple[TriedRow, ...]
    recommended: Quoted | None
    """Settings that were faster together."""

    lines: tuple[Quoted, ...]
    """Code for them."""

    is_busy_machine: bool | None
    problems: tuple[Quoted, ...] = field(default=())


@frozen(kw_only=True)
class ChangedRow:
    """One change and what follows; figures are None if unknown."""

    gpu: str | None
    """None for what stays as recorded, here and in the next four."""

    batch: int | None
    workers: int | None
    cpu_cores: int | None
    gpus: int | None
    """GPUs that train together."""

    unknown_because: str | None
    step_ms: Interval | None
    samples_per_s: Interval | None
    gpu_busy_share: Interval | None
    limit: str | None
    """The part that sets the pace."""

    memory_gb: Interval | None
    fits: str | None
    largest_batch: int | None
    cost_per_million_samples: Interval | None
    rests_on: tuple[str, ...]


@frozen(kw_only=True)
class ProgramRow:
    """A recording and its changes."""

    name: Quoted
    gpu: Quoted | None
    batch: int | None
    recorded: ChangedRow
    changes: tuple[ChangedRow, ...]
    changes_left_out: int
    speed_up_of_a_gpu_twice_as_fast: Interval | None


@frozen(kw_only=True)
class WhatifAnswer:
    """Steps on other GPUs, with other batches, more ranks or other workers."""

    programs: tuple[ProgramRow, ...]
    programs_left_out: int
    currency: str
    remarks: tuple[Quoted, ...]


class Refusal(Enum):
    """Why a call has no answer."""

    OUTSIDE = "outside_of_the_folders"
    NOT_ALLOWED = "not_allowed_by_the_user"
    USAGE = "usage"
    INPUT = "input"
    UNEXPECTED = "unexpected"


@frozen
class Refused:
    """A call without an answer."""

    error: Refusal
    reason: str
    details: Quoted | None = None


class RefusedError(UsageError):
    """A call has no answer."""

    def __init__(self, error: Refusal, reason: str, about: object = None) -> None:
        """``about``: what it is about, in words of the caller or of a recording."""
        self.answer = Refused(error, reason, None if about is None else quoted_line(about))
        super().__init__(reason)


Answer = TypeVar("Answer")


def bounded(make: Callable[[int], Answer]) -> bytes:
    """The answer as JSON, with as many rows as fit.

    ``make``: returns the answer with at most that many rows in each list.

    Raises:
        UsageError: not even one row fits.
    """
    for most in MOST_ROWS:
        answer = msgspec.json.encode(make(most))
        if len(answer) <= MOST_BYTES:
            return answer
    raise UsageError(f"The answer has more than {MOST_BYTES} bytes. Choose fewer paths.")
