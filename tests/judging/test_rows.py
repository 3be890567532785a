"""Rows over recordings, and the ranking over runs whose step times differ by orders of magnitude."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import pytest

from tests.build_report import SHARES_NO_WORKERS, device_recording, v100
from traceadvisor.judging.ranking import with_severity
from traceadvisor.judging.rows import explained_by_late_rank, in_rows
from traceadvisor.model.findings import Confidence, Effort, Estimate, Finding, Fix, Location, Method, RuleMeta
from traceadvisor.model.report import RankedFinding, RecordedFinding, Recording
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet

MS = 1_000_000


def _recording(id_: str, step_ms: float = 100, *, run: str = "run") -> Recording:
    """Five kept steps of about this length."""
    return replace(device_recording(id_, SHARES_NO_WORKERS, step_ms=step_ms, device=v100()), run=run)


def _case(
    rule: str,
    recording: Recording,
    saving_ms: float,
    further_ms: float | None = None,
    *,
    file: str | None = None,
    fix: str = "Change it",
    also: tuple[str, ...] = (),
) -> RecordedFinding:
    finding = Finding(
        claims=SpanSet.empty(),
        saving=Estimate(0, saving_ms * MS, 2 * saving_ms * MS, Method.REPLAY),
        confidence=Confidence.HIGH,
        effort=Effort.LINE,
        evidence=(),
        fix=Fix(fix),
        locations=() if file is None else (Location(file, 1),),
        rule=RuleMeta(rule, rule, rule),
    )
    further_ms = saving_ms if further_ms is None else further_ms
    further = Estimate(0, further_ms * MS, 2 * further_ms * MS, Method.REPLAY)
    case = with_severity(finding, (recording.id,), recording.median_step_ns)
    return replace(case, further_saving=further, also=also)


def _shown(rows: Sequence[RankedFinding]) -> list[tuple[str, tuple[str, ...]]]:
    return [(row.finding.rule.id, row.recording_ids) for row in rows]


def test_a_single_recording_keeps_its_order_and_has_no_list() -> None:
    one = _recording("a")
    rows = in_rows([[_case("R1", one, 20), _case("R2", one, 30, 5)]], [one])
    assert _shown(rows) == [("R1", ("a",)), ("R2", ("a",))]
    assert [row.by_recording for row in rows] == [(), ()]


def test_recordings_of_a_run_share_a_row_with_the_figures_of_the_typical_one() -> None:
    slow, usual, fast = _recording("slow", 300), _recording("usual", 110), _recording("fast", 100)
    cases = [_case("R1", slow, 200), _case("R1", usual, 20), _case("R1", fast, 10)]
    (row,) = in_rows([[case] for case in cases], [slow, usual, fast])
    assert row.finding.saving.expected_ns == 20 * MS
    assert row.recording_ids == ("usual", "slow", "fast")
    assert list(row.by_recording) == cases


def test_a_recording_that_was_cut_short_is_neither_typical_nor_first_beside_a_whole_one() -> None:
    whole, cut = _recording("whole", 100), replace(_recording("cut", 100), is_cut_short=True)
    cases = [[_case("R1", cut, 90), _case("R2", cut, 30)], [_case("R2", whole, 20)]]
    first, second = in_rows(cases, [cut, whole])
    assert (first.finding.rule.id, first.recording_ids) == ("R2", ("whole", "cut"))
    assert second.finding.rule.id == "R1"
    alone = in_rows(cases[:1], [cut])
    assert [row.finding.rule.id for row in alone] == ["R1", "R2"], "without a whole one it counts"


def test_a_recording_that_was_cut_short_counts_if_no_other_of_its_worker_is_whole() -> None:
    whole, cut = _recording("whole", 100), replace(_recording("cut", 100), is_cut_short=True, worker="rank1")
    rows = in_rows([[_case("R1", cut, 90)], [_case("R2", whole, 20)]], [whole, cut])
    assert [row.finding.rule.id for row in rows] == ["R1", "R2"]


def test_a_recording_of_few_steps_is_not_typical() -> None:
    long, short = _recording("long", 100), _recording("short", 110)
    short = replace(short, steps=short.steps[:2])
    (row,) = in_rows([[_case("R1", short, 50)], [_case("R1", long, 10)]], [short, long])
    assert row.recording_ids == ("long", "short")


@pytest.mark.parametrize(
    ("files", "fixes", "rows"),
    [
        ((None, None), ("Same", "Same"), 1),
        (("train.py", "train.py"), ("Same", "Same"), 1),
        (("train.py", None), ("Same", "Same"), 1),
        ((None, "train.py"), ("Same", "Same"), 1),
        (("train.py", "other.py"), ("Same", "Same"), 2),
        (("train.py", "train.py"), ("One", "Another"), 2),
    ],
)
def test_different_runs_share_a_row_for_the_same_fix_in_the_same_script(
    files: tuple[str | None, str | None], fixes: tuple[str, str], rows: int
) -> None:
    one, other = _recording("a", run="one"), _recording("b", run="other")
    cases = [
        [_case("R1", recording, 10, file=file, fix=fix)]
        for recording, file, fix in zip((one, other), files, fixes, strict=True)
    ]
    assert len(in_rows(cases, [one, other])) == rows


def test_in_one_run_a_rule_has_one_row_whatever_its_fix() -> None:
    one, other = _recording("a"), _recording("b")
    cases = [[_case("R1", one, 10, file="x.py", fix="One")], [_case("R1", other, 10, file="y.py", fix="Another")]]
    assert len(in_rows(cases, [one, other])) == 1


@pytest.mark.parametrize("swapped", [False, True])
def test_microseconds_never_stand_above_seconds(swapped: bool) -> None:  # noqa: FBT001  # a case
    tiny, huge = _recording("tiny", 1, run="a"), _recording("huge", 10_000, run="b")
    cases = [[_case("SMALL", tiny, 0.9)], [_case("LARGE", huge, 1_000)]]
    recordings = [tiny, huge]
    if swapped:
        cases, recordings = cases[::-1], recordings[::-1]
    assert [row.finding.rule.id for row in in_rows(cases, recordings)] == ["LARGE", "SMALL"]


def test_microseconds_never_stand_above_seconds_within_one_folder() -> None:
    tiny, huge = _recording("tiny", 1), _recording("huge", 10_000)
    rows = in_rows([[_case("SMALL", tiny, 0.9)], [_case("LARGE", huge, 1_000)]], [tiny, huge])
    assert [row.finding.rule.id for row in rows] == ["LARGE", "SMALL"]


@pytest.mark.parametrize(("single_ms", "first"), [(50, "MOST"), (70, "ONE")])
def test_a_finding_in_one_of_four_recordings_of_a_run_counts_a_quarter(single_ms: float, first: str) -> None:
    # 20 ms in three of four recordings are 15 ms per step of the run; 50 and 70 ms in one are 12.5 and 17.5
    recordings = [_recording(name) for name in "abcd"]
    cases = [[_case("MOST", one, 20)] for one in recordings[:3]] + [[_case("ONE", recordings[3], single_ms)]]
    assert in_rows(cases, recordings)[0].finding.rule.id == first


def test_the_order_of_the_typical_recording_holds_although_further_savings_are_larger_elsewhere() -> None:
    first, second, third = (_recording(name, step) for name, step in (("a", 90), ("b", 100), ("c", 110)))
    cases = [
        [_case("R1", first, 1), _case("R2", first, 90)],
        [_case("R1", second, 30), _case("R2", second, 29, 2)],
        [_case("R1", third, 1), _case("R2", third, 90)],
    ]
    rows = in_rows(cases, [first, second, third])
    assert [(row.finding.rule.id, row.recording_ids[0]) for row in rows] == [("R1", "b"), ("R2", "b")]


def test_rows_that_wait_for_each_other_are_ranked_by_value() -> None:
    one, other = _recording("a", run="one"), _recording("b", run="other")
    # R1 is typical in b, behind R2; R2 is typical in a, behind R1
    cases = [[_case("R1", one, 5), _case("R2", one, 40)], [_case("R2", other, 5), _case("R1", other, 50)]]
    assert [row.finding.rule.id for row in in_rows(cases, [one, other])] == ["R1", "R2"]


@pytest.mark.parametrize(("line", "saves_ms", "is_part"), [(24, 50.0, True), (24, 90.0, False), (25, 50.0, False)])
def test_a_finding_about_the_line_that_delays_a_late_rank_is_part_of_that_one(
    line: int,
    saves_ms: float,
    is_part: bool,  # noqa: FBT001  # a case
) -> None:
    """The delay is 40 ms: a finding that saves more than twice as much is about more than the delay."""

    def at(case: RecordedFinding, line: int) -> RecordedFinding:
        return replace(case, finding=replace(case.finding, locations=(Location("train.py", line),)))

    ranks = [_recording("0"), _recording("1")]
    late = at(replace(_case("DIST005", ranks[0], 40), recording_ids=("0", "1")), 24)
    of_ranks = [[at(_case("IDLE004", ranks[0], 10), line)], [at(_case("IDLE004", ranks[1], saves_ms), line)]]
    late = replace(late, finding=replace(late.finding, saving=Estimate.bound(40e6, of_the_fix("for a test"))))
    ((found,), left) = explained_by_late_rank([late], of_ranks)
    assert found.also == (("IDLE004",) if is_part else ())
    assert [len(rows) for rows in left] == ([0, 0] if is_part else [1, 1])


def test_a_finding_without_a_saving_is_no_part_of_a_delay() -> None:
    ranks = [_recording("0"), _recording("1")]
    place = (Location("train.py", 24),)
    cases = [replace(_case("DIST005", ranks[0], 40), recording_ids=("0", "1")), _case("DATA003", ranks[1], 0)]
    late, other = (replace(one, finding=replace(one.finding, locations=place)) for one in cases)
    ((found,), left) = explained_by_late_rank([late], [[other]])
    assert (found.also, left) == ((), [[other]])


def test_rules_folded_elsewhere_are_named_if_they_have_no_row() -> None:
    one, other = _recording("a", 100), _recording("b", 110)
    cases = [
        [_case("R1", one, 20, also=("R2", "R3"))],
        [_case("R1", other, 30, also=("R4",)), _case("R2", other, 10)],
    ]
    row, *_ = in_rows(cases, [one, other])
    assert row.recording_ids[0] == "b"
    assert row.also == ("R3", "R4")


@pytest.mark.parametrize("count", [1, 3, 50])
def test_recordings_that_look_alike_make_no_more_rows(count: int) -> None:
    recordings = [_recording(f"rank{number}", 100 + number % 7) for number in range(count)]
    cases = [[_case("R1", one, 30), _case("R2", one, 20, 10), _case("R3", one, 5)] for one in recordings]
    rows = in_rows(cases, recordings)
    assert [row.finding.rule.id for row in rows] == ["R1", "R2", "R3"]
    assert all(len(row.recording_ids) == count for row in rows)
    assert all(len(row.by_recording) == (count if count > 1 else 0) for row in rows)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_ranking_costs_at_most_in_proportion_to_the_recordings() -> None:
    def seconds(count: int) -> float:
        recordings = [_recording(f"{number}", 100 + number, run=f"run{number}") for number in range(count)]
        cases = [
            [_case(f"R{rule}", one, 10 + rule, file=f"{place}.py") for rule in range(10)]
            for place, one in enumerate(recordings)
        ]
        taken = []
        for _ in range(3):
            begin = process_time()
            rows = in_rows(cases, recordings)
            taken.append(process_time() - begin)
            assert len(rows) == 10 * count
        return min(taken)

    gc.disable()  # a collection visits the objects of all tests before this one
    try:
        small, large = seconds(40), seconds(320)
    finally:
        gc.enable()
    assert large < 25 * max(small, 0.01)
