"""The report as one self-contained page: no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, HOST_CATEGORIES
from traceadvisor.model.report import RankedFinding, RecordedFinding, Report
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.palette import ALL_PAINTS, PAINTS, SAVING, SAVING_RANGE, TRACK, Paint
from traceadvisor.rendering.experiment.view import ExperimentView, experiment_view
from traceadvisor.rendering.formats import MARKER
from traceadvisor.rendering.headline import recording_of_verdict, verdict, verdict_scope
from traceadvisor.rendering.page.comparison import comparison_table, rank_table
from traceadvisor.rendering.page.drawn import drawn_recordings, not_drawn
from traceadvisor.rendering.page.findings import FindingView, finding_views
from traceadvisor.rendering.page.health import HealthView, health_view, without_step_notes
from traceadvisor.rendering.page.machine import MachineView, machine_view
from traceadvisor.rendering.page.outcomes import OutcomesView, nothing_found, outcomes_view, passed_and_skipped
from traceadvisor.rendering.page.recordings import Fact, Figure, RecordingView, is_without_device, recording_view
from traceadvisor.rendering.page.rules import RuleView, rule_views
from traceadvisor.rendering.page.run import RunView, by_machine, by_run, run_view
from traceadvisor.rendering.page.settings import settings_facts
from traceadvisor.rendering.page.titles import titles, with_titles
from traceadvisor.rendering.page.top import top_chart, top_figures
from traceadvisor.rendering.page.trust import TrustView, trust_view
from traceadvisor.rendering.savings import joint_sentences, scale_sentence
from traceadvisor.rendering.table import Table
from traceadvisor.rendering.templates import html_environment
from traceadvisor.rendering.units import count, number_of
from traceadvisor.rendering.words import CATEGORY, DEFINITION, DEFINITION_ON_HOST, SOURCE_KIND
from traceadvisor.results.redaction import redacted, shortened

MOST_WITH_ORIGINS = 3
"""With more recordings, only the first shows where its time comes from: the page must stay small. JSON has them all."""

LONGEST_TEXT = 600
"""Characters per string. Names of templated kernels can have thousands."""


@frozen
class DefinitionView:
    """The definition of a category."""

    paint: Paint
    name: str
    meaning: str


@frozen
class ReportView:
    """All content of the page."""

    title: str
    verdict: str
    verdict_scope: str | None
    first_action: FindingView | None
    no_action: str
    """Shown in the headline if there is no finding."""

    checked: str
    """Shown in the place of findings if there is none."""

    figures: tuple[Figure, ...]
    """Those of the first screen."""

    health: HealthView
    chart: Chart | None
    """The typical step by category, or a few recordings compared."""

    findings: tuple[FindingView, ...]
    scale: str | None
    """Which steps evidence and savings refer to; None if these hardly differ."""

    joint: tuple[str, ...]
    """The step with all simulated fixes, a sentence for each recording."""

    trust: TrustView | None
    comparison: Table | None
    """None for a single recording."""

    ranks: Table | None
    """Communication of each rank; None without two ranks."""

    recordings: tuple[RecordingView, ...]
    runs: tuple[RunView, ...]
    """Captured runs; empty for recordings by other tools."""

    machines: tuple[MachineView, ...]
    outcomes: OutcomesView
    definitions: tuple[DefinitionView, ...]
    source: tuple[Fact, ...]
    tool_version: str
    several: bool
    """Whether the report has several recordings, so that each finding and figure names its own."""

    not_drawn: str | None
    """A sentence on recordings without charts; None if all have them."""

    rules: Mapping[str, RuleView]
    """What each rule checks, by its id."""

    experiments: tuple[ExperimentView, ...]
    """What `try` and `sweep` measured, the newest first."""


def report_view(report: Report) -> ReportView:
    """The view of a report, after redaction. Recordings have titles in the place of their ids."""
    rules = rule_views(redacted(report))
    report = shortened(redacted(report), LONGEST_TEXT)
    report = with_titles(report, titles(report.recordings))
    drawn = drawn_recordings(report)
    findings = finding_views(report, drawn)
    with_origins = len(report.recordings) <= MOST_WITH_ORIGINS
    return ReportView(
        title=_title(report),
        verdict=verdict(report, with_device=False),
        verdict_scope=verdict_scope(report),
        first_action=findings[0] if findings else None,
        no_action=nothing_found(report),
        checked=_checked(report),
        figures=top_figures(report),
        health=health_view(without_step_notes(report, [recording.id for recording in drawn])),
        chart=top_chart(report),
        findings=findings,
        scale=scale_sentence(report),
        joint=_joint(report),
        trust=trust_view(report),
        comparison=comparison_table(report),
        ranks=rank_table(report),
        recordings=tuple(
            recording_view(report, recording, place, with_origins=place == 1 or with_origins)
            for place, recording in enumerate(drawn, start=1)
        ),
        runs=tuple(run_view(shared, place) for place, shared in enumerate(by_run(drawn), start=1)),
        machines=tuple(machine_view(shared, place) for place, shared in enumerate(by_machine(drawn), start=1)),
        not_drawn=not_drawn(report),
        several=len(report.recordings) > 1,
        outcomes=outcomes_view(report),
        definitions=tuple(_definitions(report)),
        source=tuple(_source(report)),
        tool_version=report.tool_version,
        rules=rules,
        experiments=tuple(
            experiment_view(one, f"measured-{place}-")
            for place, one in enumerate(reversed(report.experiments), start=1)
        ),
    )


def _title(report: Report) -> str:
    runs = dict.fromkeys(recording.run for recording in report.recordings if recording.run)
    if len(runs) == 1:
        return next(iter(runs))
    return report.source.paths[0].name if report.source.paths else "Training performance"


def _checked(report: Report) -> str:
    """How many rules passed on some recording, and how many could not run on any."""
    passed, skipped = passed_and_skipped(report)
    remark = f", {len(skipped)} could not run" if skipped else ""
    return f"None. {number_of(len(passed), 'check')} passed{remark}; the details below list them."


def _joint(report: Report) -> tuple[str, ...]:
    """The step with all fixes: of the diagnosed recording, if there are several. The others show theirs below."""
    if len(report.recordings) < 2:
        return joint_sentences(report)
    judged = recording_of_verdict(report)
    rows = (case for row in report.findings for case in row.by_recording or (row,))
    own = (case for case in rows if judged.id in case.recording_ids)
    one = replace(report, recordings=(judged,), findings=tuple(map(_as_row, own)))
    return tuple(f"{judged.id}: {sentence}" for sentence in joint_sentences(one))


def _as_row(case: RecordedFinding) -> RankedFinding:
    return RankedFinding(**{item.name: getattr(case, item.name) for item in fields(RecordedFinding)})


def _definitions(report: Report) -> Iterator[DefinitionView]:
    """The categories that any recording's breakdown contains, in order of precedence."""
    used = {
        category
        for recording in report.recordings
        if recording.breakdown is not None
        for category in recording.breakdown.parts_ns
    }
    on_host = bool(report.recordings) and all(map(is_without_device, report.recordings))
    for category in dict.fromkeys((*(() if on_host else DEVICE_CATEGORIES), *HOST_CATEGORIES)):
        if category in used:
            meaning = DEFINITION_ON_HOST.get(category) if on_host else None
            yield DefinitionView(PAINTS[category], CATEGORY[category], meaning or DEFINITION[category])


def _source(report: Report) -> Iterator[Fact]:
    yield Fact("Source", SOURCE_KIND[report.source.kind])
    for path in report.source.paths:
        yield Fact("Path", str(path))
    yield Fact("Events read", count(report.health.events_read))
    for label, value in settings_facts(report):
        yield Fact(label, value)


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    return page(report).encode()


def page(report: Report) -> str:
    """The page as text, also used for the PDF."""
    return (
        html_environment()
        .get_template("report.html.j2")
        .render(
            view=report_view(report),
            marker=MARKER,
            style_hash=style_hash(),
            script_hash=script_hash(),
            paints=ALL_PAINTS,
            saving_paint=SAVING,
            saving_range_paint=SAVING_RANGE,
            track_paint=TRACK,
        )
    )


def style_hash() -> str:
    """The hash of the style sheet for the content security policy, which allows no other style."""
    style = html_environment().get_template("report.css.j2").render(paints=ALL_PAINTS)
    return _hash(style)


def script_hash() -> str:
    """The hash of the page's script for the content security policy, which allows no other script."""
    return _hash(html_environment().get_template("report.js").render())


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
