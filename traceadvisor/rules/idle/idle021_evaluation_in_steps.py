"""IDLE021: each training step runs the model in evaluation mode."""

from __future__ import annotations

import re

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.user_functions import UserFunction, user_functions
from traceadvisor.analysis.sampled.shares import lines_in_function, share_in_function
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Effort, Estimate, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

DOUBT = "how often the training needs this is unknown"
LESS_OFTEN = Fix.conditional(
    "If this evaluates the model, do so less often, such as every hundred steps, or on less data. If it makes data for "
    "the training, only faster code saves time",
    needs=frozenset({Part.BACKWARD, Part.MODEL}),
)

_EVAL = re.compile(r"torch/nn/modules/module\.py\(\d+\): eval$")

MOST_STEPS = 0.5
"""Part of the steps from which on a function belongs to each of them. Fewer are slow steps, which IDLE006 judges."""

LEAST_LINE_SHARE = 0.2
"""Share of the function's samples from which a line is named."""


@frozen
class EvaluationInSteps(Rule):
    """A function that runs the model in evaluation mode is called in each training step.

    What it finds: A function of the script, called in at least half of the recorded steps, that sets modules to
        evaluation by ``eval()`` and makes no graph for the backward pass.
    Why it costs time: It adds forward passes and metrics to each step, and changes no weight.
    How to fix it: Evaluate every hundred steps or once per epoch, or on a part of the data.
    How the saving is estimated: The share of the function in samples of undisturbed steps, at most, or else in recorded
        steps. The report states this time and promises no saving.
    When it may be wrong: The training may need the results in each step, such as pseudo-labels or a rollout.
    """

    meta = RuleMeta("IDLE021", "evaluation-in-steps", "Each training step runs the model in evaluation mode")
    needs = frozenset({Input.STEPS, Input.STACKS})
    claims = frozenset(Category)
    refines = frozenset({"GPU021", "IDLE001", "IDLE004"})

    min_share: float = 0.1
    """Share of the step. Less is worth the early notice of a training that goes wrong."""

    def check(self, facts: Facts) -> Outcome:
        if facts.workload is not Workload.TRAINING:
            return Skipped("The recording shows no training.")
        found = _evaluation(facts)
        share = facts.share(found.spans) if found else 0.0
        if found is None or share < self.min_share:
            return Clear("time in functions that evaluate", share, self.min_share, Unit.SHARE)
        sampled = share_in_function(facts.run.stack_samples, found.location)
        sampled = sampled.times(facts.timing.rest_share) if sampled else None
        return finding_of(
            facts,
            claims=found.spans,
            fix=LESS_OFTEN,
            saving=Estimate.bound((sampled.high if sampled else share) * (facts.step_ns or 0.0), of_the_fix(DOUBT)),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in this function", found.spans),
                facts.known("share of undisturbed steps in it", sampled.share if sampled else None, Unit.SHARE),
            ),
            locations=(
                found.location,
                *lines_in_function(facts.run.stack_samples, found.location, LEAST_LINE_SHARE),
            ),
        )


def _evaluation(facts: Facts) -> UserFunction | None:
    """The outermost function that evaluates in most steps; None without one."""
    calls, least = facts.trace.python_calls, MOST_STEPS * max(facts.step_count, 1)
    is_eval = name_mask(facts.trace.names, _EVAL.search)[calls.name_id]
    starts_ns: Int64 = calls.start_ns[is_eval]
    if not starts_ns.size:
        return None
    return next(
        (
            one
            for one in user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
            if not one.backward and len(one.spans) >= least and one.spans.contains(starts_ns).sum() >= least
        ),
        None,
    )
