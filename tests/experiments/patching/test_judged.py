"""What rows tell about changed code."""

import pytest

from tests.experiments.patching.test_winners import ratio
from traceadvisor.experiments.journal import AnyRow, Failed, FirstLosses, KeptApart
from traceadvisor.experiments.patching.judged import losses_of, outcome_of
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN
from traceadvisor.model.experiment import MeasuredArm
from traceadvisor.model.patch import Apart, LossMatch, PatchOutcome

ARM = "patch=my.patch"


def losses(own: tuple[float | None, ...], again: tuple[float | None, ...], changed: tuple[float | None, ...]) -> object:
    """How losses compare."""
    arms = {AS_IT_IS: own, SAME_AGAIN: again, ARM: changed}
    rows: list[AnyRow] = [FirstLosses("code", arm, found) for arm, found in arms.items()]
    return losses_of(rows).get("loss")


@pytest.mark.parametrize(
    ("own", "again", "changed", "match"),
    [
        ((2.0, 1.0), (2.0, 1.0), (2.0, 1.0), LossMatch.IDENTICAL),
        ((2.0, 1.0), (2.0, 1.0), (2.0, 1.0000001), LossMatch.WITHIN),
        ((2.0, 1.0), (2.0, 1.0), (2.9, 2.0), LossMatch.WITHIN),  # a step differs from the next by 1
        ((2.0, 1.0), (2.0, 1.0), (3.5, 2.6), LossMatch.DIFFERS),
        ((2.0, 2.0), (4.0, 4.0), (5.0, 5.0), LossMatch.WITHIN),  # the script differs from itself by 2
        ((2.0, 2.0), (2.0, 2.0), (2.01, 2.01), LossMatch.WITHIN),  # rounding
        ((2.0, 2.0), (2.0, 2.0), (2.1, 2.1), LossMatch.DIFFERS),
        ((2.0, 2.0), (2.0, 2.0), (2.0, None), LossMatch.DIFFERS),
        ((2.0, None), (2.0, None), (2.0, None), None),
        ((), (), (), None),
    ],
)
def test_losses_are_compared_with_the_script_s_own_differences(
    own: tuple[float | None, ...],
    again: tuple[float | None, ...],
    changed: tuple[float | None, ...],
    match: LossMatch | None,
) -> None:
    assert losses(own, again, changed) is match


def arm(verdict: str | None, problem: str | None = None) -> MeasuredArm:
    """A measurement of changed code."""
    return MeasuredArm(name=ARM, settings={}, measured=ratio(verdict) if verdict else None, problem=problem)


@pytest.mark.parametrize(
    ("measured", "loss", "rows", "outcome"),
    [
        (arm("faster"), LossMatch.IDENTICAL, [], PatchOutcome.FASTER),
        (arm("slower"), LossMatch.WITHIN, [], PatchOutcome.SLOWER),
        (arm("inconclusive"), LossMatch.NOT_COMPARED, [], PatchOutcome.NOT_SHOWN),
        (arm("faster"), LossMatch.DIFFERS, [], PatchOutcome.LOSS_DIFFERS),
        (arm("faster", "void"), LossMatch.IDENTICAL, [], PatchOutcome.FAILED),
        (arm(None, "failed"), LossMatch.NOT_COMPARED, [Failed("code", ARM, "ValueError")], PatchOutcome.FAILED),
        (arm(None, "the budget was spent"), LossMatch.NOT_COMPARED, [], PatchOutcome.NOT_RUN),
        (None, LossMatch.NOT_COMPARED, [], PatchOutcome.NOT_RUN),
        (arm("faster"), LossMatch.IDENTICAL, [KeptApart(Apart.NOT_LOADED, "x.py")], PatchOutcome.NOT_IN_FORCE),
    ],
)
def test_an_outcome_follows_from_the_measurement_and_the_loss(
    measured: MeasuredArm | None, loss: LossMatch, rows: list[AnyRow], outcome: PatchOutcome
) -> None:
    assert outcome_of(measured, loss, rows) is outcome
