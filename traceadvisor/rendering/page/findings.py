"""Findings as the templates show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Confidence, Effort, Estimate, Finding, Fix, Location, Method, Severity
from traceadvisor.model.report import RankedFinding, RecordedFinding, Recording, Report, Umbrella
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.experiment.words import measured_words
from traceadvisor.rendering.headline import HARDWARE, step_time
from traceadvisor.rendering.origins import OriginView, finding_view, frame_words, location_words, origin_phrase
from traceadvisor.rendering.page.trace import TraceLink, trace_link
from traceadvisor.rendering.savings import (
    further,
    is_wide,
    range_over,
    range_words,
    saves_nothing,
    saving_sentence,
    saving_words,
    share_of_step,
    share_words,
    worth_words,
)
from traceadvisor.rendering.table import Cell, Column, Table
from traceadvisor.rendering.units import duration, evidence_value, number_of
from traceadvisor.rendering.words import CERTAINTY, CONFIDENCE, EFFORT, FOLDED, METHOD, SEVERITY
from traceadvisor.text.cleaning import clipped_inside


@frozen
class Row:
    """A labelled figure."""

    label: str
    value: str


@frozen
class Place:
    """A source line."""

    where: str
    function: str | None
    owner: str | None = None
    """The frame that owns the time, often of a library; None if it is this line."""


@frozen
class SavingView:
    """The saving of a fix, in words as certain as its estimate."""

    headline: str
    """``about 51.0 ms per step``, ``up to 51.0 ms per step`` or, without a saving, ``prevents errors``. For a finding
    with others above it: what it saves after those, ``a further 3.1 ms per step``."""

    share: str
    """``28.7% of the step``, ``up to 28.7% of the step`` or ``no speed-up``."""

    sentence: str
    """``Saves about 51.0 ms per step (28.7%)`` or ``Prevents errors; no speed-up``."""

    adds: bool
    """Whether the headline is the saving after those above."""

    alone: str | None
    """The saving of the fix alone, where it differs from that."""

    certainty: str
    """``simulated``, ``upper limit``: how certain the saving is."""

    is_certainty_shown: bool
    """Whether the certainty adds to the share; it repeats a missing saving."""

    range: str | None
    """``45.0 ms to 55.0 ms`` if the headline shows only the expected figure and the estimate is a range."""

    predicted: str | None
    """The step with the fix: ``121.8 ms (118.2 ms to 130.0 ms), now 177.4 ms``; None if the fix was not simulated."""

    method: str | None
    """The method of the estimate, with the reason for it; None without a saving."""

    span_start: str | None
    """Low end of the range as a share of the step, ``12.5%``; None if the step time is unknown."""

    span_length: str | None
    expected_length: str | None


@frozen
class FindingView:
    """One finding in the ranked list."""

    rank: int
    anchor: str
    title: str
    rule_id: str
    recordings: tuple[str, ...]
    where: str
    """The recordings in a few words."""

    over_recordings: str | None
    """The range of the saving over several recordings; None for one."""

    by_recording: Table | None
    """The figures of each recording, folded; None for one recording."""

    severity: Severity
    severity_words: str
    in_trace: TraceLink | None
    """Where it is in the trace of a step on the page; None if that is not shown."""

    saving: SavingView
    confidence: str
    unsure: bool
    effort: str
    evidence: tuple[Row, ...]
    places: tuple[Place, ...]
    fix: str
    change: str | None
    caveats: tuple[str, ...]
    also: tuple[str, ...]
    """The findings that are part of this one, each with the reason."""

    provider: str | None
    """The plugin distribution that provides the rule; None for built-in rules."""

    worth: str | None
    """The saving in money; None without a price."""

    origin: OriginView | None
    """Where the time comes from; None if the finding claims no time."""

    origin_phrase: str | None
    """The main origin in a phrase."""

    measured: str | None
    """What an experiment measured for the fix, in a phrase."""

    measured_at: int | None = None
    """The number of that experiment on the page, which begins with the newest."""


def finding_views(report: Report, traced: Sequence[Recording] = ()) -> tuple[FindingView, ...]:
    """The findings, ranked as in the report.

    Args:
        report: the report.
        traced: the recordings whose traces are on the page, in order.
    """
    recordings = {recording.id: recording for recording in report.recordings}
    views: list[FindingView] = []
    seen: set[str] = set()
    repeated = repeated_changes(report)
    for rank, ranked in enumerate(report.findings, start=1):
        provider = report.settings.providers.get(ranked.finding.rule.id)
        view = _view(rank, ranked, recordings, provider, adds=ranked.recording_ids[0] in seen)
        if earlier := repeated.get(rank):
            view = replace(view, fix=f"{view.fix} (same change as finding {earlier})", change=None)
        views.append(replace(view, in_trace=trace_link(ranked, traced), measured_at=_measured_at(report, ranked)))
        seen.update(ranked.recording_ids)
    return tuple(views)


def _measured_at(report: Report, ranked: RankedFinding) -> int | None:
    for number, result in enumerate(reversed(report.experiments), start=1):
        rows = [row for row in result.ledger if row.fix == ranked.finding.rule.id]
        if ranked.measured and any(row.measured == ranked.measured.measured for row in rows):
            return number
    return None


def repeated_changes(report: Report) -> dict[int, int]:
    """The rank of each finding whose code is that of an earlier one, with the rank of the first of these."""
    first: dict[str, int] = {}
    repeated: dict[int, int] = {}
    for rank, row in enumerate(report.findings, start=1):
        if change := row.finding.fix.change:
            earlier = first.setdefault(change, rank)
            if earlier != rank:
                repeated[rank] = earlier
    return repeated


LONGEST_PLACE = 100
"""Characters of a place; paths and names can have hundreds."""


def _place(location: Location) -> Place:
    return Place(
        clipped_inside(location_words(location), LONGEST_PLACE),
        clipped_inside(location.function, LONGEST_PLACE) if location.function and location.is_call else None,
        None if location.owner is None else clipped_inside(frame_words(location.owner), LONGEST_PLACE),
    )


def _view(
    rank: int, ranked: RankedFinding, recordings: dict[str, Recording], provider: str | None, *, adds: bool
) -> FindingView:
    finding = ranked.finding
    of_rows = [recordings[id_] for id_ in ranked.recording_ids if id_ in recordings]
    return FindingView(
        rank=rank,
        anchor=f"finding-{rank}",
        title=finding.rule.title,
        rule_id=finding.rule.id,
        recordings=ranked.recording_ids,
        where=_where(ranked.recording_ids),
        over_recordings=_over_recordings(ranked),
        by_recording=_by_recording(ranked),
        severity=ranked.severity,
        severity_words=SEVERITY[ranked.severity],
        in_trace=None,
        saving=_saving(ranked, of_rows, adds=adds),
        confidence=CONFIDENCE[finding.confidence],
        unsure=finding.confidence is Confidence.LOW,
        effort=_effort(finding),
        evidence=tuple(Row(evidence.label, evidence_value(evidence)) for evidence in finding.evidence),
        places=tuple(_place(location) for location in finding.locations),
        fix=_fix_words(finding.fix),
        change=finding.fix.change,
        caveats=finding.caveats,
        also=_also(ranked),
        provider=provider,
        worth=worth_words(ranked),
        origin=finding_view(finding.origins),
        origin_phrase=origin_phrase(finding.origins),
        measured=measured_words(ranked.measured) if ranked.measured else None,
    )


def _effort(finding: Finding) -> str:
    """The effort of a fix; code of several lines is not called one line."""
    lines = len((finding.fix.change or "").splitlines())
    return "change a few lines" if finding.effort is Effort.LINE and lines > 1 else EFFORT[finding.effort]


def _fix_words(fix: Fix) -> str:
    """What to change, and the torch version that it needs."""
    return f"{fix.summary} (needs torch {fix.needs_torch} or newer)" if fix.needs_torch else fix.summary


def _where(recording_ids: tuple[str, ...]) -> str:
    """The typical recording, and how many more there are; both names of two."""
    first, *rest = recording_ids
    return first if not rest else f"{first} and {rest[0] if len(rest) == 1 else number_of(len(rest), 'more recording')}"


def _over_recordings(ranked: RankedFinding) -> str | None:
    """The range of the saving over the recordings of a row; None for one recording."""
    if not ranked.by_recording:
        return None
    count = number_of(len(ranked.by_recording), "recording")
    return f"Over {count}: {range_over(ranked.by_recording)}, this fix alone"


def _by_recording(ranked: RankedFinding) -> Table | None:
    """The figures of each recording of a row; None for one recording."""
    if not ranked.by_recording:
        return None
    columns: tuple[Column, ...] = (
        Column("Recording", numeric=False),
        Column("Saving alone", numeric=False),
        Column("After those above", numeric=False),
        Column("Step now"),
        Column("Certainty", numeric=False),
        Column("Location and other change", numeric=False),
    )
    rows = tuple(_recording_row(case, ranked.finding.fix.change) for case in ranked.by_recording)
    if not any(row[-1].text for row in rows):
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    return Table(f"By recording ({len(rows)})", columns, rows)


def _recording_row(case: RecordedFinding, shown_change: str | None) -> tuple[Cell, ...]:
    """The figures of one recording; its change only if it differs from the one that is shown for the row."""
    finding, after = case.finding, case.further_saving
    places = (location_words(location) for location in finding.locations[:1])
    change = None if finding.fix.change == shown_change else finding.fix.change
    return (
        Cell(", ".join(case.recording_ids)),
        Cell(saving_words(finding.saving), remark=share_words(finding.saving, case.saving_share)),
        Cell("unknown" if after is None else "the same" if after == finding.saving else saving_words(after, adds=True)),
        Cell(duration(case.step_ns)),
        Cell(CERTAINTY[finding.saving.certainty], remark=f"cause: {CONFIDENCE[finding.confidence]} confidence"),
        Cell("; ".join(filter(None, (*places, change)))),
    )


def _also(ranked: RankedFinding) -> tuple[str, ...]:
    """The findings that are part of this one, each with the reason."""
    folded = {one.rule.id: f"{one.rule.title} ({one.rule.id}): {FOLDED[one.because]}" for one in ranked.folded}
    return tuple(folded.get(rule_id, f"{rule_id} in other recordings") for rule_id in ranked.also)


def _saving(ranked: RankedFinding, recordings: Sequence[Recording], *, adds: bool) -> SavingView:
    alone, step_ns = ranked.finding.saving, ranked.step_ns
    adds = adds and alone.high_ns > 0 and ranked.further_saving is not None
    saving = further(ranked) if adds else alone
    share, nothing = share_of_step(saving, ranked), saves_nothing(saving)
    bound = saving.method is Method.BOUND
    drawn = step_ns is not None and step_ns > 0 and saving.high_ns > 0
    scale = step_ns if step_ns else 1.0
    return SavingView(
        headline=saving_words(saving, adds=adds),
        share=share_words(saving, share) if not (adds and nothing) else "those above take its saving",
        sentence=saving_sentence(saving, share, adds=adds, of_run=ranked.finding.of_run),
        adds=adds,
        alone=_alone_words(ranked) if adds and saving != alone else None,
        certainty=CERTAINTY[saving.certainty],
        is_certainty_shown=not nothing,
        range=None
        if bound or is_wide(saving) or duration(saving.low_ns) == duration(saving.high_ns)
        else range_words(saving),
        predicted=_predicted(ranked, recordings),
        method=_method(alone) if alone.high_ns else None,
        span_start=across(min(1.0, saving.low_ns / scale)) if drawn else None,
        span_length=across(min(1.0, (saving.high_ns - saving.low_ns) / scale)) if drawn else None,
        expected_length=across(min(1.0, saving.expected_ns / scale)) if drawn and not bound else None,
    )


def _alone_words(ranked: RankedFinding) -> str:
    saving = ranked.finding.saving
    return f"{saving_words(saving)} ({share_words(saving, ranked.saving_share)})"


def _method(saving: Estimate) -> str:
    if saving.reason is None:
        return METHOD[saving.method]
    return f"{METHOD[saving.method]} {saving.reason[:1].upper()}{saving.reason[1:]}."


def _predicted(ranked: RankedFinding, recordings: Sequence[Recording]) -> str | None:
    step = ranked.predicted_step
    if step is None or ranked.step_ns is None:
        return None
    low, high = duration(step.low_ns), duration(step.high_ns)
    range_ = "" if low == high else f" ({low} to {high})"
    return f"{duration(step.expected_ns)}{range_}, now {_step_words(ranked.step_ns, recordings)}"


def _step_words(step_ns: float, recordings: Sequence[Recording]) -> str:
    """The step time that a saving refers to, with a remark if it differs from the recording's headline."""
    step = duration(step_ns)
    is_headed = any(duration(step_time(recording).ns) == step for recording in recordings)
    return step if is_headed else f"{step} (typical recorded step)"


@frozen
class UmbrellaView:
    """One umbrella finding: a summary of the step as a whole, with its figures."""

    summary: str
    table: Table


def umbrella_views(recording: Recording, first: str | None) -> tuple[UmbrellaView, ...]:
    """The umbrella findings on one recording.

    Args:
        recording: the recording.
        first: title of its first finding, whose fix comes before what the umbrellas propose; None without findings.
    """
    return tuple(_umbrella_view(umbrella, first) for umbrella in recording.umbrellas)


def umbrella_table(report: Report) -> Table:
    """The umbrella findings on all recordings."""
    columns = (
        Column("Recording", numeric=False),
        Column("Summary", numeric=False),
        Column("Measured", numeric=False),
        Column("Figure"),
    )
    rows = tuple(
        (Cell(recording.id), Cell(umbrella.rule.title.partition(":")[0]), Cell(row.label), Cell(evidence_value(row)))
        for recording in report.recordings
        for umbrella in recording.umbrellas
        for row in umbrella.evidence
    )
    return Table("The step as a whole", columns, rows)


def _umbrella_view(umbrella: Umbrella, first: str | None) -> UmbrellaView:
    columns = (Column("Measured", numeric=False), Column("Figure"))
    rows = tuple((Cell(row.label), Cell(evidence_value(row))) for row in umbrella.evidence)
    title, summary = umbrella.rule.title, f"{umbrella.fix.summary}."
    if first is not None:
        title = title.partition(":")[0]
        if not umbrella.rule.id.startswith(HARDWARE):
            summary = f"Follow the findings, beginning with the first: {first}."
    return UmbrellaView(summary, Table(title, columns, rows))
