"""The order of the findings of one recording, with a simulation whose results are written down in the test."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from traceadvisor.model.findings import Certainty, Confidence, Effort, Estimate, Finding, Fix, Method, RuleMeta
from traceadvisor.model.report import FoldedBecause
from traceadvisor.model.saving import Doubt, of_the_fix
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.kernels import FasterKernels, each_kernel_once
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.savings.order import MOST_SIMULATIONS, Joint, Placement, in_order

STEP_NS = 1000.0
HIGH, MEDIUM, LOW = Confidence


@dataclass(frozen=True, slots=True)
class Named(Edit):
    """A fix that only a written simulation knows."""

    name: str
    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        return graph


class Written(Joint):
    """Savings of sets of fixes in percent of the step; a set that is not written saves the sum of its fixes."""

    def __init__(self, **percents: float) -> None:
        self.percents = {frozenset(names): percent for names, percent in percents.items()}
        self.runs, self.most = 0, 1.0

    @property
    def wrong_share(self) -> float:
        return 0.0

    def most_share(self, edits: Iterable[Edit]) -> float:
        return self.most

    def edit_of(self, finding: Finding) -> Edit | None:
        edit = finding.fix.what_if
        return edit if isinstance(edit, Edit) else None

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        self.runs += 1
        names = frozenset(edit.name for edit in edits if isinstance(edit, Named))
        known = self.percents.get(names)
        return (sum(self.percents[frozenset(name)] for name in names) if known is None else known) / 100


def _found(
    name: str,
    saving: Estimate,
    *claims: tuple[int, int],
    edit: Edit | None = None,
    confidence: Confidence = HIGH,
    effort: Effort = Effort.LINE,
) -> Finding:
    return Finding(
        claims=SpanSet.of(*claims),
        saving=saving,
        confidence=confidence,
        effort=effort,
        evidence=(),
        fix=Fix(f"Fix {name}", what_if=edit),
        rule=RuleMeta(name, name, name),
    )


def _simulated(name: str, percent: float, *claims: tuple[int, int], confidence: Confidence = HIGH) -> Finding:
    ns = 10 * percent
    return _found(name, Estimate(ns - 1, ns, ns + 1, Method.REPLAY), *claims, edit=Named(name), confidence=confidence)


def _limit(name: str, percent: float, *claims: tuple[int, int]) -> Finding:
    return _found(name, Estimate.bound(10 * percent, of_the_fix("nobody asked")), *claims)


def _order(*findings: Finding, joint: Joint | None = None) -> Placement:
    return in_order(findings, {}, joint, STEP_NS)


def _names(placement: Placement) -> list[str]:
    return [row.finding.rule.id for row in placement.rows]


def _further(placement: Placement) -> list[float]:
    return [round(row.further_saving.expected_ns, 6) for row in placement.rows]


def test_after_the_largest_saving_comes_the_one_that_adds_most() -> None:
    # b alone saves more than c, but most of it is gone after a
    joint = Written(a=40, b=30, c=20, ab=45, ac=60, abc=65)
    placement = _order(_simulated("a", 40), _simulated("b", 30), _simulated("c", 20), joint=joint)
    assert _names(placement) == ["a", "c", "b"]
    assert _further(placement) == [400, 200, 50]
    assert placement.joint_share == pytest.approx(0.65)


def test_the_first_saving_is_that_of_the_fix_alone() -> None:
    finding = _simulated("a", 40)
    assert _order(finding, joint=Written(a=40)).rows[0].further_saving == finding.saving


def test_a_further_saving_has_at_least_the_width_of_the_saving_alone() -> None:
    # Half of b is gone after a; what is left keeps its ends of 20% and 160%.
    wide = _found("b", Estimate(20.0, 100.0, 160.0, Method.REPLAY), edit=Named("b"))
    further = _order(_simulated("a", 40), wide, joint=Written(a=40, b=10, ab=45)).rows[1].further_saving
    assert (further.low_ns, further.expected_ns, further.high_ns) == pytest.approx((10, 50, 80))


@pytest.mark.parametrize(("low_ns", "names"), [(0.0, ["a", "b"]), (150.0, ["a"])])
def test_a_certain_saving_is_not_folded_into_one_that_may_save_nothing(low_ns: float, names: list[str]) -> None:
    unsure = _found("a", Estimate(low_ns, 300.0, 310.0, Method.REPLAY), edit=Named("a"))
    certain = _found("b", Estimate(120.0, 200.0, 250.0, Method.REPLAY), edit=Named("b"))
    placement = _order(unsure, certain, joint=Written(a=30, b=20, ab=30))
    assert _names(placement) == names
    if low_ns == 0:
        assert placement.rows[1].further_saving.high_ns == 250


def test_two_fixes_together_may_save_more_than_each_alone() -> None:
    placement = _order(_simulated("a", 10), _simulated("b", 2), joint=Written(a=10, b=2, ab=20))
    assert _further(placement) == [100, 100]


@pytest.mark.parametrize(("together", "names"), [(40.9, ["a"]), (41.1, ["a", "b"])])
def test_what_adds_less_than_1_percent_is_named_in_the_one_that_takes_it(together: float, names: list[str]) -> None:
    placement = _order(_simulated("a", 40), _simulated("b", 30), joint=Written(a=40, b=30, ab=together))
    assert _names(placement) == names
    if len(names) == 1:
        ((folded,),) = (row.folded for row in placement.rows)
        assert (folded.rule.id, folded.because, folded.saving.expected_ns) == ("b", FoldedBecause.ADDS_LITTLE, 300)


class Limiting(Written):
    """Knows what the step loses without the claims of the finding ``m``."""

    def edit_of(self, finding: Finding) -> Edit | None:
        return Named("m") if finding.rule.id == "m" else super().edit_of(finding)


def test_the_sum_of_printed_savings_is_at_most_what_all_fixes_can_save() -> None:
    # 100% of the step are saved together, but 45% of it is work that none of the fixes removes.
    joint = Limiting(a=40, m=50, am=90)
    joint.most = 0.55
    placement = _order(_simulated("a", 40), _limit("m", 50, (0, 500)), joint=joint)
    assert [row.finding.rule.id for row in placement.rows] == ["a", "m"]
    assert placement.rows[1].further_saving.high_ns == pytest.approx(150)


@pytest.mark.parametrize(("together", "further"), [(48, 80), (99, 500)])
def test_after_another_fix_an_upper_limit_is_what_the_step_then_loses_without_it(together: int, further: int) -> None:
    # The first fix makes room: more than alone is reached, and at most what the rule claims.
    joint = Limiting(a=40, m=3, am=together)
    placement = _order(_simulated("a", 40), _limit("m", 50, (0, 500)), joint=joint)
    assert [round(row.further_saving.high_ns) for row in placement.rows] == [401, further]


def test_an_upper_limit_that_others_take_is_part_of_one_of_them() -> None:
    placement = _order(_simulated("a", 40), _limit("m", 50, (0, 500)), joint=Limiting(a=40, m=3, am=40.5))
    assert _names(placement) == ["a"]


def _of_run(name: str, percent: float, whole_ns: float = 4 * STEP_NS) -> Finding:
    limit = Estimate.bound(whole_ns * percent / 100, of_the_fix("nobody asked"))
    return replace(_found(name, limit), of_run=True, whole_ns=whole_ns)


@pytest.mark.parametrize(
    ("percent", "beside", "further_ns"),
    [
        (20, None, None),  # nothing shows where the second one loses its time
        (20, 0.4, None),
        (20, 0.6, 480),
        (20, 1.0, 800),
        (59, 1.0, 1200),  # together at most all of the time
        (61, 1.0, None),
    ],
)
def test_after_a_fix_that_is_not_simulated_a_saving_is_what_that_fix_surely_leaves(
    percent: float, beside: float | None, further_ns: float | None
) -> None:
    first, second = in_order([_of_run("a", 70), _of_run("b", percent)], {}, None, STEP_NS, lambda *_: beside).rows
    assert first.further_saving == first.finding.saving
    assert second.further_saving.is_to_measure is (further_ns is None)
    assert further_ns is None or second.further_saving.high_ns == pytest.approx(further_ns)


@pytest.mark.parametrize(
    ("beside", "names"), [(0.0, ["fine", "coarse"]), (0.9, ["coarse", "fine"]), (None, ["coarse", "fine"])]
)
def test_a_more_specific_finding_of_the_run_comes_first_in_the_same_code(
    beside: float | None, names: list[str]
) -> None:
    findings = _of_run("fine", 30), _of_run("coarse", 70)
    placement = in_order(findings, {"fine": frozenset({"coarse"})}, None, STEP_NS, lambda *_: beside)
    assert _names(placement) == names
    assert _names(in_order(findings, {}, None, STEP_NS, lambda *_: beside)) == ["coarse", "fine"]


@pytest.mark.parametrize(
    ("percent", "beside", "is_folded"),
    [(14, 1.0, True), (16, 1.0, False), (30, 0.4, True), (30, 0.6, False), (30, None, True)],
)
def test_the_time_of_a_place_below_a_fix_has_a_row_only_if_most_of_it_is_surely_elsewhere(
    percent: float, beside: float | None, *, is_folded: bool
) -> None:
    first, place = _of_run("a", 60), _of_run("b", percent)
    place = replace(place, saving=place.saving.of_place())
    placement = in_order([first, place], {}, None, STEP_NS, lambda *_: beside)
    assert len(placement.rows) == 2 - is_folded
    assert [one.because for one in placement.rows[0].folded] == [FoldedBecause.INDIRECT] * is_folded
    assert in_order([place], {}, None, STEP_NS).rows[0].further_saving == place.saving, "alone, it is first"


@pytest.mark.parametrize(("claims", "is_sure"), [([(0, 9)], True), ([], False)])
def test_a_rare_loss_leaves_what_is_claimed_in_usual_steps(claims: list[tuple[int, int]], *, is_sure: bool) -> None:
    placement = _order(_of_run("rare", 70), _simulated("a", 30, *claims), joint=Written(a=30))
    assert placement.rows[1].further_saving.is_to_measure is not is_sure
    assert placement.joint_share == (pytest.approx(0.3) if is_sure else None)


@pytest.mark.parametrize(("end", "percent"), [(10, 30), (13, 21), (20, None)])
def test_time_that_a_measured_saving_claims_is_not_simulated_to_be_saved_again(end: int, percent: int | None) -> None:
    measured = _found("measured", Estimate(300, 400, 500, Method.MODEL), (0, end))
    placement = _order(measured, _simulated("a", 30, (10, 20)), joint=Written(a=30))
    assert _names(placement) == (["measured", "a"] if percent else ["measured"])
    assert not percent or _further(placement)[1] == 10 * percent


def test_a_finding_folds_into_the_one_that_takes_most_of_it() -> None:
    joint = Written(a=40, b=30, c=20, ab=70, ac=60, bc=30, abc=70)
    placement = _order(_simulated("a", 40), _simulated("b", 30), _simulated("c", 20), joint=joint)
    assert [(row.finding.rule.id, [one.rule.id for one in row.folded]) for row in placement.rows] == [
        ("a", []),
        ("b", ["c"]),
    ]


def test_a_small_saving_that_no_other_takes_keeps_its_row() -> None:
    placement = _order(_simulated("a", 40), _simulated("b", 0.5), joint=Written(a=40, b=0.5))
    assert _names(placement) == ["a", "b"]


def test_a_finding_without_a_saving_is_never_folded() -> None:
    free = _found("free", Estimate.nothing())
    assert _names(_order(_simulated("a", 40), free, joint=Written(a=40))) == ["a", "free"]


def test_an_upper_limit_ranks_below_a_simulated_saving_with_the_same_maximum() -> None:
    wide = _found("wide", Estimate(10, 50, 400, Method.REPLAY), edit=Named("w"))
    assert _names(_order(_limit("limit", 40), wide, joint=Written(w=5))) == ["wide", "limit"]
    assert _names(_order(_limit("limit", 40.1), wide, joint=Written(w=5))) == ["limit", "wide"]


@pytest.mark.parametrize(("percent", "first"), [(40, "known"), (40.1, "limit")])
def test_of_the_same_time_a_known_saving_that_may_be_as_large_as_an_upper_limit_is_the_better_one(
    percent: float, first: str
) -> None:
    known = _found("known", Estimate(30, 60, 400, Method.MODEL), (0, 500))
    (row,) = _order(_limit("limit", percent, (0, 500)), known).rows
    assert row.finding.rule.id == first
    assert {row.finding.rule.id, *(one.rule.id for one in row.folded)} == {"known", "limit"}


@pytest.mark.parametrize(("settings", "first"), [({"amp": "float16"}, "a"), ({"tf32": True}, "a"), ({}, "limit")])
def test_another_number_type_comes_before_a_certain_saving_only_if_simulated(
    settings: dict[str, SettingValue], first: str
) -> None:
    limit = _limit("limit", 60, (0, 9))
    limit = replace(limit, fix=replace(limit.fix, settings=settings))
    assert _names(_order(limit, _simulated("a", 10, (20, 29)), joint=Written(a=10)))[0] == first


@pytest.mark.parametrize(("percent", "first"), [(0.9, "limit"), (1, "a")])
def test_a_certain_saving_comes_before_another_number_type_from_1_percent(percent: float, first: str) -> None:
    limit = _limit("limit", 60, (0, 9))
    limit = replace(limit, fix=replace(limit.fix, settings={"amp": "float16"}))
    certain = _found("a", Estimate(8 * percent, 10 * percent, 12 * percent, Method.REPLAY), edit=Named("a"))
    assert _names(_order(limit, certain, joint=Written(a=percent)))[0] == first


def test_upper_limits_rank_by_their_limit() -> None:
    assert _names(_order(_limit("a", 10, (0, 9)), _limit("b", 30, (20, 29)))) == ["b", "a"]


def test_time_that_is_claimed_above_is_not_promised_again() -> None:
    # a claims 60 of the 100 ns that b claims
    placement = _order(_limit("a", 50, (0, 200)), _limit("b", 20, (140, 240)))
    assert [row.further_saving.high_ns for row in placement.rows] == [500, 80]


@pytest.mark.parametrize(("until", "is_left"), [(50, False), (20, True)])
def test_a_cost_is_measured_again_after_a_fix_of_the_work_that_sets_it_off(until: int, *, is_left: bool) -> None:
    first = _limit("a", 50, (0, until))
    second = replace(_limit("b", 20, (140, 240)), set_off_by=SpanSet.of((0, 100)))
    reason = _order(first, second).rows[1].further_saving.reason
    assert (reason is None or reason.doubt is not Doubt.MEASURE_AGAIN) is is_left


def test_a_limit_whose_time_is_claimed_above_becomes_part_of_that_finding() -> None:
    (row,) = _order(_limit("attention", 50, (0, 200)), _limit("softmax", 20, (100, 200))).rows
    assert (row.finding.rule.id, [one.rule.id for one in row.folded]) == ("attention", ["softmax"])


def test_an_upper_limit_is_at_most_what_simulated_fixes_leave_of_the_step() -> None:
    placement = _order(_simulated("a", 80, (0, 9)), _limit("b", 60, (20, 29)), joint=Written(a=80))
    assert [row.further_saving.high_ns for row in placement.rows] == [801, pytest.approx(200)]


@pytest.mark.parametrize(("end", "names"), [(85, ["better"]), (75, ["better", "worse"])])
def test_findings_of_mostly_the_same_time_are_one(end: int, names: list[str]) -> None:
    # of 100 ns each, they share 85 or 75
    better, worse = _limit("better", 50, (0, 100)), _limit("worse", 20, (100 - end, 200 - end))
    assert _names(_order(worse, better)) == names


def test_the_more_specific_finding_of_the_same_time_stays_even_with_a_smaller_saving() -> None:
    general, specific = _limit("general", 50, (0, 100)), _limit("specific", 20, (0, 100))
    placement = in_order([general, specific], {"specific": frozenset({"general"})}, None, STEP_NS)
    assert _names(placement) == ["specific"]
    assert placement.rows[0].folded[0].because is FoldedBecause.SAME_TIME


@pytest.mark.parametrize(("end", "names"), [(85, ["specific"]), (75, ["general", "specific"])])
def test_a_more_specific_finding_explains_a_general_one_whose_time_it_claims_with_more(
    end: int, names: list[str]
) -> None:
    general, specific = _limit("general", 50, (0, 100)), _limit("specific", 20, (100 - end, 900))
    placement = in_order([general, specific], {"specific": frozenset({"general"})}, None, STEP_NS)
    assert _names(placement) == names


@pytest.mark.parametrize(
    ("line", "both", "end", "names"),
    [
        (8, 26, 200, ["specific", "line"]),  # 6% more in addition
        (8, 20, 200, ["specific"]),
        (19, 20, 200, ["line", "specific"]),  # nearly as much
        (19, 26, 90, ["specific"]),  # the same time
    ],
)
def test_an_easier_fix_of_a_part_of_the_time_counts_by_what_the_simulation_adds(
    line: int, both: int, end: int, names: list[str]
) -> None:
    easy = replace(_simulated("a", line, (0, 80)), rule=RuleMeta("line", "line", "line"))
    hard = replace(_simulated("b", 20, (0, end)), rule=RuleMeta("specific", "specific", "specific"))
    joint = Written(a=line, b=20, ab=both)
    assert (
        _names(
            in_order([easy, replace(hard, effort=Effort.REFACTOR)], {"specific": frozenset({"line"})}, joint, STEP_NS)
        )
        == names
    )


def test_of_nearly_equal_savings_of_the_same_time_the_easier_stays() -> None:
    line = _found("line", Estimate(200, 300, 310, Method.REPLAY), (0, 100), edit=Named("a"))
    near, far = (
        _found(str(ns), Estimate(200, ns, 310, Method.REPLAY), (0, 100), edit=Named("b"), effort=Effort.SETTING)
        for ns in (280, 260)
    )
    assert _names(_order(line, near)) == ["280"]
    assert _names(_order(line, far)) == ["line"]
    assert _names(_order(line, near, far)) == ["280"]


def test_a_share_of_the_run_ranks_by_the_time_per_step_that_it_is_of() -> None:
    # Of 2500 ns per step, 1000 are in training steps: three fifths of the run are more than all of the step.
    outside = replace(_limit("outside", 150), of_run=True, whole_ns=2.5 * STEP_NS)
    placement = _order(_limit("step", 90, (0, 900)), outside)
    assert _names(placement) == ["outside", "step"]
    assert [row.further_saving.high_ns for row in placement.rows] == [1500, 900]


def test_of_two_loader_fixes_the_worse_is_an_alternative() -> None:
    faster = _found("faster", Estimate(200, 300, 310, Method.REPLAY), (0, 10), edit=NoDataWait())
    workers = _found("workers", Estimate(300, 350, 360, Method.REPLAY), (50, 90), edit=LoaderWorkers(2))
    (row,) = _order(faster, workers, joint=Written()).rows
    assert row.finding.rule.id == "workers"
    assert [(one.rule.id, one.because) for one in row.folded] == [("faster", FoldedBecause.ALTERNATIVE)]


def _kernels(*rows: int, times: float) -> FasterKernels:
    speedup = np.full(len(rows), times)
    return FasterKernels(np.array(rows), speedup, speedup, speedup)


def test_two_number_types_of_the_same_kernels_are_alternatives() -> None:
    assert _kernels(1, 2, 3, times=4).excludes(_kernels(1, 2, 3, times=2))
    assert not _kernels(1, 2, 3, times=4).excludes(_kernels(3, 4, 5, times=2))
    assert not _kernels(1, 2, times=4).excludes(NoDataWait())


def test_of_two_speed_ups_of_a_kernel_the_larger_counts() -> None:
    other = Named("other")
    merged, *rest = each_kernel_once([_kernels(1, 2, times=4), other, _kernels(2, 5, times=6)])
    assert rest == [other]
    assert isinstance(merged, FasterKernels)
    assert dict(zip(merged.rows.tolist(), merged.expected.tolist(), strict=True)) == {1: 4, 2: 6, 5: 6}


def test_nearly_equal_savings_rank_by_the_certainty_of_the_saving_then_by_cause_and_effort() -> None:
    wide = _found("wide", Estimate(10, 420, 900, Method.REPLAY), edit=Named("w"))
    unsure, sure = _simulated("a", 40, confidence=LOW), _simulated("b", 39, confidence=HIGH)
    placement = _order(wide, unsure, sure, joint=Written(w=42, a=40, b=39))
    assert _names(placement) == ["b", "a", "wide"]


def test_a_clearly_larger_saving_comes_first_at_any_certainty() -> None:
    wide = _found("wide", Estimate(10, 450, 900, Method.REPLAY), edit=Named("w"), effort=Effort.REFACTOR)
    assert _names(_order(_simulated("a", 40), wide, joint=Written(w=45, a=40))) == ["wide", "a"]


def test_many_small_differences_make_no_large_one() -> None:
    rows = [_simulated("a", 20, confidence=LOW), _simulated("b", 18.5, confidence=MEDIUM), _simulated("c", 17)]
    assert _names(_order(*rows, joint=Written(a=20, b=18.5, c=17))) == ["b", "a", "c"]


def test_the_number_of_simulations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "abcdefghijklmnopqrst"
    joint = Written(**{name: 2 + place / 10 for place, name in enumerate(names)})
    placement = _order(*(_simulated(name, 2 + place / 10) for place, name in enumerate(names)), joint=joint)
    assert joint.runs <= MOST_SIMULATIONS
    assert sorted(_names(placement)) == sorted(names)
    methods = {row.further_saving.certainty for row in placement.rows}
    assert methods <= {Certainty.SIMULATED, Certainty.UNSURE, Certainty.LIMIT}


def test_a_lazy_order_needs_few_simulations() -> None:
    # nothing changes after the first fix, so each of the others is simulated once, and once for its range
    joint = Written(a=40, b=30, c=20, d=10)
    _order(*(_simulated(name, percent) for name, percent in zip("abcd", (40, 30, 20, 10), strict=True)), joint=joint)
    assert joint.runs == 15


def test_without_findings_there_is_no_step_with_all_fixes() -> None:
    placement = _order(joint=Written())
    assert (placement.rows, placement.joint_share) == ((), None)


def test_without_a_step_time_findings_keep_their_savings() -> None:
    placement = in_order([_limit("a", 10, (0, 9)), _limit("b", 30, (20, 29))], {}, None, None)
    assert [row.further_saving.high_ns for row in placement.rows] == [300, 100]


@pytest.mark.parametrize(("alone_ns", "first"), [(300, "workers"), (250, "line")])
@pytest.mark.parametrize("now_ns", [50, 200, 400])
def test_what_other_programs_take_of_a_saving_does_not_change_the_order(now_ns: int, alone_ns: int, first: str) -> None:
    line = _found("line", Estimate(200, 320, 350, Method.MODEL), (0, 100))
    workers = _found("workers", Estimate(0, now_ns, 400, Method.MODEL), (0, 100), effort=Effort.SETTING)
    placed = _order(line, replace(workers, alone_ns=alone_ns))
    assert _names(placed) == [first]
    assert [one.because for one in placed.rows[0].folded] == [FoldedBecause.LOAD_DECIDES]


def test_moving_work_comes_behind_removing_it_where_no_core_was_free() -> None:
    line = _found("line", Estimate(50, 90, 120, Method.MODEL), (0, 100))
    workers = _found("workers", Estimate.bound(400, of_the_fix("no core was free")), (0, 100), effort=Effort.SETTING)
    placed = _order(line, replace(workers, alone_ns=400))
    assert _names(placed) == ["line"]
    assert [one.because for one in placed.rows[0].folded] == [FoldedBecause.LOAD_DECIDES]


def test_more_work_does_not_come_first_for_a_saving_that_other_programs_change() -> None:
    line = _found("line", Estimate(200, 320, 350, Method.MODEL), (0, 100))
    rewrite = _found("rewrite", Estimate(0, 300, 400, Method.MODEL), (0, 100), effort=Effort.REFACTOR)
    assert _names(_order(line, replace(rewrite, alone_ns=400))) == ["line"]
