"""GPU022: a step computes the same results again."""

from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run import SameCalls as Found
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen

UNKNOWN = "the capture measured these calls in other steps"

AT_TWO_LINES = Fix(
    "Keep the first result and use it again: the second of these lines computes it anew from the same inputs and "
    "parameters",
    "result = model(x)  # once, with gradients if any of its uses needs them\n"
    "without_gradients = result.detach()  # for the uses that need none",
    not_replayed=UNKNOWN,
    needs=frozenset({Part.BACKWARD, Part.LOOP, Part.MODEL}),
)
IN_ONE_FUNCTION = Fix(
    "Call this function once per step and pass its result on: its inputs and parameters stay the same until the "
    "optimizer steps",
    not_replayed=UNKNOWN,
    needs=frozenset({Part.BACKWARD, Part.LOOP, Part.MODEL}),
)


@frozen
class SameCalls(Rule):
    """A step computes the same results from the same inputs and parameters several times.

    What it finds: Operators that are called again with equal arguments: the same tensors, of which nothing changed a
        value meanwhile, and no random numbers in between. Some values of both results are compared, too. ``traceadvisor
        capture`` follows three early steps of a training without a GPU for this. A trace alone shows no values.
    Why it costs time: Each call takes as long as the first one, and with gradients its backward pass runs again.
    How to fix it: Keep the result until its inputs or parameters change. Of a generator that runs for its
        discriminator and then for itself, ``detach()`` the kept result for the discriminator. What each layer of a
        model derives from the same parameters belongs in front of the layers.
    How the saving is estimated: Upper limit: the share of the CPU time of a step in all of these calls but the longest
        one of each kind, the least of the steps that were followed. For calls with gradients, their part of the
        backward pass is added, in the proportion of the recorded backward and forward passes.
    When it may be wrong: The calls may have another effect that counts: batch norm in training mode updates its running
        statistics in each. A kept result takes memory until it is used. Calls that are the same in every step are left
        out: a script that measures itself may train on one batch only.
    """

    meta = RuleMeta("GPU022", "same-calls", "A step computes the same results again")
    needs = frozenset({Input.STEPS})
    also_saves = "a part of the forward and the backward pass, as the capture measured it in other steps"

    min_share: float = 0.05
    """Share of the step. Masks and positions that each layer makes for itself take less."""

    def check(self, facts: Facts) -> Outcome:
        found = facts.settings.same_calls
        if found is None:
            if facts.run.captured:
                return Skipped(
                    "The capture followed no calls: an earlier version, few steps, a GPU, several ranks or compiled "
                    "code."
                )
            return Skipped(facts.unknown_without("Whether calls have the same inputs is unknown", Option.CAPTURE))
        share = _share(facts, found)
        if share < self.min_share or found.first is None or found.again is None:
            return Clear("time in calls that compute the same again", share, self.min_share, Unit.SHARE)
        is_one = found.first == found.again
        return finding_of(
            facts,
            fix=IN_ONE_FUNCTION if is_one else AT_TWO_LINES,
            most_share=share,
            effort=Effort.LINE,
            evidence=(
                Evidence("time in calls that compute the same again", found.step_share, Unit.SHARE),
                Evidence("the part of it with gradients each time", found.gradient_share, Unit.SHARE),
                Evidence("operators called again per step", found.call_count, Unit.COUNT),
                Evidence("steps in which this was measured", found.step_count, Unit.COUNT),
            ),
            locations=(found.again,) if is_one else (found.again, found.first),
            caveats=("Batch norm in training mode updates its running statistics once per call.",),
        )


def _share(facts: Facts, found: Found) -> float:
    """Return the share of the step that the calls take, with their part of the backward pass."""
    forward, backward = (facts.share(facts.claim(one)) for one in (Category.FORWARD, Category.BACKWARD))
    ratio = backward / forward if forward else 0.0
    return min(found.step_share + ratio * found.gradient_share, 1.0)
