"""Unknown time, and a sole step behind carry-in, in every format of a report of one trace."""

import json
from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from tests.rendering.formatted import comment, render, summary
from tests.rendering.reading import Page, markdown_page
from traceadvisor import load, read
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found
from traceadvisor.model.report import Report
from traceadvisor.results import report_json


def unsure() -> TraceBuilder:
    """Four steps of 10 ms: in the first a copy waits 3 ms for work from before, in all a kernel is lost for 1 ms."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 10000)):
        builder.loader(at, at + 400).op("aten::copy_", at + 500, at + 9_990)
        begun = at + (3_600 if not number else 620)
        builder.copy(at + 600, begun + 110, on_device=(begun, begun + 100))
        builder.launch(at + 4_000, at + 4_010, kernel=(at + 4_020, at + 6_000), name="sgemm")
        builder.python("<built-in function collect>", at + 6_200, at + 7_400).launch(at + 6_500, at + 6_510).launch(
            at + 7_500, at + 7_510, kernel=(at + 7_520, at + 9_000)
        )
    return builder


def carried_in() -> TraceBuilder:
    """A sole step; the GPU is busy with earlier work for its first third."""
    builder = TraceBuilder().launch(0, 5, kernel=(5, 3010)).step(0, 10, 9010)
    return builder.op("aten::mm", 3000, 9000).launch(3020, 3030, kernel=(3040, 8000))


@pytest.fixture
def report(tmp_path: Path, request: pytest.FixtureRequest) -> Report:
    builder: TraceBuilder = request.param()
    return load(builder.write(tmp_path / "worker0.1.pt.trace.json"))


def formats(report: Report) -> dict[str, str]:
    """The text of a report in each format."""
    return {
        "page": Page(render(report).decode()).text,
        "markdown": markdown_page(comment(report).decode()).text,
        "terminal": "\n".join(line.text for line in summary(report)),
    }


@pytest.mark.parametrize("report", [unsure], indirect=True)
def test_every_format_shows_the_busy_share_as_a_range(report: Report) -> None:
    (recording,) = report.recordings
    figures = recording.figures
    assert figures.busy_share == pytest.approx(0.346)
    assert figures.busy_share_high == pytest.approx(0.346 + 0.176, abs=0.001)
    for text in formats(report).values():
        assert "34.6% to 52.2%" in text
    written = json.loads(report_json.render(report))["recordings"][0]
    assert written["figures"]["busy_share"] == pytest.approx(0.346)
    assert written["figures"]["busy_share_high"] == figures.busy_share_high
    assert written["mean_breakdown"]["parts_ns"]["idle_unknown"] == pytest.approx(1_760_000)


@pytest.mark.parametrize("report", [unsure], indirect=True)
def test_every_format_says_how_much_is_unknown_and_why(report: Report) -> None:
    for name, text in formats(report).items():
        assert "For 17.6% of the step time, the recording does not show whether the GPU worked" in text, name
    for name in ("page", "markdown"):
        assert "Unknown" in formats(report)[name]


@pytest.mark.parametrize("report", [unsure], indirect=True)
def test_a_report_with_unknown_time_reads_back_the_same(report: Report, tmp_path: Path) -> None:
    written = report_json.render(report)
    path = tmp_path / "report.json"
    path.write_bytes(written)
    assert report_json.render(read(path)) == written


def test_no_rule_claims_unknown_time(tmp_path: Path) -> None:
    facts = facts_of(unsure(), tmp_path)
    found = {rule.meta.id: outcome for rule in all_rules() if isinstance(outcome := run_rule(rule, facts), Found)}
    assert {"IDLE002", "IDLE005"} <= set(found)
    assert not [name for name, one in found.items() if one.finding.claims & facts.unknown.spans]


@pytest.mark.parametrize("report", [carried_in], indirect=True)
def test_every_format_has_the_sole_step_behind_carry_in(report: Report) -> None:
    (recording,) = report.recordings
    assert [(row.step.start_ns, row.step.kept) for row in recording.steps] == [(3_010_000, True)]
    assert recording.mean_step_ns == 6_000_000
    for name, text in formats(report).items():
        assert "6.00 ms" in text, name
        if name != "terminal":
            assert "the GPU ran earlier work during its first 33%, so it is analysed from there" in text, name
        assert "No complete" not in text, name
    written = json.loads(report_json.render(report))["recordings"][0]
    assert written["mean_step_ns"] == written["median_step_ns"] == 6_000_000
    assert [(row["step"].get("left_out"), row["step"]["caution"]) for row in written["steps"]] == [
        (None, "the GPU ran earlier work during its first 33%, so it is analysed from there")
    ]
