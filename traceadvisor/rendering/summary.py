"""A summary of the report for a terminal, as plain data that the command line prints."""

from __future__ import annotations

import shlex
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import WHOLE_SHARE, Clear
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.code import fitted_code
from traceadvisor.rendering.headline import recording_verdict, step_time, step_word, verdict, verdict_scope
from traceadvisor.rendering.page.findings import FindingView, finding_views, repeated_changes
from traceadvisor.rendering.page.health import NoteView, quiet_notes, warnings
from traceadvisor.rendering.page.recordings import busy_words, cost_words, largest_category
from traceadvisor.rendering.run_lines import first_line
from traceadvisor.rendering.run_time import first_run_sentence
from traceadvisor.rendering.savings import joint_sentences
from traceadvisor.rendering.units import count, duration, number_of, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import clipped, one_line

TOP_FINDINGS = 3
MOST_RECORDINGS = 12
MOST_NOTES = 12
LONGEST_TEXT = 200
LONGEST_NOTE = 600
"""Characters of a note, which states a problem and its fix."""

INDENT = "   "
"""Before the lines of a finding, as wide as its number."""

HANGING = len(INDENT) + 2
"""Columns before the rest of a wrapped line of a finding."""

LONGEST_CODE = 1_000
"""Characters of a code change, which must not be cut where it would no longer run."""


class Style(Enum):
    """Text styles; the values are style names of rich."""

    PLAIN = ""
    STRONG = "bold"
    QUIET = "dim"
    GAIN = "green"
    WARNING = "yellow"
    CODE = "cyan"


@frozen
class Piece:
    """Text in one style; rich markup in it has no effect."""

    text: str
    style: Style = Style.PLAIN


@frozen
class SummaryLine:
    """One line; an empty line separates paragraphs."""

    pieces: tuple[Piece, ...] = ()
    hanging: int = 0
    """Columns by which its second and later parts are indented where it is wrapped."""

    unbroken: bool = False
    """Whether it must stay one line, because it is copied: a path, a command."""

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(piece.text for piece in self.pieces)


def summary(report: Report, columns: int = 80) -> tuple[SummaryLine, ...]:
    """Problems of the input, the verdict, the step time of each recording, and the top findings.

    Args:
        report: what to summarise.
        columns: width into which code is fitted; other lines are wrapped afterwards.
    """
    whole = report = redacted(report)
    notes = _notes(report)
    repeated = repeated_changes(report)
    leading = enumerate(report.findings[:TOP_FINDINGS], start=1)
    changes = [(row.finding.fix.change if rank not in repeated else None) or "" for rank, row in leading]
    report = shortened(report, LONGEST_TEXT)
    blocks = (
        notes,
        [*_verdict(report), *_quiet_notes(shortened(whole, LONGEST_NOTE))],
        [*_recordings(report), *_run(report)],
        _findings(report, tuple(_code_lines(clipped(change, LONGEST_CODE), columns) for change in changes)),
        _lines(report),
        _partly_judged(report),
    )
    lines: list[SummaryLine] = []
    for block in blocks:
        lines += [SummaryLine(), *block] if lines and block else block
    return tuple(lines)


def next_commands(report: Report) -> tuple[SummaryLine, ...]:
    """The commands that go on from the report; none without a finding."""
    report = redacted(report)
    if not report.findings:
        return ()
    commands = {f"traceadvisor rules explain {report.findings[0].finding.rule.id}": "more on the first finding"}
    command = next((one.captured.command for one in report.recordings if one.captured and one.captured.command), ())
    script = command[: 2 if command[:1] == ("-m",) else 1]
    if script:
        commands[f"traceadvisor capture {clipped(one_line(shlex.join(script)), LONGEST_TEXT)} ..."] = (
            "record again after the fix"
        )
    width = max(map(len, commands))
    return (SummaryLine((Piece("Next:"),)), *(_command(text.ljust(width), what) for text, what in commands.items()))


def _command(text: str, what: str) -> SummaryLine:
    return SummaryLine((Piece(f"  {text}", Style.CODE), Piece(f"  # {what}", Style.QUIET)), unbroken=True)


def _line(*pieces: Piece, hanging: int = 0) -> SummaryLine:
    return SummaryLine(tuple(Piece(_flat(piece.text), piece.style) for piece in pieces), hanging)


def _code_lines(code: str, columns: int) -> tuple[SummaryLine, ...]:
    lines = fitted_code(code, columns - len(INDENT))
    return tuple(SummaryLine((Piece(f"{INDENT}{line}", Style.CODE),), unbroken=True) for line in lines if line.strip())


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


def _quiet_notes(report: Report) -> list[SummaryLine]:
    """Notes on how the run differs from its recording."""
    return [
        _line(Piece(f"{note.message}{f' ({note.about})' if note.about else ''}", Style.QUIET))
        for note in quiet_notes(report)[:MOST_NOTES]
    ]


def _run(report: Report) -> list[SummaryLine]:
    """Where the time of the first run goes."""
    sentence = first_run_sentence(report.recordings)
    return [_line(Piece(sentence, Style.QUIET))] if sentence else []


def _warning(note: NoteView) -> SummaryLine:
    about = f" ({clipped(note.about, LONGEST_TEXT)})" if note.about else ""
    return _line(
        Piece("Note: ", Style.WARNING), Piece(f"{clipped(note.message, LONGEST_NOTE)}{about}"), hanging=len("Note: ")
    )


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
        return _line(Piece(f"{recording.id}: "), Piece(recording_verdict(recording), Style.QUIET), hanging=2)
    named = (Piece(f"{recording.id}: "),) if len(report.recordings) > 1 else ()
    samples = recording.samples_per_s
    return _line(
        *named,
        Piece(f"{_repetition(recording)} {duration(time.ns)}", Style.STRONG),
        Piece(f" ({'; '.join(filter(None, (time.kind, time.beside)))})", Style.QUIET),
        Piece(f", {count(samples)} samples/s" if samples is not None else ""),
        Piece(f", {cost}" if (cost := cost_words(recording)) else ""),
        Piece(f", GPU busy {_busy(recording)}"),
        Piece(_largest(recording)),
        hanging=2,
    )


def _busy(recording: Recording) -> str:
    return busy_words(recording)[0]


def _repetition(recording: Recording) -> str:
    return "recording" if recording.step_source is StepSource.WINDOW else step_word(recording)


def _largest(recording: Recording) -> str:
    largest = largest_category(recording)
    if largest is None or recording.breakdown is None:
        return ""
    known = "known " if (recording.breakdown.share(Category.IDLE_UNKNOWN) or 0.0) > largest[1] else ""
    return f", largest {known}category: {CATEGORY[largest[0]]} {percent(largest[1])}"


def _findings(report: Report, changes: tuple[tuple[SummaryLine, ...], ...]) -> list[SummaryLine]:
    findings = finding_views(report)
    several = len(report.recordings) > 1
    lines = [
        line
        for finding, change in zip(findings[:TOP_FINDINGS], changes, strict=True)
        for line in _finding(finding, change, several=several)
    ]
    more = len(findings) - TOP_FINDINGS
    if more > 0:
        lines.append(_line(Piece(f"{number_of(more, 'more finding')} in the report", Style.QUIET)))
    return lines + [_line(Piece(sentence, Style.STRONG)) for sentence in joint_sentences(report)]


def _lines(report: Report) -> list[SummaryLine]:
    """The line with the most time in training steps, of the first recording with samples."""
    found = next((first for one in report.recordings if (first := first_line(one.run_lines))), None)
    return [] if found is None else [_line(Piece(f"Line with the most time in training steps: {found}", Style.QUIET))]


def _partly_judged(report: Report) -> list[SummaryLine]:
    """Passed checks that judged only part of the kernel time, each with its smallest share."""
    shares: dict[str, float] = {}
    for row in report.outcomes:
        match row.outcome:
            case Clear(judged_share=float() as share) if share < WHOLE_SHARE:
                shares[row.rule.id] = min(share, shares.get(row.rule.id, 1.0))
    listed = ", ".join(f"{rule_id} {percent(share)}" for rule_id, share in shares.items())
    return [_line(Piece(f"Passed, but on part of the kernel time only: {listed}", Style.QUIET))] if listed else []


def _finding(finding: FindingView, change: tuple[SummaryLine, ...], *, several: bool) -> list[SummaryLine]:
    lines = [
        _line(
            Piece(f"{finding.rank}. "),
            Piece(finding.title, Style.STRONG),
            Piece(": "),
            Piece(_lower(finding.saving.sentence), Style.GAIN),
            Piece(f", worth {finding.worth}" if finding.worth else ""),
            hanging=len(INDENT),
        )
    ]
    lines.append(_line(Piece(f"{INDENT}{_certainty(finding)}", Style.QUIET), hanging=HANGING))
    if several:
        over = f". {finding.over_recordings}" if finding.over_recordings else ""
        lines.append(_line(Piece(f"{INDENT}In {finding.where}{over}", Style.QUIET), hanging=HANGING))
    place = finding.places[0] if finding.places else None
    at = Piece(f" at {place.where}", Style.CODE) if place else Piece("")
    owner = Piece(f" (time in {place.owner})", Style.QUIET) if place and place.owner else Piece("")
    lines.append(_line(Piece(f"{INDENT}Fix"), at, owner, Piece(f": {finding.fix}"), hanging=HANGING))
    if finding.origin_phrase:
        lines.append(_line(Piece(f"{INDENT}Origin: {finding.origin_phrase}", Style.QUIET), hanging=HANGING))
    lines += change
    if finding.saving.predicted:
        alone = "Predicted step with this fix alone" if finding.saving.adds else "Predicted step"
        lines.append(_line(Piece(f"{INDENT}{alone}: {finding.saving.predicted}", Style.QUIET), hanging=HANGING))
    if finding.measured:
        lines.append(_line(Piece(f"{INDENT}Measured: {finding.measured}", Style.GAIN), hanging=HANGING))
    if finding.also:
        lines.append(_line(Piece(f"{INDENT}Also: {'; '.join(finding.also)}", Style.QUIET), hanging=HANGING))
    return lines


def _certainty(finding: FindingView) -> str:
    """How certain saving and cause are, and the saving alone."""
    alone = f" Alone: {finding.saving.alone}." if finding.saving.alone else ""
    return f"Saving: {finding.saving.certainty}. Cause: {finding.confidence} confidence.{alone}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
