"""Which findings are worth doing: the others become passed checks."""

from __future__ import annotations

from traceadvisor.facts import Facts
from traceadvisor.judging.laws import LEAST_SHOWN_SHARE
from traceadvisor.model.findings import Clear, ClearedBecause, Found, Method, RuleOutcome, Unit
from traceadvisor.replay.what_if import Edit
from traceadvisor.rules.base import Rule

WORTH_DOING_SHARE = 0.02
"""A fix is not worth doing if its highest saving is below this share of the step."""

NOTICED_SHARE = 0.0005
"""A smaller share of the step counts as no saving."""

_SAVING = "simulated saving of the fix"
_EXPECTED_SAVING = "expected saving of the fix"


def if_it_saves(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome; clear if the fix is expected to save less than 0.1% of the step.

    Where nothing recorded shows how long the GPU alone takes, a fix of its work stays a finding if it may save 2%: the
    CPU time that hides it is the profiler's in part.
    """
    if rule.umbrella or not isinstance(outcome, Found) or not facts.step_ns or not outcome.finding.saving.high_ns:
        return outcome
    saving = outcome.finding.saving
    high, expected = saving.high_ns / facts.step_ns, saving.expected_ns / facts.step_ns
    edit = outcome.finding.fix.what_if
    is_hidden = saving.reason is not None and isinstance(edit, Edit) and edit.changes_device
    if expected >= LEAST_SHOWN_SHARE or (is_hidden and high >= WORTH_DOING_SHARE):
        return outcome
    why = ClearedBecause.SAVES_LITTLE
    return Clear(_EXPECTED_SAVING, expected, LEAST_SHOWN_SHARE, Unit.SHARE, None, high, because=why)


def if_it_shortens(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome; clear if the simulation shows that the fix saves nothing, or less than 2% for a popular fix."""
    if rule.umbrella or not isinstance(outcome, Found):
        return outcome
    saving = outcome.finding.saving
    share = saving.high_ns / facts.step_ns if facts.step_ns else 1.0
    limit = WORTH_DOING_SHARE if rule.popular_fix else NOTICED_SHARE
    if saving.method is not Method.REPLAY or share >= limit:
        return outcome
    shown = share if rule.popular_fix else None
    return Clear(_SAVING, share, limit, Unit.SHARE, None, shown, because=ClearedBecause.TAKEN_OVER)
