import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from tests.build_report import MS, rule
from tests.comparing.building import BEFORE, FIXED, finding, recording, report
from tests.recordings.advice import folder_of, labels
from traceadvisor import load
from traceadvisor.comparing.findings import finding_changes
from traceadvisor.comparing.pairing import Capture, PairedRun, captures_of, pair
from traceadvisor.comparing.predictions import prediction_checks
from traceadvisor.comparing.step_change import step_change
from traceadvisor.comparing.work import only_padding_differs
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import Agreement, ChangeSign, FindingChange, FindingStatus, PredictionCheck
from traceadvisor.model.findings import (
    Clear,
    ClearedBecause,
    Estimate,
    Failed,
    Location,
    Method,
    Severity,
    Skipped,
    Unit,
)
from traceadvisor.model.origins import Origins, OriginTable, OtherOrigins
from traceadvisor.model.report import (
    FoldedBecause,
    FoldedFinding,
    OutcomeRow,
    RankedFinding,
    Recording,
    Report,
    UsedSettings,
)
from traceadvisor.model.run import LoaderSettings, Padding, Repository, RunSettings
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rendering.content.comparison.sentences import smaller_words

ID = recording().id
CLEAR = OutcomeRow("IDLE001", (ID,), Clear("waits", 0.01, 0.05, Unit.SHARE))


FOR_A_TEST = Estimate.bound(30e6, of_the_fix("for a test"))


def _changes(base: Sequence[Report], head: Sequence[Report]) -> tuple[FindingChange, ...]:
    (run,), _ = pair(captures_of(base), captures_of(head))
    return finding_changes(run)


def _side(*findings: RankedFinding, count: int = 1, outcomes: Sequence[OutcomeRow] = (CLEAR,)) -> list[Report]:
    """Captures of a side: those without a finding have what its fix sets."""
    one = recording(settings=BEFORE if findings else FIXED)
    return [report(one, findings=findings, outcomes=outcomes) for _ in range(count)]


def _statuses(base: Sequence[Report], head: Sequence[Report]) -> list[tuple[str, FindingStatus]]:
    return [(change.rule.id, change.status) for change in _changes(base, head)]


def test_a_finding_that_base_checked_for_is_new() -> None:
    assert _statuses(_side(), _side(finding())) == [("IDLE001", FindingStatus.NEW)]


def test_a_finding_that_head_does_not_have_is_gone() -> None:
    assert _statuses(_side(finding()), _side()) == [("IDLE001", FindingStatus.GONE)]


def test_a_finding_is_only_no_longer_found_where_what_its_fix_changes_was_not_changed() -> None:
    for settings in (BEFORE, None):  # None: nothing is known of the settings
        head = [report(recording(settings=settings), outcomes=[CLEAR])]
        assert _statuses(_side(finding()), head) == [("IDLE001", FindingStatus.LOST)]
    assert _checks(_timed(100.0, finding()), _timed(60.0, settings=BEFORE)) == ()


def test_a_check_that_was_skipped_shows_nothing() -> None:
    skipped = OutcomeRow("IDLE001", (ID,), Skipped("No call stacks were recorded"))
    (change,) = _changes(_side(outcomes=[skipped]), _side(finding()))
    assert change.status is FindingStatus.UNKNOWN
    assert change.reason is not None
    assert "No call stacks" in change.reason


def test_a_check_that_was_not_part_of_a_report_shows_nothing() -> None:
    assert _statuses(_side(outcomes=()), _side(finding())) == [("IDLE001", FindingStatus.UNKNOWN)]


def _claiming(ms: float) -> RankedFinding:
    """A finding that accounts for some time of a step of 100 ms."""
    row = finding("IDLE001", 6)
    origins = Origins(int(ms * MS), 1, OriginTable((), OtherOrigins(int(ms * MS), 1)), None, None)
    return replace(row, finding=replace(row.finding, origins=origins))


@pytest.mark.parametrize(("head_ms", "status"), [(6, FindingStatus.UNKNOWN), (5, FindingStatus.GONE)])
def test_a_finding_is_gone_only_if_its_time_fell(head_ms: float, status: FindingStatus) -> None:
    """In a longer step, the same time is a smaller share."""
    parts = {Category.DATA_WAIT: head_ms, Category.FORWARD: 194.0 - head_ms}
    clear = replace(CLEAR, outcome=Clear("waits", head_ms / 194, 0.05, Unit.SHARE))
    (change,) = _changes(_side(_claiming(6)), [report(recording(parts_ms=parts, settings=FIXED), outcomes=[clear])])
    assert change.status is status
    assert change.reason == (None if status is FindingStatus.GONE else change.reason)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (Location("train.py", 20, "load"), FindingStatus.HIDDEN),
        (Location("train.py", 20, "other"), FindingStatus.GONE),
        (None, FindingStatus.GONE),
    ],
)
def test_a_line_that_workers_only_hide_is_neither_gone_nor_credited(
    line: Location | None, status: FindingStatus
) -> None:
    base = _timed(100.0, finding("DATA012", 50.0, ("train.py", 10, "load")))
    clear = OutcomeRow("DATA012", (ID,), Clear("data wait", 0.0, 0.05, Unit.SHARE, hidden_at=line))
    head = [report(recording(undisturbed_ms=50.0, settings=FIXED), outcomes=[clear])]
    (change,) = _changes(base, head)
    assert change.status is status
    assert len(_checks(base, head)) == (status is FindingStatus.GONE)


def test_a_line_that_workers_hide_in_part_is_not_credited() -> None:
    base, head = (_timed(ms, finding("DATA012", saves, ("train.py", 10, "load"))) for ms, saves in ((100, 50), (60, 9)))
    assert _checks(base, head) == ()


def test_a_finding_that_no_longer_fits_into_the_step_is_gone() -> None:
    skipped = OutcomeRow("IDLE001", (ID,), Skipped("Too few samples show the code that makes batches"))
    for step_ms, status in ((40.0, FindingStatus.GONE), (70.0, FindingStatus.UNKNOWN)):
        head = [report(recording(parts_ms={Category.FORWARD: step_ms}, settings=FIXED), outcomes=[skipped])]
        (change,) = _changes(_side(_claiming(90)), head)
        assert change.status is status


def test_workers_are_credited_while_the_line_that_they_hide_is_not() -> None:
    line = finding("DATA012", 50.0, ("train.py", 10, "load"))
    workers = finding("DATA002", 40.0).finding
    fix = replace(workers.fix, settings={"num_workers": 2})
    folded = FoldedFinding(workers.rule, FoldedBecause.SAME_TIME, fix, workers.saving)
    passed = Clear("data wait", 0.0, 0.05, Unit.SHARE)
    clear = OutcomeRow("DATA002", (ID,), passed)
    hidden = OutcomeRow("DATA012", (ID,), replace(passed, hidden_at=line.finding.locations[0]))
    sides = [RunSettings(LoaderSettings(worker_count=count)) for count in (0, 2)]
    head = [report(recording(undisturbed_ms=60.0, settings=sides[1]), outcomes=[clear, hidden])]
    (check,) = _checks(_timed(100.0, replace(line, folded=(folded,)), settings=sides[0]), head)
    assert [one.id for one in check.rules] == ["DATA002"]


def test_a_finding_is_fixed_by_the_other_way_that_its_report_proposes() -> None:
    line = finding("DATA012", 40.0, ("train.py", 10, "load"))
    workers = replace(finding("DATA002", 50.0).finding, fix=replace(line.finding.fix, settings={"num_workers": 2}))
    less = finding("DATA015", 30.0, ("train.py", 10, "load"))
    folded = tuple(FoldedFinding.of(one.finding, FoldedBecause.LOAD_DECIDES) for one in (line, less))
    row = replace(finding("DATA002", 50.0), finding=workers, folded=folded)
    sides = [
        RunSettings(LoaderSettings(worker_count=0), own_lines={"train.py": (*range(1, 10), number)})
        for number in (10, 99)
    ]
    rules = ("DATA002", "DATA012", "DATA015")
    passed = [OutcomeRow(one, (ID,), Clear("data wait", 0.0, 0.05, Unit.SHARE)) for one in rules]
    base = _timed(100.0, row, settings=sides[0])
    head = [report(recording(undisturbed_ms=60.0, settings=sides[1]), outcomes=passed)]
    changes = {change.rule.id: change for change in _changes(base, head)}
    assert {one.status for one in changes.values()} == {FindingStatus.GONE}
    assert {one.sign for one in changes.values()} == {ChangeSign.EDITED}
    assert changes["DATA002"].instead == line.finding.rule
    (check,) = _checks(base, head)
    assert [one.id for one in check.rules] == ["DATA012"], "what it predicted for the edited line once, not for workers"
    assert check.predicted.expected_ns == pytest.approx(60e6)


def test_a_script_under_another_name_has_the_same_places() -> None:
    sides = [
        [report(recording(command=[name]), findings=[finding("IDLE001", 20, (name, 10, "load"))])]
        for name in ("train.py", "train_fixed.py")
    ]
    assert _statuses(*sides) == [("IDLE001", FindingStatus.SAME)]


def test_a_finding_of_which_a_limit_was_changed_is_not_gone() -> None:
    head = [replace(one, settings=UsedSettings(thresholds={"IDLE001": {"min_share": 0.5}})) for one in _side()]
    (change,) = _changes(_side(finding()), head)
    assert (change.status, change.reason) == (FindingStatus.UNKNOWN, "the limits of the check were changed")


def test_a_finding_whose_fix_saves_nothing_now_is_not_gone() -> None:
    clear = replace(CLEAR, outcome=Clear("saving", 0.0005, 0.001, Unit.SHARE, because=ClearedBecause.SAVES_LITTLE))
    assert _statuses(_side(finding()), _side(outcomes=[clear])) == [("IDLE001", FindingStatus.UNKNOWN)]


def test_a_finding_of_one_rank_is_not_gone_because_another_rank_was_checked() -> None:
    ranks = [recording(rank=number) for number in range(2)]
    row = finding()
    base = report(*ranks, findings=[replace(row, recording_ids=(ranks[1].id,))], outcomes=[CLEAR])
    rows = [
        replace(CLEAR, recording_ids=(ranks[0].id,)),
        OutcomeRow(CLEAR.rule_id, (ranks[1].id,), Skipped("No call stacks were recorded")),
    ]
    (change,) = _changes([base], [report(*ranks, outcomes=rows)])
    assert change.status is FindingStatus.UNKNOWN


@pytest.fixture(scope="module")
def captured() -> list[Capture]:
    """All labelled recordings that are here, each as a capture of the same ranks."""
    there = [folder for label in labels() if (folder := folder_of(label)).exists()]
    captures = [captures_of([load(folder)])[0] for folder in there]
    return [replace(one, lanes=dict(enumerate_lanes(one))) for one in captures]


def enumerate_lanes(capture: Capture) -> Iterator[tuple[tuple[int | str, int], tuple[Recording, ...]]]:
    for number, lane in enumerate(capture.lanes.values()):
        yield (number, 0), lane


@pytest.mark.nightly("traceadvisor/comparing", "traceadvisor/rules")
def test_in_no_pair_of_recordings_a_finding_is_gone_whose_check_did_not_run_or_whose_time_did_not_fall(
    captured: list[Capture],
) -> None:
    assert len(captured) > 40
    gone = 0
    for base in captured:
        for head in captured:
            lanes = tuple(key for key in base.lanes if key in head.lanes)
            for change in finding_changes(PairedRun("pair", (base,), (head,), lanes)):
                if change.status is FindingStatus.GONE:
                    gone += 1
                    assert _fell(change.rule.id, base, head), (change.rule.id, base.run, head.run)
    assert gone > 500


def _samples(one: Recording) -> float:
    """Samples of a step; 0 if unknown."""
    return (one.samples_per_s or 0) * (one.undisturbed_median_step_ns or 0)


def _fell(rule_id: str, base: Capture, head: Capture) -> bool:
    """Whether HEAD ran the check on each rank with the finding, and measured less time per step or sample."""
    for row in base.findings:
        if row.finding.rule.id != rule_id:
            continue
        (place,) = [key for key, lane in base.lanes.items() if lane[0].id == row.recording_ids[0]]
        now = head.lanes[place][0] if place in head.lanes else None
        ids = [now.id] if now else []
        rows = head.outcomes.get(rule_id, ())
        outcomes = [one.outcome for one in rows if {*ids} & {*(one.recording_ids or ids)}]
        origins = row.finding.origins
        claimed_ns = origins.total_ns / origins.step_count if origins else 0.0
        if now and now.captured and outcomes and (now.step_ns or 0) < claimed_ns / 2:
            continue
        if now is None or not outcomes or any(isinstance(one, Skipped | Failed) for one in outcomes):
            return False
        grown = (
            _samples(now) / _samples(base.lanes[place][0]) if _samples(now) and _samples(base.lanes[place][0]) else 1
        )
        shares = [one for one in outcomes if isinstance(one, Clear) and one.unit is Unit.SHARE]
        if any(one.because is ClearedBecause.SAVES_LITTLE for one in shares):
            return False
        if claimed_ns and any(one.value * (now.step_ns or 0) > claimed_ns * grown for one in shares):
            return False
    return True


def test_a_finding_whose_line_moved_is_the_same() -> None:
    base, head = (_side(finding("IDLE001", 20, ("train.py", line, "train"))) for line in (10, 57))
    assert _statuses(base, head) == [("IDLE001", FindingStatus.SAME)]


def test_a_finding_in_another_function_is_new_and_the_other_one_is_gone() -> None:
    base, head = (_side(finding("IDLE001", 20, ("train.py", 10, function))) for function in ("train", "evaluate"))
    assert _statuses(base, head) == [("IDLE001", FindingStatus.NEW), ("IDLE001", FindingStatus.GONE)]


def test_another_place_of_the_same_finding_is_named() -> None:
    base = _side(finding("IDLE001", 20, ("train.py", 10, "train")))
    head = _side(finding("IDLE001", 20, ("train.py", 10, "train"), ("log.py", 3, "log")))
    (change,) = _changes(base, head)
    assert change.status is FindingStatus.CHANGED
    assert [(place.file, place.line) for place in change.places_added] == [("log.py", 3)]
    assert change.places_removed == ()


def test_checkouts_in_different_folders_have_the_same_files() -> None:
    sides = []
    for root in ("/ci/1/repo", "/home/ada/repo"):
        one = recording()
        assert one.captured is not None
        one = replace(one, captured=replace(one.captured, repository=Repository(root, None, None, None)))
        found = finding("IDLE001", 20, (f"{root}/src/train.py", 10, "train"))
        sides.append([report(one, findings=[found], outcomes=[CLEAR])])
    assert _statuses(*sides) == [("IDLE001", FindingStatus.SAME)]


def test_the_same_saving_of_a_shorter_step_is_no_change() -> None:
    base, head = finding(saves_ms=20.0, step_ms=100.0), finding(saves_ms=20.0, step_ms=50.0)
    assert _statuses(_side(base), _side(head)) == [("IDLE001", FindingStatus.SAME)]


def test_a_saving_that_grew_by_a_tenth_of_the_step_is_a_change() -> None:
    assert _statuses(_side(finding(saves_ms=20.0)), _side(finding(saves_ms=30.0))) == [
        ("IDLE001", FindingStatus.CHANGED)
    ]


def test_a_finding_that_became_part_of_another_one_is_the_same() -> None:
    folded = FoldedFinding(
        rule("IDLE001", "idle001"), FoldedBecause.SAME_TIME, finding().finding.fix, finding().finding.saving
    )
    head = replace(finding("DATA001"), folded=(folded,))
    changes = {change.rule.id: change for change in _changes(_side(finding()), _side(head))}
    assert changes["IDLE001"].status is FindingStatus.SAME
    assert changes["IDLE001"].head is not None
    assert changes["IDLE001"].head.part_of == "DATA001"


def test_a_finding_of_one_capture_in_three_is_neither_new_nor_gone() -> None:
    some = [*_side(finding()), *_side(count=2)]
    assert _statuses(_side(count=3), some) == [("IDLE001", FindingStatus.UNKNOWN)]
    assert _statuses(some, _side(count=3)) == [("IDLE001", FindingStatus.UNKNOWN)]


def test_a_finding_of_two_captures_in_three_is_new() -> None:
    (change,) = _changes(_side(count=3), [*_side(finding(), count=2), *_side()])
    assert change.status is FindingStatus.NEW
    assert change.head is not None
    assert (change.head.captures, change.head.severity) == (2, Severity.HIGH)


def _checks(base: Sequence[Report], head: Sequence[Report]) -> tuple[PredictionCheck, ...]:
    (run,), _ = pair(captures_of(base), captures_of(head))
    return prediction_checks(run, finding_changes(run), step_change(run, ()))


def _timed(step_ms: float, *findings: RankedFinding, settings: RunSettings | None = None) -> list[Report]:
    one = recording(undisturbed_ms=step_ms, settings=settings or (BEFORE if findings else FIXED))
    return [report(one, findings=findings, outcomes=[CLEAR])]


@pytest.mark.parametrize(
    ("measured_ms", "agreement"),
    [(80.0, Agreement.WITHIN), (90.0, Agreement.LESS), (60.0, Agreement.MORE), (99.0, Agreement.NOT_SHORTER)],
)
def test_a_prediction_stands_beside_what_was_measured(measured_ms: float, agreement: Agreement) -> None:
    """20 ms of 100 were to be saved, at least 16 and at most 24."""
    (check,) = _checks(_timed(100.0, finding(saves_ms=20.0)), _timed(measured_ms))
    assert (check.predicted.low_ns, check.predicted.expected_ns, check.predicted.high_ns) == pytest.approx(
        (76e6, 80e6, 84e6)
    )
    assert check.measured_step_ns == pytest.approx(measured_ms * 1e6)
    assert check.agreement is agreement


def test_a_finding_that_is_still_there_has_no_prediction_to_check() -> None:
    assert _checks(_timed(100.0, finding()), _timed(80.0, finding(saves_ms=19.0))) == ()


def test_a_finding_that_shrank_to_half_is_checked() -> None:
    base = _timed(100.0, finding(saves_ms=20.0))
    assert len(_checks(base, _timed(90.0, finding(saves_ms=9.0), settings=FIXED))) == 1
    assert _checks(base, _timed(90.0, finding(saves_ms=9.0))) == (), "its setting is as before"


def test_a_finding_that_is_smaller_is_credited_with_what_is_gone_of_it() -> None:
    """20 ms were predicted, and 5 are left: 15 of 100 ms."""
    base = _timed(100.0, finding(saves_ms=20.0))
    head = _timed(85.0, finding(saves_ms=5.0), settings=FIXED)
    (check,) = _checks(base, head)
    assert check.predicted.expected_ns == pytest.approx(85e6)
    assert check.agreement is Agreement.WITHIN
    (change,) = _changes(base, head)
    assert (change.is_smaller, smaller_words(change)) == (True, "smaller: 20% -> 5.0%")
    assert change.fixed_share == pytest.approx(0.15)


def _padded(share: float, positions: float) -> list[Report]:
    padding = Padding(share, share, round(positions), 8, "zeros") if share else None
    settings = RunSettings(padding=padding, positions_per_sample=positions)
    return [report(recording(settings=settings), findings=[finding("DATA013", 60.0 * share)] if share else ())]


@pytest.mark.parametrize(("share", "positions"), [(0.15, 120.0), (0.0, 102.0)])
def test_batches_with_less_padding_are_the_sign_of_its_fix_and_no_other_work(share: float, positions: float) -> None:
    base, head = _padded(0.6, 255.0), _padded(share, positions)
    assert {one.sign for one in _changes(base, head)} == {ChangeSign.PADDING}
    assert {one.sign for one in _changes(base, base)} == {None}
    (run,), _ = pair(captures_of(base), captures_of(head))
    assert only_padding_differs(run)
    (cropped,), _ = pair(captures_of(base), captures_of(_padded(0.0, 64.0)))
    assert not only_padding_differs(cropped)


def test_an_upper_limit_holds_for_any_smaller_saving() -> None:
    limit = replace(finding(), finding=replace(finding().finding, saving=FOR_A_TEST))
    (check,) = _checks(_timed(100.0, limit), _timed(85.0))
    assert (check.is_limit, check.agreement) == (True, Agreement.WITHIN)


@pytest.mark.parametrize(("measured_ms", "agreement"), [(64.0, Agreement.WITHIN), (40.0, Agreement.MORE)])
def test_a_limit_is_exceeded_only_by_more_than_identical_runs_differ_by(
    measured_ms: float, agreement: Agreement
) -> None:
    """At least 70 ms are left. One capture of identical runs takes up to 1.34 times as long as another."""
    limit = replace(finding(), finding=replace(finding().finding, saving=FOR_A_TEST))
    (check,) = _checks(_timed(100.0, limit), _timed(measured_ms))
    assert (check.is_limit, check.agreement) == (True, agreement)


def test_several_fixes_have_a_prediction_together() -> None:
    outcomes = [CLEAR, OutcomeRow("DATA001", (ID,), CLEAR.outcome)]
    both = [finding(), finding("DATA001", 30.0)]
    base = [report(recording(undisturbed_ms=100.0, settings=BEFORE), findings=both, outcomes=outcomes)]
    head = [report(recording(undisturbed_ms=50.0, settings=FIXED), outcomes=outcomes)]
    (together,) = _checks(base, head)
    assert [one.id for one in together.rules] == ["DATA001", "IDLE001"]
    assert together.predicted.expected_ns == pytest.approx(50e6)
    assert together.agreement is Agreement.WITHIN


def test_a_share_of_the_run_is_no_prediction_of_its_step() -> None:
    """Of 200 ms per step, 100 in training steps, a validation took 100: the other fix alone shortens the step."""
    outcomes = [CLEAR, OutcomeRow("IDLE010", (ID,), CLEAR.outcome)]
    validation = finding("IDLE010", 50.0, step_ms=200.0)
    limit = replace(validation.finding, of_run=True, saving=Estimate.bound(100e6, of_the_fix("it lies outside")))
    both = [finding(saves_ms=20.0), replace(validation, finding=limit)]
    base = [report(recording(undisturbed_ms=100.0, settings=BEFORE), findings=both, outcomes=outcomes)]
    (check,) = _checks(base, [report(recording(undisturbed_ms=80.0, settings=FIXED), outcomes=outcomes)])
    assert [one.id for one in check.rules] == ["IDLE001"]
    assert check.predicted.expected_ns == pytest.approx(80e6)
    assert check.agreement is Agreement.WITHIN


def test_a_saving_too_small_to_be_measured_is_not_checked() -> None:
    assert _checks(_timed(100.0, finding(saves_ms=2.0)), _timed(60.0)) == ()


def test_a_wide_range_is_a_prediction_as_in_the_report_and_no_limit() -> None:
    """The report says about 30 ms, range 1% to 60%."""
    row = finding()
    wide = replace(row, finding=replace(row.finding, saving=Estimate(1e6, 30e6, 60e6, Method.REPLAY)))
    (check,) = _checks(_timed(100.0, wide), _timed(80.0))
    assert (check.is_limit, check.agreement) == (False, Agreement.WITHIN)
    assert check.predicted.expected_ns == pytest.approx(70e6)
    assert _checks(_timed(100.0, wide), _timed(35.0))[0].agreement is Agreement.MORE


def test_of_several_captures_the_step_is_that_of_the_verdict() -> None:
    base = [one for ms in (90.0, 100.0, 400.0) for one in _timed(ms, finding(saves_ms=20.0, step_ms=ms))]
    (check,) = _checks(base, [one for ms in (40.0, 50.0, 300.0) for one in _timed(ms)])
    (run,), _ = pair(captures_of(base), captures_of([one for ms in (40.0, 50.0, 300.0) for one in _timed(ms)]))
    step = step_change(run, ())
    assert step is not None
    assert (check.base_step_ns, check.measured_step_ns) == (step.base_ns, step.head_ns)
    assert check.base_step_ns < 200e6, "one capture of a busy machine does not decide"


def test_a_recorded_step_is_no_measure_of_an_undisturbed_one() -> None:
    assert _checks(_timed(100.0, finding()), [report(outcomes=[CLEAR])]) == ()


def _calls(act: Callable[[], object]) -> int:
    """Python calls and resumed generators of a function: its cost, on any machine."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def _of_one_rule(count: int) -> tuple[list[Report], list[Report]]:
    base, head = (
        _side(
            *(finding("IDLE001", 20.0, (f"{side}.py", line, f"f{line}"), ("train.py", 1, "f")) for line in range(count))
        )
        for side in ("base", "head")
    )
    return base, head


def _of_many_rules(count: int) -> tuple[list[Report], list[Report]]:
    ids = [f"TEST{number:06d}" for number in range(count)]
    clear = [replace(CLEAR, rule_id=one) for one in ids]
    return _side(*map(finding, ids), outcomes=clear), _side(outcomes=clear)


@pytest.mark.parametrize("sides", [_of_one_rule, _of_many_rules])
def test_the_cost_of_a_comparison_grows_as_its_findings_do(
    sides: Callable[[int], tuple[list[Report], list[Report]]],
) -> None:
    few, many = (_calls(partial(_checks, *sides(size))) for size in (25, 100))
    assert many < 5 * few
