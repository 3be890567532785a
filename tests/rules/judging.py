"""Runs one rule on a built trace, as the engine does."""

from pathlib import Path

from tests.build import TraceBuilder
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.findings import Clear, Finding, Found, Skipped
from traceadvisor.rules.base import Rule


def facts_of(builder: TraceBuilder, folder: Path) -> Facts:
    """The facts of a built trace, on device 0 where it has device work."""
    return as_far_as_simulated(simulated_facts(builder, folder))


def simulated_facts(builder: TraceBuilder, folder: Path) -> Facts:
    """The same, simulated whatever the simulation explains."""
    trace = builder.trace(folder)
    has_device = trace.events.rows(*DEVICE_WORK).size > 0
    return Facts(trace, 0 if has_device else None, "run/worker0")


def as_far_as_simulated(facts: Facts) -> Facts:
    """The facts; without a simulation where a few built events do not explain the step: a rule then tells its limit."""
    gate = facts.replay.gate if facts.replay else None
    if gate and (gate.doubt or (gate.device_doubt and facts.observation.has_device)):
        vars(facts)["replay"] = None
    return facts


def finding(rule: Rule, builder: TraceBuilder, folder: Path) -> Finding:
    """What the rule finds; fails where it finds nothing."""
    outcome = run_rule(rule, facts_of(builder, folder))
    assert isinstance(outcome, Found), outcome
    return outcome.finding


def clear(rule: Rule, builder: TraceBuilder, folder: Path) -> Clear:
    """The figure with which the rule is clear; fails where it is not."""
    outcome = run_rule(rule, facts_of(builder, folder))
    assert isinstance(outcome, Clear), outcome
    return outcome


def skipped(rule: Rule, builder: TraceBuilder, folder: Path) -> str:
    """Why the rule could not look; fails where it could."""
    outcome = run_rule(rule, facts_of(builder, folder))
    assert isinstance(outcome, Skipped), outcome
    return outcome.reason


def evidence(found: Finding, label: str) -> float | int | str:
    """The value of the one evidence row whose label begins like this."""
    values = [row.value for row in found.evidence if row.label.startswith(label)]
    assert len(values) == 1, found.evidence
    return values[0]


def is_found(rule: Rule, builder: TraceBuilder, folder: Path) -> bool:
    """Whether the rule finds something; fails where it could not look."""
    outcome = run_rule(rule, facts_of(builder, folder))
    assert isinstance(outcome, Found | Clear), outcome
    return isinstance(outcome, Found)


def twice(builder: TraceBuilder, later_us: int) -> TraceBuilder:
    """The first step once more, so much later, with correlation ids of its own."""
    for first in list(builder.events):
        again = {**first, "ts": first["ts"] + later_us, "args": dict(first["args"])}
        again["name"] = first["name"].replace("ProfilerStep#0", "ProfilerStep#1")
        if "correlation" in first["args"]:
            again["args"]["correlation"] += 1_000_000
        builder.event(**again)
    return builder
