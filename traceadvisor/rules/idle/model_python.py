"""Python and NumPy code inside of modules, in a training without a GPU: work that no operator of torch does."""

from __future__ import annotations

from dataclasses import replace

from traceadvisor.analysis.operators.user_functions import UserFunction, user_functions
from traceadvisor.analysis.sampled.shares import lines_in_function, share_in_function
from traceadvisor.model.findings import Effort, Estimate, Fix, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Outcome, finding_of
from traceadvisor.rules.idle.python_fixes import waits_for
from traceadvisor.rules.operator_sizes import operators_in

TITLE = "Python or NumPy code inside the model slows down the step"
UNKNOWN = "how long operators of torch take for this work is unknown"
OF_MODEL = Fix.conditional(
    "If this work depends on the batch alone, do it once per sample before the training, or in the loader's workers. "
    "If it goes through numbers one by one, do it with torch's operators on whole tensors",
)

MOST_OF_PYTHON = 0.75
"""Share of the Python time inside of modules from which one function is its place."""

PURE_SHARE = 0.9
"""Share of a function's time without operators from which it does little else, so that all of it can go."""

LEAST_LINE_SHARE = 0.2
"""Share of the function's samples from which a line is named."""


def python_in_model(facts: Facts, plain: SpanSet, beside: SpanSet, min_share: float) -> Outcome | None:
    """Find a function of the script in which the model waits for code without operators, by samples as well.

    ``plain``: long stretches without operators inside of modules; more than all ``beside`` these, and than what lies
    between small operators.
    """
    between = facts.claim(Category.OTHER_HOST) - plain - beside
    if facts.share(plain) < max(min_share, facts.share(beside), facts.share(between)):
        return None
    if (own := _own_function(facts, plain)) is None or waits_for(facts, plain) is not None:
        return None
    claims = plain & own.spans
    part = claims.total_ns / max(own.whole.total_ns, 1)
    sampled = share_in_function(facts.run.stack_samples, own.location)
    if sampled is None or facts.step_ns is None:
        return None
    sampled = sampled.times(part * facts.timing.rest_share)
    if sampled.share < min_share:
        return None
    most_share = max(sampled.high, facts.share(claims))  # a loop that keeps the interpreter is sampled too rarely
    rows = operators_in(facts, own.spans)
    operators = {facts.trace.names[one].removeprefix("aten::") for one in facts.trace.events.name_id[rows].tolist()}
    every = lines_in_function(facts.run.stack_samples, own.location, 0.0, operators)
    least = LEAST_LINE_SHARE * sum(one.samples or 0 for one in every)
    lines = tuple(one for one in every if (one.samples or 0) >= least) or every[:1]
    return finding_of(
        facts,
        claims=claims,
        title=TITLE,
        fix=OF_MODEL,
        saving=Estimate.bound(most_share * facts.step_ns, of_the_fix(UNKNOWN)),
        effort=Effort.REFACTOR,
        evidence=(
            facts.time_per_step("time without operators in this function", claims),
            facts.known("share of undisturbed steps in this function", sampled.share, Unit.SHARE),
        ),
        locations=lines or (replace(own.location, owner=None),),
        caveats=("Stack recording slows down Python: trust the share of undisturbed steps.",),
    )


def _own_function(facts: Facts, plain: SpanSet) -> UserFunction | None:
    """The function of the script that holds most of some time: the outermost with little else, or the innermost."""
    found = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    own = [one for one in found if (one.spans & plain).total_ns >= MOST_OF_PYTHON * plain.total_ns]
    pure = [one for one in own if (one.spans & plain).total_ns >= PURE_SHARE * one.whole.total_ns]
    if pure:
        return max(pure, key=lambda one: one.spans.total_ns)
    return min(reversed(own), key=lambda one: one.spans.total_ns, default=None)
