from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tests.build_report import loader_finding, one_recording
from traceadvisor.facts import Facts
from traceadvisor.judging.popular_fixes import not_worth_doing
from traceadvisor.model.findings import Clear, Finding, Found, RuleMeta, Skipped, Unit
from traceadvisor.model.report import NotWorthDoing, OutcomeRow
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


def _clear(share: float, *, saving_share: float | None = None, not_replayed: str | None = None) -> Clear:
    return Clear("a cost", share, 0.05, Unit.SHARE, saving_share=saving_share, not_replayed=not_replayed)


def _found(rule: Rule) -> OutcomeRow:
    return OutcomeRow(rule.meta, (RECORDING.id,), Found(replace(loader_finding(), rule=rule.meta)))


def _told(clear: Clear, *others: OutcomeRow) -> tuple[NotWorthDoing, ...]:
    rows = (OutcomeRow(Popular.meta, (RECORDING.id,), clear), *others)
    return not_worth_doing([Popular(), Other(), Refining()], rows, [RECORDING])


def test_the_same_of_several_recordings_is_said_once_with_the_largest_share() -> None:
    recordings = [replace(RECORDING, id=name) for name in ("a", "b")]
    rows = [OutcomeRow(Popular.meta, (name,), _clear(share)) for name, share in (("a", 0.01), ("b", 0.015))]
    (row,) = not_worth_doing([Popular()], rows, recordings)
    assert (row.what, row.saving_share, row.recording_ids) == ("A popular fix", 0.015, ("a", "b"))


@pytest.mark.parametrize("clear", [_clear(0.0), _clear(0.02), _clear(0.01, saving_share=0.03)])
def test_what_does_not_occur_and_what_may_gain_more_is_not_mentioned(clear: Clear) -> None:
    assert _told(clear) == ()


def test_without_a_replay_all_of_what_it_is_about_is_the_most() -> None:
    (row,) = _told(_clear(SHARE, not_replayed="nothing was recorded"))
    assert row.reason == (
        "Only this much of a step is there for it to remove: a cost. Not replayed: nothing was recorded."
    )


@pytest.mark.parametrize(("saving_share", "how_much"), [(0.0, "no"), (0.0004, "no"), (0.003, "hardly")])
def test_with_a_replay_it_is_told_what_became_of_the_step(saving_share: float, how_much: str) -> None:
    (row,) = _told(_clear(SHARE, saving_share=saving_share))
    assert row.reason == f"Replayed with this change, the step is {how_much} shorter."


def test_what_other_work_takes_the_place_of_may_be_worth_doing_after_the_findings() -> None:
    (row,) = _told(_clear(0.04, saving_share=0.009), _found(Other()))
    taken = "Replayed with this change, the step is hardly shorter: other work takes the place of what it removes."
    assert row.reason == f"{taken} It may be worth doing once the findings are dealt with."


def test_without_findings_there_is_nothing_to_do_before() -> None:
    (row,) = _told(_clear(0.04, saving_share=0.009))
    assert row.reason.endswith("other work takes the place of what it removes.")


def test_what_a_finding_says_more_of_is_not_called_useless_beside_it() -> None:
    assert _told(_clear(SHARE), _found(Refining())) == ()


def test_of_one_step_or_two_nothing_is_called_useless() -> None:
    row = OutcomeRow(Popular.meta, (RECORDING.id,), _clear(SHARE))
    short = replace(RECORDING, steps=tuple(step for step in RECORDING.steps if step.step.kept)[:2])
    assert not_worth_doing([Popular()], [row], [short]) == ()
