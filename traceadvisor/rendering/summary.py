"""A summary of the report for a terminal, as plain data that the command line prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.headline import recording_verdict, step_time, step_word, verdict, verdict_scope
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
"""Characters of a note, which states a problem and its fix."""


class Style(Enum):
    """Text styles; the values are style names of rich."""

    PLAIN = ""
    STRONG = "bold"
    QUIET = "dim"
    GAIN = "green"
    WARNING = "yellow"
    CODE = "cyan"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text in one style; rich markup in it has no effect."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line; an empty line separates paragraphs."""

    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(piece.text for piece in self.pieces)


def summary(report: Report) -> tuple[SummaryLine, ...]:
    """Problems of the input, the verdict, the step time of each recording, and the top findings."""
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
    """The text on one line; spaces at both ends are kept."""
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
    return lines + ([_line(Piece(f"{number_of(more, 'more note')} in the report", Style.QUIET))] if more > 0 else [])


def _warning(note: NoteView) -> SummaryLine:
    about = f" ({note.about})" if note.about else ""
    return _line(Piece("Note: ", Style.WARNING), Piece(f"{note.message}{about}"))


def _verdict(report: Report) -> list[SummaryLine]:
    scope = verdict_scope(report)
    return [_line(Piece(verdict(report), Style.STRONG)), *([] if scope is None else [_line(Piece(scope, Style.QUIET))])]


def _recordings(report: Report) -> list[SummaryLine]:
    lines = [_recording(recording, report) for recording in report.recordings[:MOST_RECORDINGS]]
    more = len(report.recordings) - len(lines)
    return lines + (
        [_line(Piece(f"{number_of(more, 'more recording')} in the report", Style.QUIET))] if more > 0 else []
    )


def _recording(recording: Recording, report: Report) -> SummaryLine:
    time = step_time(recording)
    if time.ns is None:
        return _line(Piece(f"{recording.id}: "), Piece(recording_verdict(recording), Style.QUIET))
    named = (Piece(f"{recording.id}: "),) if len(report.recordings) > 1 else ()
    samples = recording.samples_per_s
    return _line(
        *named,
        Piece(f"{_repetition(recording)} {duration(time.ns)}", Style.STRONG),
        Piece(f" ({'; '.join(filter(None, (time.kind, time.beside)))})", Style.QUIET),
        Piece(f", {count(samples)} samples/s" if samples is not None else ""),
        Piece(f", {cost}" if (cost := cost_words(recording)) else ""),
        Piece(f", GPU busy {percent(recording.shown_figures.busy_share)}"),
        Piece(_largest(recording)),
    )


def _repetition(recording: Recording) -> str:
    return "recording" if recording.step_source is StepSource.WINDOW else step_word(recording)


def _largest(recording: Recording) -> str:
    mean = recording.breakdown
    measured = {} if mean is None else {category: ns for category, ns in mean.parts_ns.items() if ns}
    if mean is None or not measured:
        return ""
    top = max(measured, key=lambda category: measured[category])
    return f", largest category: {CATEGORY[top]} {percent(mean.share(top))}"


def _findings(report: Report) -> list[SummaryLine]:
    findings = finding_views(report)
    several = len(report.recordings) > 1
    lines = [line for finding in findings[:TOP_FINDINGS] for line in _finding(finding, several=several)]
    more = len(findings) - TOP_FINDINGS
    return lines + ([_line(Piece(f"{number_of(more, 'more finding')} in the report", Style.QUIET))] if more > 0 else [])


def _finding(finding: FindingView, *, several: bool) -> list[SummaryLine]:
    lines = [
        _line(
            Piece(f"{finding.rank}. "),
            Piece(finding.title, Style.STRONG),
            Piece(": "),
            Piece(_lower(finding.saving.sentence), Style.GAIN),
            Piece(f", worth {finding.worth}" if finding.worth else ""),
            Piece(f", {finding.confidence} confidence", Style.QUIET),
        )
    ]
    if several:
        lines.append(_line(Piece(f"   In {', '.join(finding.recordings)}", Style.QUIET)))
    at = Piece(f" at {finding.places[0].where}", Style.CODE) if finding.places else Piece("")
    lines.append(_line(Piece("   Fix"), at, Piece(f": {finding.fix}")))
    if finding.change is not None:
        lines += [_line(Piece(f"   {code}", Style.CODE)) for code in finding.change.splitlines() if code.strip()]
    if finding.saving.predicted:
        lines.append(_line(Piece(f"   Predicted step: {finding.saving.predicted}", Style.QUIET)))
    return lines


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
