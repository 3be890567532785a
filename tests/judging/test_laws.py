"""Every finding obeys the laws, whoever wrote its rule."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.judging.reach import violations
from tests.rules.judging import facts_of, simulated_facts
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import (
    Clear,
    ClearedBecause,
    Confidence,
    Effort,
    Estimate,
    Finding,
    Fix,
    Found,
    Input,
    Outcome,
    RuleMeta,
    Skipped,
)
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule
from traceadvisor.savings.outcomes import finding_of

US = 1_000

FINDING = Finding(
    claims=SpanSet.empty(),
    saving=Estimate.nothing(),
    confidence=Confidence.LOW,
    effort=Effort.LINE,
    evidence=(),
    fix=Fix("Use larger batches"),
)


@dataclass(frozen=True, slots=True)
class Greedy(Rule):
    """Claims all of the recording, and promises more than that."""

    meta = RuleMeta("ACME001", "greedy", "Greedy")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.DATA_WAIT})

    saving: Estimate = field(default_factory=lambda: Estimate.bound(1e12, of_the_fix("of a test")))
    of_run: bool = False

    def check(self, facts: Facts) -> Outcome:
        found = finding_of(
            facts,
            claims=SpanSet.of((0, 10_000 * US)),
            fix=Fix("Change it", not_replayed="of a test"),
            effort=Effort.LINE,
            evidence=(),
            saving=self.saving,
        )
        return replace(found, of_run=self.of_run)


@dataclass(frozen=True, slots=True)
class OnePart(Rule):
    """Gives the time of one part that its fix removes as the limit of all."""

    meta = RuleMeta("ACME002", "one-part", "One part")
    claims = frozenset({Category.DATA_WAIT})
    also_saves = "operators"

    saving: Estimate = field(default_factory=lambda: Estimate.bound(60 * US, of_the_fix("of a test")))

    def check(self, facts: Facts) -> Outcome:
        return finding_of(
            facts,
            claims=facts.claim(Category.DATA_WAIT),
            also_shortens=facts.claim(Category.IDLE_LAUNCH, Category.IDLE_HOST),
            fix=Fix("Change it", not_replayed="of a test"),
            effort=Effort.LINE,
            evidence=(),
            saving=self.saving,
        )


class Modest(Greedy):
    """Claims no time, but promises to save some."""

    __slots__ = ()
    claims = frozenset()


class _AlsoOther(Greedy):
    __slots__ = ()
    also_saves = "everything else"


def _facts(folder: Path) -> Facts:
    """Four steps of 100 us; in each, the loop waits 60 for a batch, then a kernel runs."""
    builder = TraceBuilder()
    for start in builder.steps(4, 100):
        builder.loader(start, start + 60)
        builder.op("aten::mm", start + 60, start + 70)
        builder.launch(start + 61, start + 62, kernel=(start + 63, start + 99))
        builder.sync(start + 70, start + 100)
    return facts_of(builder, folder)


def _found(rule: Rule, facts: Facts) -> Finding:
    outcome = run_rule(rule, facts)
    assert isinstance(outcome, Found), outcome
    return outcome.finding


def test_time_of_other_categories_is_left_out_of_a_claim_and_of_its_upper_limit(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    found = _found(Greedy(), facts)
    assert found.claims.total_ns == facts.claim(Category.DATA_WAIT).total_ns == 240 * US
    assert any(one.startswith("Time that this check may not claim was left out of it: kernel") for one in found.caveats)
    assert found.saving.high_ns == pytest.approx(60 * US)
    assert not list(violations_of(found, facts))


def test_a_fix_that_shortens_something_else_leaves_the_kernels_that_it_does_not_claim(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    found = _found(_AlsoOther(), facts)
    # Kernels take 36 of 100 us; 2% is the error of a trusted simulation.
    assert found.saving.high_ns == pytest.approx(66 * US)


def test_a_share_of_the_run_is_no_part_of_the_recorded_steps(tmp_path: Path) -> None:
    assert _found(Greedy(of_run=True), _facts(tmp_path)).saving.high_ns == 100 * US


@dataclass(frozen=True, slots=True)
class Named(Rule):
    """Claims the kernels of some names."""

    meta = RuleMeta("ACME002", "named", "Named")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.KERNEL})

    names: tuple[str, ...] = ("small",)
    by_hand: bool = False
    """Whether it looks at spans of events, without ``facts.exposed``."""

    def check(self, facts: Facts) -> Outcome:
        events = facts.trace.events
        rows = rows_named(facts.trace, Kind.KERNEL, lambda name: name in self.names)
        claims = events.spans(rows) if self.by_hand else facts.exposed(rows, Category.KERNEL)
        fix = Fix("Change it", not_replayed="of a test")
        return finding_of(facts, claims=claims, fix=fix, effort=Effort.LINE, evidence=())


def _two_streams(folder: Path) -> Facts:
    """Four steps of 100 us: stream 7 is busy for 90, stream 8 from 10 to 40 and from 85 to 95."""
    builder = TraceBuilder()
    for start in builder.steps(4, 100):
        builder.op("aten::mm", start, start + 9)
        builder.launch(start, start + 1, kernel=(start + 1, start + 90), name="large")
        builder.launch(start + 2, start + 3, kernel=(start + 10, start + 40), stream=8, name="small")
        builder.launch(start + 4, start + 5, kernel=(start + 85, start + 95), stream=8, name="small")
        builder.sync(start + 9, start + 100)
    return facts_of(builder, folder)


@pytest.mark.parametrize("by_hand", [False, True])
def test_time_in_which_another_kernel_runs_is_no_claim(tmp_path: Path, *, by_hand: bool) -> None:
    found = _found(Named(by_hand=by_hand), _two_streams(tmp_path))
    assert found.claims.total_ns == 4 * 5 * US
    assert found.saving.high_ns == 5 * US
    assert ("Time in which other GPU operations run, too, was left out of it." in found.caveats) is by_hand


@pytest.mark.parametrize("by_hand", [False, True])
def test_kernels_that_run_side_by_side_are_claimed_together(tmp_path: Path, *, by_hand: bool) -> None:
    assert _found(Named(("small", "large"), by_hand), _two_streams(tmp_path)).claims.total_ns == 4 * 94 * US


def _behind_the_host(folder: Path) -> Facts:
    """Six steps of 100 us in which the host always works, and launches a kernel of 10 us each 20."""
    builder = TraceBuilder()
    for start in builder.steps(6, 100):
        for at in range(start, start + 100, 20):
            builder.op("aten::mm", at, at + 20).launch(at + 1, at + 3, kernel=(at + 5, at + 15), name="small")
    return simulated_facts(builder, folder)


def test_kernels_that_the_step_does_not_wait_for_save_nothing(tmp_path: Path) -> None:
    outcome = run_rule(Named(), _behind_the_host(tmp_path))
    assert isinstance(outcome, Clear)
    assert outcome.because is ClearedBecause.SAVES_LITTLE


def test_a_small_saving_stays_as_it_is(tmp_path: Path) -> None:
    found = _found(Greedy(Estimate.bound(50 * US, of_the_fix("of a test"))), _facts(tmp_path))
    assert found.saving == Estimate.bound(50 * US, of_the_fix("of a test"))


@pytest.mark.parametrize(("expected_us", "is_found"), [(0.09, False), (0.1, True)])
def test_a_fix_that_saves_less_than_a_thousandth_of_the_step_is_no_finding(
    expected_us: float, tmp_path: Path, *, is_found: bool
) -> None:
    saving = Estimate.simulated(0, expected_us * US, 10 * US)
    outcome = run_rule(Greedy(saving), _facts(tmp_path))
    assert isinstance(outcome, Found if is_found else Clear)


def test_a_fix_that_frees_memory_is_a_finding(tmp_path: Path) -> None:
    assert _found(Greedy(Estimate.nothing()), _facts(tmp_path)).saving.high_ns == 0


@pytest.mark.parametrize(
    "saving", [Estimate.bound(65 * US, of_the_fix("of a test")), Estimate.simulated(10 * US, 20 * US, 30 * US)]
)
def test_a_higher_limit_and_a_simulation_stay(saving: Estimate, tmp_path: Path) -> None:
    assert _found(OnePart(saving), _facts(tmp_path)).saving == saving


def violations_of(finding: Finding, facts: Facts) -> list[str]:
    return [str(one) for one in violations(facts, [replace(finding, rule=RuleMeta("DATA001", "d", "D"))])]


@pytest.mark.parametrize("rule", [Modest(), Modest(of_run=True)])
def test_no_saving_is_promised_beside_an_accelerator_that_is_not_understood(rule: Rule, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).kernel(20, 30)
    builder.event(ph="X", cat="tpu_op", name="fusion", pid=1, tid=2, ts=40, dur=30, args={"device": 0})
    outcome = run_rule(rule, facts_of(builder, tmp_path))
    assert isinstance(outcome, Skipped)
    assert "tpu_op" in outcome.reason


def test_a_little_time_that_is_not_understood_is_only_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).op("aten::mm", 0, 10).kernel(20, 9_000)
    builder.event(ph="X", cat="tpu_op", name="fusion", pid=1, tid=2, ts=9_500, dur=30, args={"device": 0})
    facts = facts_of(builder, tmp_path)
    assert not facts.observation.is_unread
    assert facts.partition[Category.IDLE_UNKNOWN].total_ns == 30 * US


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        (
            Greedy(),
            [
                ("A finding claims recorded time of its own categories", "claimed time", 2500, 60),
            ],
        ),
        (
            Modest(Estimate.simulated(0, 0.01 * US, 0.05 * US)),
            [
                ("A finding claims recorded time of its own categories", "claimed time", 2500, 0),
            ],
        ),
        (
            Greedy(Estimate.bound(50 * US, of_the_fix("of a test"))),
            [("A finding claims recorded", "claimed time", 2500, 60)],
        ),
    ],
)
def test_what_a_law_takes_is_named_with_its_figure(
    rule: Greedy, taken: list[tuple[str, str, float, float]], tmp_path: Path
) -> None:
    silenced = judge(_facts(tmp_path), [rule]).silenced
    assert {(one.rule_id, one.recording_id, one.finding) for one in silenced} == {
        ("ACME001", "run/worker0", "Change it")
    }
    figures = [(one.figure, round(one.before_ns / US, 6), round(one.after_ns / US, 6)) for one in silenced]
    assert figures == [(figure, before, after) for _, figure, before, after in taken]
    assert all(one.law.startswith(law) for one, (law, *_) in zip(silenced, taken, strict=True))


def _on_an_xpu(folder: Path) -> Facts:
    call = {"ph": "X", "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch", "pid": 100, "tid": 100, "ts": 5, "dur": 1}
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).event(**call, args={"correlation": 1})
    return facts_of(builder.loader(10, 15).kernel(20, 30, correlation=1), folder)


class OfCuda(Greedy):
    """Is about what CUDA devices have."""

    __slots__ = ()
    of_cuda = True


def test_a_rule_about_what_cuda_devices_have_is_skipped_for_others(tmp_path: Path) -> None:
    silent = run_rule(OfCuda(), _on_an_xpu(tmp_path))
    assert silent == Skipped("This check is about what CUDA devices have. The recording is of XPU devices.")
    assert isinstance(run_rule(OfCuda(), _facts(tmp_path)), Found)


def test_other_rules_judge_every_accelerator(tmp_path: Path) -> None:
    assert isinstance(run_rule(Greedy(), _on_an_xpu(tmp_path)), Found)
