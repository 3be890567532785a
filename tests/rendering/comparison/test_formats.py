"""A comparison in every format: what it says, its size, and what hostile texts can do."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.build_report import CANARY, harmless, hostile, one_recording, three_recordings
from tests.comparing.building import captures, finding, origins, recording, report, with_origins
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.reading import markdown_page
from tests.shared import CHECKOUT
from traceadvisor.comparing.compare import compare
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import (
    SCHEMA,
    Agreement,
    ChangeSign,
    ComparedRun,
    Comparison,
    Difference,
    DifferenceKind,
    Differing,
    FindingStatus,
    LikelyBecause,
    OtherProgram,
)
from traceadvisor.model.explanation import LineChange, OtherChange, RowChange, TableChange
from traceadvisor.model.location import CodePlace, Frame, Location
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Distributed
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.step_dots import step_dots
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.content.comparison.sentences import (
    cause_sentence,
    changed_sentence,
    headline,
    line_words,
    named_values,
    prediction_sentence,
    side_names,
)
from traceadvisor.rendering.content.comparison.settling import settling_commands
from traceadvisor.rendering.content.comparison.tables import category_table, findings_table, is_noted, names_table
from traceadvisor.rendering.document.blocks import Fold, Group
from traceadvisor.rendering.document.budget import ROOMS, Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell
from traceadvisor.rendering.formats import COMPARISON_FORMATS, write_formats
from traceadvisor.rendering.words import STEP_SOURCE
from traceadvisor.rendering.writers import markdown
from traceadvisor.rendering.writers.html import page
from traceadvisor.rendering.writers.templates import script
from traceadvisor.rendering.writers.terminal import lines
from traceadvisor.results.json_schemas import schema_text
from traceadvisor.results.report_json import render_comparison as render

SCHEMA_FILE = CHECKOUT / "docs" / "comparison.schema.json"


@cache
def _faster() -> Comparison:
    """A recording without loader workers against one with four."""
    base, head = three_recordings(), three_recordings()
    first, second = base.recordings[:2]
    second = replace(second, run=first.run, worker=first.worker, id=first.id)
    return compare(
        [replace(one_recording(), recordings=(first,))],
        [
            replace(
                one_recording(), recordings=(second,), findings=head.findings[2:3], outcomes=one_recording().outcomes
            )
        ],
    )


@cache
def _many() -> Comparison:
    """Sixty scripts, and recordings without a partner."""
    sides = [
        [
            report(recording(f"run{number}", undisturbed_ms=ms + number, command=[f"{number}-{'long' * 9}.py"]))
            for number in range(60)
        ]
        for ms in (100.0, 110.0)
    ]
    lonely = [report(recording(f"lonely{number}", command=[f"lonely{number}.py"])) for number in range(40)]
    return compare([*sides[0], *lonely], sides[1])


@cache
def _settled() -> Comparison:
    return compare(captures(100, 101, 99), captures(120, 121, 118))


@cache
def _samples() -> Comparison:
    return compare_paths([CHECKOUT / "sample_traces" / "loader-bound"], [CHECKOUT / "sample_traces" / "well-fed"])


@cache
def _nothing() -> Comparison:
    scripts = [
        [report(recording(script, command=[script])) for script in names] for names in (("a.py", "b.py"), ("c.py",))
    ]
    return compare(*scripts)


@cache
def _ranks() -> Comparison:
    return compare([captured_ranks()], [captured_ranks()])


ALL = (_faster, _many, _settled, _nothing, _ranks)
Build = Callable[[], Comparison]


def test_the_verdict_is_one_sentence_with_both_times() -> None:
    assert headline(_settled()) == "100 -> 120 ms per step (20% more time), shown"


def test_recordings_without_a_partner_are_counted_at_the_top() -> None:
    shown = [line.text for line in lines(comparison_document(_many()))]
    assert "40 recordings of BASE left out: the other side has no such script, run or rank." in shown[:4], shown[:6]


def test_a_large_change_of_one_capture_a_side_is_likely_and_credits_the_report() -> None:
    shown = [line.text for line in lines(comparison_document(_samples()))]
    assert shown[0] == "186 -> 104 ms per step (44% less time), likely"
    assert (
        "Predicted with DATA002 fixed: 116.3 ms (83.9 ms to 132.6 ms). Measured: 103.8 ms, within the predicted range."
        in shown
    )
    assert shown[1] == "Changed: num_workers 0 -> 2."
    assert any("for i in 2 3" in line for line in shown)


def _saving_more() -> ComparedRun:
    (run,) = _samples().runs
    checks = tuple(
        replace(one, predicted=replace(one.predicted, low_ns=108.1e6), agreement=Agreement.MORE)
        for one in run.predictions
    )
    return replace(run, predictions=checks)


def test_a_prediction_that_failed_without_another_difference_has_its_reasons() -> None:
    assert prediction_sentence(_saving_more()) == (
        "Predicted with DATA002 fixed: 116.3 ms (108.1 ms to 132.6 ms). Measured: 103.8 ms, saves more than predicted. "
        "The report on BASE proposed another value: num_workers 1, HEAD has 2. Identical runs may differ by as much. "
        "No other setting that was recorded differs; whether other code changed is not known."
    )


def test_a_prediction_leaves_the_load_of_other_programs_to_the_caution_on_it() -> None:
    run = _saving_more()
    assert run.change is not None
    witnessed = replace(run, change=replace(run.change, because=LikelyBecause.WITNESSED))
    assert prediction_sentence(witnessed) == prediction_sentence(run)


def test_differences_that_no_fix_made_are_named_beside_a_prediction_that_failed() -> None:
    run = _saving_more()
    other = Difference(DifferenceKind.VERSION, "PyTorch", "2.11", "2.13")
    words = prediction_sentence(replace(run, differences=(*run.differences, other)))
    assert words is not None
    assert "Also different, and perhaps the reason: PyTorch." in words


def test_a_setting_is_no_command_and_no_memory_by_its_name() -> None:
    named = Difference(DifferenceKind.SETTING, "Command", "a", "b")
    steps = Difference(DifferenceKind.RECORDING, "Steps", "marks", "optimizer", Differing.STEP_SOURCE)
    assert named_values(steps)[1:] == (STEP_SOURCE[StepSource.MARKS], STEP_SOURCE[StepSource.OPTIMIZER])
    sized = Difference(DifferenceKind.SETTING, "BUFFER in bytes", "1024", "2048")
    words = changed_sentence(replace(_saving_more(), differences=(named, sized), findings=()))
    assert words == "Changed: Command a -> b, BUFFER in bytes 1024 -> 2048."


def test_another_value_than_the_proposed_one_is_named_beside_a_prediction_that_failed() -> None:
    run = _saving_more()
    four = tuple(replace(one, head="4") if one.name == "num_workers" else one for one in run.differences)
    words = prediction_sentence(replace(run, differences=four))
    assert words is not None
    assert re.search(r"The report on BASE proposed another value: num_workers \d+, HEAD has 4\.", words)


def test_more_than_an_upper_limit_is_no_help_by_others() -> None:
    run = _saving_more()
    checks = tuple(replace(one, is_limit=True) for one in run.predictions)
    words = prediction_sentence(replace(run, predictions=checks))
    assert words is not None
    assert words.startswith("With DATA002 fixed, measured more than the limit of 78.0 ms: the step is 82.2 ms shorter.")
    checks = tuple(replace(one, agreement=Agreement.WITHIN) for one in checks)
    words = prediction_sentence(replace(run, predictions=checks))
    assert words == (
        "Limit of the saving with DATA002 fixed: 78.0 ms per step. Measured: 82.2 ms, at the limit: identical runs may "
        "differ by as much."
    )


@pytest.mark.parametrize(
    ("base", "head", "names"),
    [
        ("runs/first", "runs/fixed", ("runs/first", "runs/fixed")),
        ("/home/somebody/project/before", "/home/somebody/project/after", ("before", "after")),
        ("/home/somebody/monday/train", "/home/somebody/tuesday/train", ("monday/train", "tuesday/train")),
        ("runs/train", "runs/train", ("BASE", "HEAD")),
        ("runs/" + "x" * 25, "runs/b", ("BASE", "HEAD")),
        ("a\nrm x", "b", ("BASE", "HEAD")),
        ("a\u202eb", "b", ("BASE", "HEAD")),
    ],
)
def test_a_side_has_the_name_that_was_typed(base: str, head: str, names: tuple[str, str]) -> None:
    compared = replace(_settled(), base_paths=(Path(base),), head_paths=(Path(head),))
    assert side_names(compared) == names
    shown = "\n".join(line.text for line in lines(comparison_document(compared)))
    assert all(name in shown for name in names)


def test_a_line_that_the_other_side_may_run_in_workers_is_missing_in_the_training_process_only() -> None:
    place = CodePlace(Location("train.py", 7), None, None, None)
    gone, new = LineChange(place, None, 5e6, None, -5e6), LineChange(None, place, None, 5e6, 5e6)
    assert line_words(gone) == "train.py:7 (only in BASE)"
    assert line_words(gone, workers_differ=True) == "train.py:7 (in the training process only in BASE)"
    assert line_words(new, workers_differ=True) == "train.py:7 (in the training process only in HEAD)"


def test_a_line_is_only_in_one_side_if_the_other_is_known_to_lack_it() -> None:
    place = CodePlace(Location("train.py", 7), None, None, None)
    gone = LineChange(place, None, 5e6, None, -5e6)
    assert line_words(replace(gone, may_have_moved=True)) == "train.py:7 (not listed in HEAD)"
    assert line_words(replace(gone, hidden_ns=1e5)) == "train.py:7 (not listed in HEAD)"
    assert line_words(replace(gone, error_ns=1e5)) == "train.py:7 (not sampled in HEAD)"


def test_a_line_that_moved_is_shown_with_the_line_of_before() -> None:
    owner = Frame("conv2d", "torch/nn.py", 3)
    before, now = (CodePlace(Location("train.py", line, "main"), None, None, owner) for line in (13, 12))
    moved = LineChange(before, now, 5e6, 1e6, -4e6)
    assert line_words(moved) == "train.py:12, in torch/nn.py:3 (conv2d) (before train.py:13)"
    starts = [replace(before, line=Location.of_function("train.py", line, "main")) for line in (13, 12)]
    assert "before" not in line_words(replace(moved, base=starts[0], head=starts[1])), "only the function is known"


def test_the_line_beside_a_category_is_one_of_it() -> None:
    def one(forward_ms: float, backward_ms: float, line: int) -> Recording:
        parts = {Category.FORWARD: forward_ms, Category.BACKWARD: backward_ms}
        forward = origins(forward_ms, {}, {("train.py", line, "main"): forward_ms / 2})
        backward = origins(backward_ms, {}, {("train.py", line + 2, "main"): backward_ms})
        return with_origins(recording(parts_ms=parts), forward=forward, backward=backward)

    compared = compare([report(one(60, 50, 13))], [report(one(20, 15, 12))])
    assert cause_sentence(compared.runs[0]) == (
        "Most of the change is in the category Forward: -40.0 ms per step; its line with the largest change is "
        "train.py:12, in item (before train.py:13): -20.0 ms."
    )


def test_the_change_of_a_job_is_explained_by_the_rank_that_works() -> None:
    """Both ranks' steps change alike: on one of them, it is the wait for the other."""

    def rank(number: int, other_ms: float, communication_ms: float) -> Recording:
        parts = {Category.OTHER_HOST: other_ms, Category.COMMUNICATION: communication_ms}
        return replace(recording(parts_ms=parts), id=f"{number}", distributed=Distributed(number, 2, "gloo"))

    base, head = report(rank(0, 10, 41), rank(1, 50, 1)), report(rank(0, 10, 0), rank(1, 10, 1))
    sentence = cause_sentence(compare([base], [head]).runs[0])
    assert sentence is not None
    assert sentence.startswith("Most of the change is in the category Other CPU work: -40.0 ms per step")


def test_recorded_steps_that_became_shorter_explain_no_longer_undisturbed_step() -> None:
    sides = [report(recording(undisturbed_ms=one, parts_ms={Category.FORWARD: ms})) for one, ms in ((5, 60), (9, 20))]
    (run,) = compare(sides[:1], sides[1:]).runs
    assert run.change
    assert run.change.ratio == pytest.approx(1.8)
    assert cause_sentence(run) is None


def test_a_rest_of_rounding_is_no_row_of_its_own() -> None:
    row = RowChange("mm", 5e6, 1e6, -4e6)
    for rest_ns, count in ((-0.6, 1), (-9e3, 2)):
        table = TableChange((row,), OtherChange(0.0, rest_ns, rest_ns))
        assert len(names_table("By operator", "Operator", table, "outside").rows) == count


def test_a_function_of_the_user_keeps_its_name_beside_named_sides() -> None:
    compared = replace(_samples(), base_paths=(Path("a"),), head_paths=(Path("b"),), notes=("BASE: model.py:3 (HEAD)",))
    assert "a: model.py:3 (HEAD)" in [line.text.removeprefix("- ") for line in lines(comparison_document(compared))]


def test_the_page_draws_the_undisturbed_steps_of_both_sides() -> None:
    assert "Undisturbed steps of both sides" in page(comparison_document(_samples()))
    chart = step_dots(_samples().runs[0], "steps")
    assert chart is not None
    assert chart.description == "BASE: median 186.1 ms of 26 steps. HEAD: median 103.8 ms of 19 steps."


@pytest.mark.parametrize("program", [None, *OtherProgram])
def test_the_difference_of_two_programs_is_folded(program: OtherProgram | None) -> None:
    comparison = _samples()
    run = comparison.runs[0]
    run = replace(run, work=replace(run.work, program=program), ranks=run.ranks[:1])
    blocks = comparison_document(replace(comparison, runs=(run,))).sections[0].blocks
    titles = {one.title for one in blocks if isinstance(one, Group)}
    assert ("Where the difference comes from" in titles) is (program not in {OtherProgram.FRAMEWORK, OtherProgram.CODE})


@pytest.mark.parametrize("head_ms", [pytest.param(112, id="not shown"), pytest.param(186, id="likely")])
def test_a_change_that_is_not_shown_ends_with_commands_that_settle_it(head_ms: float) -> None:
    shown = [line.text.strip() for line in lines(comparison_document(compare(captures(100), captures(head_ms))))]
    at = shown.index("Captures that settle it, in turn:")
    assert shown[at + 2 : at + 11] == [
        "# with the code of BASE:",
        "traceadvisor capture -o runs/train-2 -- train.py",
        "# with the code of HEAD:",
        "traceadvisor capture -o runs/train-2 -- train.py",
        "# with the code of BASE:",
        "traceadvisor capture -o runs/train-3 -- train.py",
        "# with the code of HEAD:",
        "traceadvisor capture -o runs/train-3 -- train.py",
        "traceadvisor compare --base runs/train --base runs/train-2 --base runs/train-3 "
        "runs/train runs/train-2 runs/train-3",
    ]


@pytest.mark.parametrize("word", ["; rm -rf x", "$(id)", "```"])
def test_words_of_a_command_to_paste_are_quoted(word: str) -> None:
    sides = ([report(recording(undisturbed_ms=ms, command=["train.py", word]))] for ms in (100.0, 112.0))
    comparison = compare(*sides)
    assert f"-- train.py '{word}'\n" in (settling_commands(comparison, comparison.runs[0]) or "")
    assert markdown_page(markdown.write(comparison_document(comparison)).decode()).elements["pre"] == 1


@pytest.mark.parametrize("word", ["a\nb", "a\u2028b", "x" * 500, "a ##[error] b", "a\n::error::b"])
def test_no_command_is_pasted_that_was_cut_has_several_lines_or_is_one_to_a_ci_system(word: str) -> None:
    comparison = compare(*([report(recording(undisturbed_ms=ms, command=["train.py", word]))] for ms in (100.0, 112.0)))
    assert settling_commands(comparison, comparison.runs[0]) is None
    comparison = compare(*([report(recording(undisturbed_ms=ms, command=["train.py"]))] for ms in (100.0, 112.0)))
    assert settling_commands(comparison, comparison.runs[0])
    for named in (replace(comparison, base_paths=(Path(word),)), replace(comparison, head_paths=(Path(word),))):
        assert settling_commands(named, named.runs[0]) is None


@pytest.mark.parametrize("build", ALL)
def test_the_comment_begins_with_its_marker_and_stays_short(build: Build) -> None:
    document = comparison_document(build())
    text = markdown.write(document).decode()
    assert text.startswith(f"<!-- {SCHEMA} -->\n### ")
    assert len(text.encode()) <= document.most_bytes <= 60_000
    if len(build().runs) < 2:
        assert len(text.encode()) <= 6_000


def test_the_categories_of_the_comment_sum_to_the_step() -> None:
    text = markdown.write(comparison_document(_faster())).decode()
    rows = text.split("| Category |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    milliseconds = {"ms": 1.0, "µs": 1e-3, "ns": 1e-6}
    changes = [float(amount) * milliseconds[unit] for *_, change, _ in cells for amount, unit in [change.split()]]
    assert cells[-1][1] == "Step"
    assert sum(changes[:-1]) == pytest.approx(changes[-1], abs=0.3)
    assert changes[-1] == pytest.approx(141.1 - 177.6, abs=0.2)


def test_the_terminal_lists_the_changed_findings() -> None:
    found = [finding(f"IDLE00{number}", 20 - number) for number in range(5)]
    outcomes = one_recording().outcomes
    known = [replace(outcomes[0], rule_id=one.finding.rule.id, recording_ids=("train/worker0",)) for one in found]
    compared = compare([report(outcomes=known)], [report(findings=found, outcomes=known)])
    shown = [line.text for line in lines(comparison_document(compared))]
    assert sum("The title of IDLE00" in line for line in shown) == 5
    assert any("New" in line and "The title of IDLE000 (IDLE000)" in line for line in shown)


@pytest.mark.parametrize(
    ("change", "is_shown"),
    [
        ({"status": FindingStatus.NEW}, False),
        ({"status": FindingStatus.NEW, "sign": ChangeSign.LOADER}, True),
        ({"status": FindingStatus.CHANGED}, True),
        ({"status": FindingStatus.LOST}, False),
    ],
)
def test_a_part_of_a_finding_that_one_side_has_is_no_change_of_its_own(
    change: dict[str, Any], *, is_shown: bool
) -> None:
    (run,) = compare([report(findings=[finding()])], [report(findings=[finding()])]).runs
    (same,) = run.findings
    assert same.base is not None
    part = replace(same.base, part_of="DATA002")
    is_in_both = change["status"] is FindingStatus.CHANGED
    assert is_noted(replace(same, base=part, head=part if is_in_both else None, **change)) is is_shown


def test_the_step_stands_below_its_categories_and_is_not_folded() -> None:
    base, head = (recording(parts_ms=dict.fromkeys(list(Category)[:11], ms)) for ms in (1.0, 2.0))
    (rank,) = compare([report(base)], [report(head)]).runs[0].ranks
    assert rank.explanation is not None
    table = category_table(rank.explanation)
    assert (len(table.leading), table.folded, table.rows[-1][0].text) == (12, (), "Step")


def test_a_share_of_the_training_time_is_no_time_per_step() -> None:
    row = finding()
    rare = replace(row, finding=replace(row.finding, of_run=True))
    (run,) = compare([report(findings=[rare])], [report(findings=[rare])]).runs
    ((_, _, before, after, *_),) = findings_table(run, run.findings, Detail.PAGE).rows
    assert before == after == Cell("High: up to 20.0% of the training time")


def test_a_share_of_an_inference_is_no_training_time() -> None:
    row = finding()
    rare = replace(row, finding=replace(row.finding, of_run=True), of_inference=True)
    (run,) = compare([report(findings=[rare])], [report(findings=[rare])]).runs
    ((_, _, before, after, *_),) = findings_table(run, run.findings, Detail.PAGE).rows
    assert before == after == Cell("High: up to 20.0% of the time of the run")


def test_findings_without_a_place_have_no_column_for_it() -> None:
    run = _saving_more()
    (change,) = run.findings[:1]
    for places, columns in (((), 4), ((Location("train.py", 7),), 5)):
        shown = findings_table(run, [replace(change, base=None, head=None, places_added=places)], Detail.PAGE)
        assert (len(shown.columns), len(shown.rows[0])) == (columns, columns)


def _comment(comparison: Comparison, room: Room) -> str:
    return markdown.text(trimmed(comparison_document(comparison), Detail.EXTRA, room))


@pytest.mark.parametrize("build", [one_recording, captured, captured_on_host, three_recordings])
def test_hostile_texts_add_no_element_link_or_mention_to_the_comment(build: Callable[[], Report]) -> None:
    for room in (ROOMS[0], ROOMS[-1]):
        texts = (_comment(compare([change(build())], [change(build())]), room) for change in (hostile, harmless))
        wild, tame = map(markdown_page, texts)
        assert not wild.elements - tame.elements
        assert wild.links == []


@pytest.mark.parametrize("build", [one_recording, captured, three_recordings])
def test_hostile_texts_add_nothing_to_the_page(build: Callable[[], Report]) -> None:
    text = page(comparison_document(compare([hostile(build())], [hostile(build())])))
    assert "<img" not in text
    assert "onerror=alert(1)>" not in text
    assert "ghp_" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("build", ALL)
def test_the_page_loads_nothing_and_runs_its_own_script_only(build: Build) -> None:
    text = page(comparison_document(build()))
    assert "default-src 'none'; style-src 'sha256-" in text
    assert text.count("<script") == text.count(f"<script>{script()}</script>") == 1
    assert 'src="' not in text
    assert "http://" not in text
    assert "https://" not in text


def _charts(comparison: Comparison) -> list[Chart]:
    """The bars, then the timelines."""
    section = next(one for one in comparison_document(comparison).sections if one.anchor == "run-1")
    (rank,) = (one for one in section.blocks if isinstance(one, Group) and one.anchor == "run-1-1")
    (timelines,) = (one for one in rank.blocks if isinstance(one, Fold) and one.anchor == "run-1-1-timelines")
    return [one for one in (*rank.blocks, *timelines.blocks) if isinstance(one, Chart)]


def test_the_page_draws_both_steps_on_one_axis_and_both_timelines() -> None:
    bars, *timelines = _charts(_faster())
    texts = [label.text for label in bars.labels]
    assert "177.6 ms · BASE" in texts
    assert "141.1 ms · HEAD" in texts
    assert bars.caption is None  # one scale
    assert [chart.title for chart in timelines] == ["BASE: step 2 over time", "HEAD: step 2 over time"]


@pytest.mark.parametrize("build", ALL)
def test_ids_of_the_page_are_unique(build: Build) -> None:
    text = page(comparison_document(build()))
    ids = [part.partition('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("build", ALL)
def test_the_terminal_shows_the_same_sentence(build: Build) -> None:
    shown = [line.text for line in lines(comparison_document(build()))]
    assert shown[0] == headline(build())
    assert not any("\n" in line for line in shown)


@pytest.mark.parametrize("build", ALL)
def test_the_json_follows_its_schema(build: Build) -> None:
    document = json.loads(render(build()))
    assert document["schema"] == SCHEMA
    Draft202012Validator(json.loads(schema_text(Comparison, SCHEMA))).validate(document)


def test_the_committed_schema_of_comparisons_is_that_of_the_document(golden: Callable[[Path, str], None]) -> None:
    golden(SCHEMA_FILE, schema_text(Comparison, SCHEMA))


def test_hostile_texts_are_clean_in_json() -> None:
    text = render(compare([hostile(one_recording())], [hostile(one_recording())])).decode()
    assert "\\u001b" not in text
    assert "ghp_0123456789" not in text
    assert CANARY[:10] in text  # it is data, not markup


def test_a_comparison_replaces_an_earlier_one_and_no_other_file(tmp_path: Path) -> None:
    names = ["html", "md", "json"]
    for _ in range(2):
        assert write_formats(_settled(), tmp_path, names, COMPARISON_FORMATS).failures == {}
    (tmp_path / "comparison.md").write_text("my notes")
    written = write_formats(_settled(), tmp_path, names, COMPARISON_FORMATS)
    assert list(written.failures) == ["md"]
    assert (tmp_path / "comparison.md").read_text() == "my notes"


@pytest.mark.nightly("traceadvisor/rendering")
def test_a_comparison_as_pdf_ends_with_its_marker(pango: None) -> None:
    content = COMPARISON_FORMATS["pdf"].render(_settled())
    assert content.startswith(b"%PDF")
    assert content.rstrip().endswith(SCHEMA.encode())


def test_both_timelines_share_one_scale_unless_the_steps_differ_too_much() -> None:
    _, *timelines = _charts(_faster())
    assert len({chart.labels[-1].text for chart in timelines}) == 1
    assert "Both have the same time scale." in page(comparison_document(_faster()))
