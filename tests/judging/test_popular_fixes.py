from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tests.build_report import loader_finding, one_recording
from traceadvisor.facts import Facts
from traceadvisor.judging.popular_fixes import not_worth_doing
from traceadvisor.judging.run_rule import Judged
from traceadvisor.model.findings import Clear, Finding, Found, RuleMeta, Skipped, Unit
from traceadvisor.model.report import NotWorthDoing
from traceadvisor.model.saving import Reason, of_the_fix
from traceadvisor.rendering.words import small_saving_words
from traceadvisor.rules.base import Rule

RECORDING = one_recording().recordings[0]
SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Popular(Rule):
    """Has a popular fix."""

    meta = RuleMeta("DATA900", "popular", "Popular")
    popular_fix: ClassVar[str | None] = "A popular fix"

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Other(Popular):
    """Finds something else."""

    meta = RuleMeta("DATA901", "other", "Other")
    popular_fix = None


@dataclass(frozen=True, slots=True)
class Refining(Other):
    """Says more of the same time."""

    meta = RuleMeta("DATA902", "refining", "Refining")
    refines = frozenset({"DATA900"})


def _clear(share: float, *, saving_share: float | None = None, doubt: Reason | None = None) -> Clear:
    return Clear("a cost", share, 0.05, Unit.SHARE, saving_share=saving_share, doubt=doubt)


def _found(rule: Rule) -> Judged:
    return Judged(rule.meta.id, (RECORDING.id,), Found(replace(loader_finding(), rule=rule.meta)))


def _told(clear: Clear, *others: Judged) -> tuple[NotWorthDoing, ...]:
    rows = (Judged(Popular.meta.id, (RECORDING.id,), clear), *others)
    return not_worth_doing([Popular(), Other(), Refining()], rows, [RECORDING])


def test_several_recordings_are_one_row_with_the_largest_share() -> None:
    recordings = [replace(RECORDING, id=name) for name in ("a", "b")]
    rows = [Judged(Popular.meta.id, (name,), _clear(share)) for name, share in (("a", 0.01), ("b", 0.015))]
    (row,) = not_worth_doing([Popular()], rows, recordings)
    assert (row.what, row.saving_share, row.recording_ids) == ("A popular fix", 0.015, ("a", "b"))


@pytest.mark.parametrize("clear", [_clear(0.0), _clear(0.02), _clear(0.01, saving_share=0.03)])
def test_absent_costs_and_larger_savings_are_not_listed(clear: Clear) -> None:
    assert _told(clear) == ()


def test_without_a_simulation_the_whole_cost_is_the_upper_limit() -> None:
    (row,) = _told(_clear(SHARE, doubt=of_the_fix("nothing was recorded")))
    assert small_saving_words(row.reason) == (
        "The fix removes at most this share of the step: a cost. Not simulated: nothing was recorded."
    )


@pytest.mark.parametrize(
    ("saving_share", "effect"),
    [
        (0.0, "does not shorten the step"),
        (0.0004, "does not shorten the step"),
        (0.003, "shortens the step by less than 2%"),
    ],
)
def test_with_a_simulation_the_reason_names_its_effect(saving_share: float, effect: str) -> None:
    (row,) = _told(_clear(SHARE, saving_share=saving_share))
    assert small_saving_words(row.reason) == f"In the simulation, this fix {effect}."


def test_a_fix_replaced_by_other_work_may_help_after_the_findings() -> None:
    (row,) = _told(_clear(0.04, saving_share=0.009), _found(Other()))
    assert small_saving_words(row.reason) == (
        "In the simulation, other work takes the place of the removed time. Check it again after fixing the findings."
    )


def test_without_findings_the_reason_does_not_mention_them() -> None:
    (row,) = _told(_clear(0.04, saving_share=0.009))
    assert small_saving_words(row.reason).endswith("other work takes the place of the removed time.")


def test_a_fix_with_a_more_specific_finding_is_not_listed() -> None:
    assert _told(_clear(SHARE), _found(Refining())) == ()


def test_recordings_of_one_or_two_steps_are_ignored() -> None:
    row = Judged(Popular.meta.id, (RECORDING.id,), _clear(SHARE))
    short = replace(RECORDING, steps=tuple(step for step in RECORDING.steps if step.step.kept)[:2])
    assert not_worth_doing([Popular()], [row], [short]) == ()


@pytest.mark.parametrize(("judged_share", "is_listed"), [(None, True), (0.95, True), (0.94, False)])
def test_a_check_of_only_part_of_the_kernels_sets_no_limit(judged_share: float | None, *, is_listed: bool) -> None:
    assert bool(_told(replace(_clear(SHARE), judged_share=judged_share))) is is_listed
