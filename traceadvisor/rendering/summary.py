"""The report in a few lines for a terminal: plain data, printed by the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.headline import recording_verdict, step_time, verdict, verdict_scope
from traceadvisor.rendering.page.findings import FindingView, finding_views
from traceadvisor.rendering.page.health import NoteView, warnings
from traceadvisor.rendering.page.recordings import cost_words
from traceadvisor.rendering.units import count, duration, number_of, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import one_line

TOP_FINDINGS = 3
MOST_RECORDINGS = 12
MOST_NOTES = 12
LONGEST_TEXT = 200
LONGEST_NOTE = 600
"""What is wrong and how to mend it."""


class Style(Enum):
    """How a piece of a line is set; the values are style names that rich understands."""

    PLAIN = ""
    STRONG = "bold"
    QUIET = "dim"
    GAIN = "green"
    WARNING = "yellow"
    CODE = "cyan"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text in one style. It is text, not markup: square brackets mean themselves."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line; an empty one sets paragraphs apart."""

    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(piece.text for piece in self.pieces)


def summary(report: Report) -> tuple[SummaryLine, ...]:
    """What is wrong with the input, the verdict, each recording's step, the first findings."""
    report = redacted(report)
    notes = _notes(shortened(report, LONGEST_NOTE))
    report = shortened(report, LONGEST_TEXT)
    blocks = (
        notes,
        _verdict(report),
        _recordings(report),
        _findings(report),
    )
    lines: list[SummaryLine] = []
    for block in blocks:
        lines += [SummaryLine(), *block] if lines and block else block
    return tuple(lines)


def _line(*pieces: Piece) -> SummaryLine:
    return SummaryLine(tuple(Piece(_flat(piece.text), piece.style) for piece in pieces))


def _flat(text: str) -> str:
    """On one line, with the spaces at its ends."""
    inner = one_line(text)
    return (
        f"{' ' * (len(text) - len(text.lstrip(' ')))}{inner}{' ' * (len(text) - len(text.rstrip(' ')))}"
        if inner
        else text
    )


def _notes(report: Report) -> list[SummaryLine]:
    notes = warnings(report)
    more = len(notes) - MOST_NOTES
    lines = [_warning(note) for note in notes[:MOST_NOTES]]
    return lines + (
        [_line(Piece(f"and {number_of(more, 'more note')} in the report", Style.QUIET))] if more > 0 else []
    )


def _warning(note: NoteView) -> SummaryLine:
    about = f" ({note.about})" if note.about else ""
    return _line(Piece("Note: ", Style.WARNING), Piece(f"{note.message}{about}"))


def _verdict(report: Report) -> list[SummaryLine]:
    scope = verdict_scope(report)
    return [_line(Piece(verdict(report), Style.STRONG)), *([] if scope is None else [_line(Piece(scope, Style.QUIET))])]


def _recordings(report: Report) -> list[SummaryLine]:
    lines = [_recording(recording, report) for recording in report.recordings[:MOST_RECORDINGS]]
    more = len(report.recordings) - len(lines)
    return lines + ([_line(Piece(f"and {number_of(more, 'more recording')}", Style.QUIET))] if more > 0 else [])


def _recording(recording: Recording, report: Report) -> SummaryLine:
    time = step_time(recording)
    if time.ns is None:
        return _line(Piece(f"{recording.id}: "), Piece(recording_verdict(recording), Style.QUIET))
    named = (Piece(f"{recording.id}: "),) if len(report.recordings) > 1 else ()
    samples = recording.samples_per_s
    return _line(
        *named,
        Piece(f"step {duration(time.ns)}", Style.STRONG),
        Piece(f" ({'; '.join(filter(None, (time.kind, time.beside)))})", Style.QUIET),
        Piece(f", {count(samples)} samples per s" if samples is not None else ""),
        Piece(f", {cost}" if (cost := cost_words(recording)) else ""),
        Piece(f", GPU busy {percent(recording.figures.busy_share)}"),
        Piece(_largest(recording)),
    )


def _largest(recording: Recording) -> str:
    mean = recording.mean_breakdown
    measured = {} if mean is None else {category: ns for category, ns in mean.parts_ns.items() if ns}
    if mean is None or not measured:
        return ""
    top = max(measured, key=lambda category: measured[category])
    return f", largest part {CATEGORY[top]} {percent(mean.share(top))}"


def _findings(report: Report) -> list[SummaryLine]:
    findings = finding_views(report)
    several = len(report.recordings) > 1
    lines = [line for finding in findings[:TOP_FINDINGS] for line in _finding(finding, several=several)]
    more = len(findings) - TOP_FINDINGS
    return lines + ([_line(Piece(f"and {more} more in the report", Style.QUIET))] if more > 0 else [])


def _finding(finding: FindingView, *, several: bool) -> list[SummaryLine]:
    where = f" in {', '.join(finding.recordings)}" if several else ""
    lines = [
        _line(
            Piece(f"{finding.rank}. "),
            Piece(finding.title, Style.STRONG),
            Piece(f"{where}: "),
            Piece(f"saves {finding.saving.headline}", Style.GAIN),
            Piece(f", {finding.saving.share}"),
            Piece(f", worth {finding.worth}" if finding.worth else ""),
            Piece(f" (confidence {finding.confidence})", Style.QUIET),
        )
    ]
    if finding.saving.predicted:
        lines.append(_line(Piece(f"   The step would take {finding.saving.predicted}", Style.QUIET)))
    at = f" at {finding.places[0].where}" if finding.places else ""
    lines.append(_line(Piece(f"   {finding.fix}"), Piece(at, Style.CODE)))
    if finding.change is not None:
        lines += [_line(Piece(f"   {code}", Style.CODE)) for code in finding.change.splitlines() if code.strip()]
    return lines
