"""What each rule says that its fix saves of one recording."""

from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import WHOLE_SHARE, Clear, Found

Ends = dict[str, tuple[float, float]]


def ends_ns(facts: Facts) -> Ends:
    """The least and the most that each fix saves of the step, in a finding or beside a passed check, by rule."""
    found: Ends = {}
    for rule in (one for one in all_rules() if not one.umbrella):
        outcome = run_rule(rule, facts)
        if isinstance(outcome, Found) and not outcome.finding.of_run:
            found[rule.meta.id] = outcome.finding.saving.low_ns, outcome.finding.saving.high_ns
        elif isinstance(outcome, Clear) and outcome.saving_share and (outcome.judged_share or 1) >= WHOLE_SHARE:
            found[rule.meta.id] = 0.0, outcome.saving_share * (facts.step_ns or 0.0)
    return found
