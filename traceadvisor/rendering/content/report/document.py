"""The whole report: the verdict, what to change first, and what shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache

from traceadvisor.frozen import replace
from traceadvisor.model.findings import Fix, Method
from traceadvisor.model.report import SCHEMA, RankedFinding, RecordedFinding, Recording, Report
from traceadvisor.rendering.content.experiment.document import measured_fold, measured_line
from traceadvisor.rendering.content.memory.advice import ran_out_blocks
from traceadvisor.rendering.content.memory.document import memory_document, memory_folds
from traceadvisor.rendering.content.report.compared import comparison_table
from traceadvisor.rendering.content.report.definitions import definitions_fold, explained_rules, rules_fold
from traceadvisor.rendering.content.report.drawn import drawn_recordings, not_drawn
from traceadvisor.rendering.content.report.findings import LONGEST_PLACE, finding_cards, first_action, first_line
from traceadvisor.rendering.content.report.health import health_fold, remarks_fold, secrets_fold, without_step_notes
from traceadvisor.rendering.content.report.job import job_blocks, job_folds
from traceadvisor.rendering.content.report.machine import machine_blocks
from traceadvisor.rendering.content.report.outcomes import (
    checked_sentence,
    nothing_found,
    outcome_folds,
    partly_judged_sentence,
)
from traceadvisor.rendering.content.report.recordings import environment_facts, recording_blocks, recording_fold
from traceadvisor.rendering.content.report.run import by_machine, by_run, run_blocks, unknown_blocks
from traceadvisor.rendering.content.report.run_lines import line_sentence
from traceadvisor.rendering.content.report.run_time import first_run_sentences
from traceadvisor.rendering.content.report.settings import settings_facts, settings_group
from traceadvisor.rendering.content.report.titles import titles, with_titles
from traceadvisor.rendering.content.report.top import identity, top_chart, top_figures
from traceadvisor.rendering.content.report.trust import trust_fold
from traceadvisor.rendering.costliest_line import open_line, sentence
from traceadvisor.rendering.document.blocks import (
    Block,
    Code,
    Document,
    Fact,
    Facts,
    Figures,
    Fold,
    FoldLook,
    Group,
    Prose,
    Section,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.device_word import GPU, with_device_word
from traceadvisor.rendering.headline import recording_of_verdict, verdict, verdict_scope
from traceadvisor.rendering.savings import joint_sentences, scale_sentence
from traceadvisor.rendering.units import count, number_of
from traceadvisor.rendering.words import SOURCE_KIND
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import clipped

SUMMARY = Detail.SUMMARY

MOST_WITH_ORIGINS = 3
"""With more recordings, only the first shows where its time comes from: the page must stay small. JSON has them all."""

LONGEST_TEXT = 600
"""Characters per string. Names of templated kernels can have thousands."""

BYTES_OF_ONE, BYTES_OF_TEN = 6_000, 12_000
"""Longest comment on one recording, and on ten or more; a longer one is not read. In between it grows evenly."""


def report_headline(report: Report) -> str:
    """The headline of the document on a report."""
    if report.memory and not report.recordings:
        return report_document(report).headline
    report = _as_shown(report)
    return with_device_word(verdict(report), _device_word(report))


@lru_cache(maxsize=1)
def _as_shown(report: Report) -> Report:
    """The report after redaction. Recordings have titles instead of ids."""
    whole = redacted(report)
    shown = _with_whole_changes(shortened(whole, LONGEST_TEXT), whole)
    return with_titles(shown, titles(shown.recordings))


@lru_cache(maxsize=1)
def report_document(report: Report) -> Document:
    """The document on a report; kept for several formats."""
    whole = redacted(report)
    if report.memory and not report.recordings:
        return memory_document(shortened(whole, LONGEST_TEXT))
    report = _as_shown(report)
    drawn = drawn_recordings(report)
    rules = explained_rules(whole)
    health = health_fold(report)
    damaged = health is not None and health.look is FoldLook.DAMAGE
    details = tuple(_details(report, drawn))
    title = _title(report)
    document = Document(
        noun="report",
        title=title,
        window_title=f"{title} · TraceAdvisor",
        marker=SCHEMA,
        headline=verdict(report),
        before=(health,) if health and damaged else (),
        top=tuple(_top(report, None if damaged else health)),
        sections=(
            *((Section("Ranks of the job", job, "job"),) if (job := tuple(job_blocks(report))) else ()),
            Section(
                "Findings, largest saving first" if len(report.findings) > 1 else "Findings",
                tuple(_findings(report, drawn)),
                "findings",
            ),
            Section(
                "Details",
                (*details, *((rules_fold(rules),) if rules else ()), _environment(report, drawn)),
                "details",
                is_details=True,
            ),
        ),
        footer=(
            Prose(f"Made by TraceAdvisor {report.tool_version}.", detail=Detail.COMMENT),
            Prose("This page is self-contained: it loads nothing, and everything on it can be read without scripts."),
        ),
        tool_version=report.tool_version,
        explained={rule.id for rule in rules},
        most_bytes=most_bytes(len(report.recordings)),
        last_form=f"{_counts(report)}. The full report has the rest.",
    )
    return with_device_word(document, _device_word(report))


def _device_word(report: Report) -> str:
    """The word of users of the recorded accelerators for a device; a GPU where they differ."""
    words = {each.device_word for each in report.recordings}
    return words.pop() if len(words) == 1 else GPU


def most_bytes(recordings: int) -> int:
    """The size of the longest comment on so many recordings."""
    return BYTES_OF_ONE + (BYTES_OF_TEN - BYTES_OF_ONE) * (min(max(recordings, 1), 10) - 1) // 9


def _with_whole_changes(report: Report, whole: Report) -> Report:
    """The report with the code of its fixes uncut, so that it runs."""
    rows = zip(report.findings, whole.findings, strict=True)
    return replace(report, findings=tuple(_with_change(row, uncut.finding.fix) for row, uncut in rows))


def _with_change(row: RankedFinding, uncut: Fix) -> RankedFinding:
    fix = replace(row.finding.fix, change=uncut.change, edit=uncut.edit)
    return replace(row, finding=replace(row.finding, fix=fix))


def _counts(report: Report) -> str:
    return f"{number_of(len(report.recordings), 'recording')}, {number_of(len(report.findings), 'finding')}"


def _title(report: Report) -> str:
    runs = dict.fromkeys(recording.run for recording in report.recordings if recording.run)
    if len(runs) == 1:
        return next(iter(runs))
    return report.source.paths[0].name if report.source.paths else "Training performance"


def _top(report: Report, caution: Fold | None) -> Iterator[Block]:
    """The first screen below the verdict."""
    yield from ran_out_blocks(report.memory)
    if line := identity(report):
        yield Prose(line, Tone.IDENTITY, SUMMARY)
    if scope := verdict_scope(report):
        yield Prose(scope, Tone.SCOPE, SUMMARY)
    if report.findings and not report.findings[0].is_refuted:
        yield first_action(report)
        if quoted := first_line(report):
            yield quoted
    elif report.recordings and not report.findings:
        yield Prose(nothing_found(report), Tone.ACTION, SUMMARY)
    yield from map(measured_line, report.experiments[-1:])
    yield from _open_line(report)
    if figures := top_figures(report):
        yield Figures(figures, SUMMARY)
    yield from (fold for fold in (caution, secrets_fold(report)) if fold)
    yield from (Prose(sentence, Tone.SCOPE, SUMMARY) for sentence in first_run_sentences(report.recordings))
    yield from unknown_blocks(report.recordings)
    if chart := top_chart(report):
        yield replace(chart, detail=SUMMARY)


NOT_A_SAVING = "This is where the time goes, not a saving: no check knows a faster way to the same result."


def _open_line(report: Report) -> Iterator[Block]:
    """The line that takes much time that no finding is about."""
    recording = recording_of_verdict(report) if report.recordings else None
    if recording and (line := open_line(report, recording)):
        yield Prose(f"{sentence(recording)} {NOT_A_SAVING}", Tone.SCOPE, SUMMARY)
        if code := line.innermost.place.code:
            yield Code(clipped(code, LONGEST_PLACE), SUMMARY, is_quote=True)


ORDER = (
    "The first saving is for its fix alone. Each other saving is what a fix adds after those above it in the same "
    "recording."
)


def _findings(report: Report, drawn: tuple[Recording, ...]) -> Iterator[Block]:
    if not report.findings:
        yield Prose(checked_sentence(report), detail=SUMMARY)
    else:
        if len(report.findings) > 1:
            yield Prose(ORDER, Tone.QUIET)
        if scale := scale_sentence(report):
            yield Prose(scale, Tone.QUIET, Detail.COMMENT)
        yield finding_cards(report, drawn)
        yield from (Prose(sentence, Tone.STRONG, SUMMARY) for sentence in _joint(report))
    if (line := line_sentence(report)) and not open_line(report, recording_of_verdict(report)):
        yield Prose(line, Tone.QUIET, SUMMARY)
    if partly := partly_judged_sentence(report):
        yield Prose(partly, Tone.QUIET, SUMMARY)
    if trust := trust_fold(report):
        yield trust


def _joint(report: Report) -> tuple[str, ...]:
    """The step with all fixes: of the diagnosed recording, if there are several. The others show theirs below.

    A single simulated fix has its step in the finding.
    """
    if len(report.recordings) < 2:
        only = report.findings[0].finding.saving if len(report.findings) == 1 else None
        return () if only and only.method is Method.REPLAY else joint_sentences(report)
    judged = recording_of_verdict(report)
    rows = (case for row in report.findings for case in row.by_recording or (row,))
    own = (case for case in rows if judged.id in case.recording_ids)
    one = replace(report, recordings=(judged,), findings=tuple(map(_as_row, own)))
    return tuple(f"{judged.id}: {sentence}" for sentence in joint_sentences(one))


def _as_row(case: RecordedFinding) -> RankedFinding:
    return RankedFinding(**{item.name: getattr(case, item.name) for item in fields(RecordedFinding)})


def _details(report: Report, drawn: tuple[Recording, ...]) -> Iterator[Block]:
    several = len(report.recordings) > 1
    yield from _compared(report)
    for number, result in enumerate(reversed(report.experiments), start=1):
        yield measured_fold(result, number)
    if left := not_drawn(report):
        yield Prose(left, Tone.NOT_DRAWN)
    for number, recording in enumerate(drawn, start=1):
        with_origins = number == 1 or len(report.recordings) <= MOST_WITH_ORIGINS
        if several:
            yield recording_fold(report, recording, number, with_origins=with_origins)
        else:
            yield from recording_blocks(report, recording, number, with_origins=with_origins)
    yield from _captured(drawn, several=several)
    yield from memory_folds(report)
    yield from outcome_folds(report)
    if remarks := remarks_fold(without_step_notes(report, [recording.id for recording in drawn])):
        yield remarks
    yield definitions_fold(report)


STEPS = (
    "Every step was timed, recorded or not. The first step includes start-up work: it is shown, but left out of "
    "medians."
)


def _compared(report: Report) -> Iterator[Fold]:
    if table := comparison_table(report):
        about = number_of(len(report.recordings), "recording")
        yield Fold("All recordings compared", (table,), about, "compared", FoldLook.SECTION, SUMMARY)
    yield from job_folds(report)


def _captured(drawn: tuple[Recording, ...], *, several: bool) -> Iterator[Fold]:
    numbered = enumerate(by_run(drawn), start=1)
    runs = [block for number, shared in numbered for block in run_blocks(shared, number, several=several)]
    if runs:
        about = "every step, recorded or not"
        blocks = (Prose(STEPS, Tone.QUIET), *runs)
        yield Fold("Steps of the run", blocks, about, "run", FoldLook.SECTION, Detail.COMMENT, part="Run")
    numbered = enumerate(by_machine(drawn), start=1)
    machines = [block for number, shared in numbered for block in machine_blocks(shared, number, several=several)]
    if machines:
        about = "utilisation, memory and temperature while the run was recorded"
        yield Fold("Machine", tuple(machines), about, "machine", FoldLook.SECTION, part="Run")


def _environment(report: Report, drawn: tuple[Recording, ...]) -> Fold:
    several = len(report.recordings) > 1
    source = (
        Fact("Source", SOURCE_KIND[report.source.kind]),
        *(Fact("Path", str(path)) for path in report.source.paths),
        Fact("Events read", count(report.health.events_read)),
    )
    blocks: list[Block] = [Facts(source)]
    if settings := tuple(Fact(label, value) for label, value in settings_facts(report)):
        blocks.append(Facts(settings, detail=SUMMARY))
    for recording in drawn:
        facts = Facts(tuple(environment_facts(recording)))
        blocks.append(Group(recording.id, (facts,)) if several else facts)
    blocks += [settings_group(one.run, ", ".join(one.ids) if several else None) for one in by_run(drawn)]
    about = "source, settings and versions"
    return Fold("Environment", tuple(blocks), about, "environment", FoldLook.SECTION, Detail.COMMENT, part="Evidence")
