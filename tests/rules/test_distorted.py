"""Savings on recordings whose steps took far longer than undisturbed ones: limits that fit an undisturbed step."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Effort, Fix
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.savings.estimates import Reach, estimated
from traceadvisor.savings.interval import most_undisturbed_ns
from traceadvisor.savings.outcomes import finding_of

US = 1000
NOTHING = SpanSet.empty()


def _facts(folder: Path, undisturbed_us: float, loader_us: float = 10, recorded_loader_us: float = 20) -> Facts:
    """Five recorded steps of 100 us, of which 20 us in the loader; undisturbed steps take less."""
    builder = TraceBuilder()
    for number in range(5):
        start = 100 * number
        builder.step(number + 41, start, start + 100).loader(start, start + 20).op("aten::mm", start + 20, start + 60)
    steps = [
        TimedStep(number, 10**18 + number, round(undisturbed_us * US), round(loader_us * US), 1, StepState.PLAIN)
        for number in range(41)
    ]
    steps += [
        TimedStep(number, 10**18 + number, 100 * US, round(recorded_loader_us * US), 1, StepState.RECORDED)
        for number in range(41, 46)
    ]
    return Captured(builder, folder).with_run(steps=tuple(steps)).simulated_facts()


def test_a_saving_is_not_simulated_and_at_most_what_fits_in_the_undisturbed_step_outside_its_loader(
    tmp_path: Path,
) -> None:
    facts = _facts(tmp_path, undisturbed_us=25)
    # 15 us are outside the loader. The other 40 us of the recorded step took at least a twelfth of that.
    assert most_undisturbed_ns(facts, 40 * US, NOTHING) == pytest.approx((15 - 40 / 12) * US)
    assert facts.replay is not None
    assert facts.replay.gate.doubt == facts.replay.gate.device_doubt == Reason(Doubt.DISTORTED, 4.0)


def test_a_small_part_of_a_recorded_step_is_not_scaled_down(tmp_path: Path) -> None:
    # It may be a part that recording did not make longer.
    assert most_undisturbed_ns(_facts(tmp_path, undisturbed_us=25), 5 * US, NOTHING) == pytest.approx(5 * US)


def test_time_in_the_loader_is_that_of_undisturbed_steps(tmp_path: Path) -> None:
    facts = _facts(tmp_path, undisturbed_us=25)
    waits = facts.claim(Category.DATA_WAIT)
    assert most_undisturbed_ns(facts, facts.per_step_ns(waits), waits) == pytest.approx(10 * US)
    fix = Fix("load faster", what_if=NoDataWait())
    found = estimated(finding_of(facts, claims=waits, fix=fix, effort=Effort.LINE, evidence=()), facts, Reach())
    assert found.saving.high_ns <= 10 * US
    assert found.saving.reason == Reason(Doubt.DISTORTED, 4.0)


@pytest.mark.parametrize(
    ("undisturbed_us", "distorted", "limit_us"), [(66, True, 40), (67, False, 40), (100, False, 40), (125, False, 50)]
)
def test_limits_are_not_scaled_down_however_little_steps_are_distorted(
    undisturbed_us: float, limit_us: float, tmp_path: Path, *, distorted: bool
) -> None:
    facts = _facts(tmp_path, undisturbed_us)
    assert facts.is_distorted is distorted
    assert most_undisturbed_ns(facts, 40 * US, NOTHING) == pytest.approx(limit_us * US)


@settings(max_examples=30, deadline=None)
@given(parts=st.tuples(*[st.tuples(st.integers(5, 500), st.floats(1, 3))] * 3))
def test_no_limit_is_below_the_undisturbed_time_whatever_recording_made_longer(
    tmp_path_factory: pytest.TempPathFactory, parts: tuple[tuple[int, float], ...]
) -> None:
    # Each part of the step takes its undisturbed time, and recording makes each longer by a factor of its own.
    loader_us, claimed_us, others_us = (ns for ns, _ in parts)
    recorded = [round(ns * growth) for ns, growth in parts]
    builder, steps = TraceBuilder(), []
    for number, start in enumerate(builder.steps(5, sum(recorded))):
        builder.loader(start, start + recorded[0])
        steps.append(TimedStep(number, number, sum(recorded) * US, recorded[0] * US, 1, StepState.RECORDED))
    undisturbed_us = loader_us + claimed_us + others_us
    steps += [
        TimedStep(number, number, undisturbed_us * US, loader_us * US, 1, StepState.PLAIN) for number in range(5, 46)
    ]
    facts = Captured(builder, tmp_path_factory.mktemp("facts")).with_run(steps=tuple(steps)).facts()
    waits = facts.claim(Category.DATA_WAIT)
    assert most_undisturbed_ns(facts, recorded[1] * US, NOTHING) >= claimed_us * US * (1 - 1e-9)
    assert most_undisturbed_ns(facts, recorded[0] * US, waits) >= 0.99 * loader_us * US
