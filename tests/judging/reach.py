"""What is wrong with a finding that claims or promises more than its fix can reach.

A claim is time of the recorded steps. The fix of a finding can save at most what vanishes with it: either the claim
covers this time, or the rule says what else the fix makes shorter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Finding, Found, Method
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import work_inside
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

NOISE_SHARE = 0.02
"""Share of the step by which a simulation may differ from the recording and still be trusted."""

UNDISTURBED_RATIO = 1.25
"""Mean undisturbed step over the mean step of a run, at most: phases of a run differ."""


MOST_ROWS = 1000
"""GPU operations to look at in a recording."""

RULES = {rule.meta.id: rule for rule in all_rules()}


@dataclass(frozen=True, slots=True)
class Violation:
    """A finding that claims or promises more than its fix can reach."""

    rule: str
    what: str
    value_ns: float
    limit_ns: float

    def __str__(self) -> str:
        return f"{self.rule} {self.what}: {self.value_ns / 1e6:.3f} ms, at most {self.limit_ns / 1e6:.3f} ms"


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedTimeGone(Edit):
    """The claimed time takes no time: device operations, host work, calls and waits, as far as they lie in it.

    Claimed device operations are not launched either. The host work before their launch is gone with them.
    """

    claims: SpanSet
    rows_start_ns: Int64
    rows_end_ns: Int64
    """Recorded start and end of all events."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten each task by its part in the claimed time."""
        host, device = graph.host, graph.device
        calls, operations = self._inside(host.row), self._inside(device.row)
        until_ns = graph.recorded_ns
        recorded_ns = self.claims.measure_until(until_ns) - self.claims.measure_until(until_ns - host.recorded_work_ns)
        waits = np.isin(host.action, (Action.WAIT, Action.WAIT_ALL, Action.FETCH)) & (recorded_ns + calls > 0)
        action = np.where(waits, np.int8(Action.NOTHING), host.action)
        held_up = (host.action == Action.LAUNCH_AND_WAIT) & (calls > 0)
        spared = (host.count > 0) & np.append(operations > 0, False)[host.first]
        changed = replace(
            host,
            work_ns=np.where(spared, 0, host.work_ns - work_inside(graph, self.claims, scenario)),
            call_ns=np.where(spared, 0, np.maximum(host.call_ns - calls, 0)),
            action=np.where(held_up, np.int8(Action.LAUNCH), action).astype(np.int8),
        )
        duration_ns = np.maximum(device.duration_ns - operations, 0)
        return replace(graph, host=changed, device=replace(device, duration_ns=duration_ns))

    def _inside(self, rows: Int64) -> Int64:
        """The part of each event in the claimed time; 0 for tasks that are no events."""
        starts, ends = np.append(self.rows_start_ns, 0)[rows], np.append(self.rows_end_ns, 0)[rows]
        inside: Int64 = np.where(
            rows == NONE, 0, self.claims.measure_until(ends) - self.claims.measure_until(np.minimum(starts, ends))
        )
        return inside


def findings(facts: Facts) -> Iterator[Finding]:
    """All findings of all rules on one recording, umbrella rules included, before they are folded."""
    for rule in all_rules():
        outcome = run_rule(rule, facts)
        if isinstance(outcome, Found):
            yield outcome.finding


def violations(facts: Facts, found: Sequence[Finding]) -> Iterator[Violation]:
    """What is wrong with some findings on one recording."""
    for finding in found:
        yield from _of_claims(facts, finding)
        yield from _of_saving(facts, finding)
    if facts.replay and facts.step_ns:
        edits = [edit for one in found if isinstance(edit := one.fix.what_if, Edit) and not facts.replay.doubt(edit)]
        for scenario in Scenario:
            together_ns = facts.replay.saving_share(edits, scenario) * facts.step_ns
            if together_ns > facts.step_ns:
                yield Violation("all rules", "saved together", together_ns, facts.step_ns)


def _of_claims(facts: Facts, finding: Finding) -> Iterator[Violation]:
    """Claims outside the steps, or in categories that the rule does not name."""
    rule, claims = finding.rule.id, finding.claims
    outside = claims - facts.steps.kept_windows
    if outside:
        yield Violation(rule, "claimed outside the steps", outside.total_ns, 0)
    foreign = (claims & facts.steps.kept_windows) - facts.claim(*RULES[rule].claims)
    for category in Category:
        part = foreign & facts.claim(category)
        if part:
            yield Violation(rule, f"claimed of {category.value}", part.total_ns, 0)


def shared_claims(facts: Facts, finding: Finding) -> SpanSet:
    """Claimed instants at which an operation runs that the finding leaves out."""
    events, claims = facts.trace.events, finding.claims
    kinds = {kind: category for category, of_kind in DEVICE_PRECEDENCE for kind in of_kind}
    found = SpanSet.empty()
    rows = facts.shared_time.rows
    for row in rows[:: 1 + rows.size // MOST_ROWS].tolist():
        own = SpanSet.of((int(events.start_ns[row]), int(events.end_ns[row])))
        exposed = own & facts.partition[kinds[Kind(events.kind[row])]] & facts.steps.kept_windows
        decisive = exposed - facts.shared_time.spans or exposed
        if not decisive or (decisive & claims).total_ns < 0.99 * decisive.total_ns:
            found |= own & claims & facts.shared_time.spans
    return found


def _of_saving(facts: Facts, finding: Finding) -> Iterator[Violation]:
    """Savings of more than the step, of more than the claimed time, or of more than its removal saves."""
    rule, saving, step_ns = finding.rule.id, finding.saving, facts.step_ns or 0.0
    noise_ns = max(NOISE_SHARE, facts.replay.gate.wrong_share if facts.replay else 0.0) * step_ns
    whole_ns = finding.whole_ns or step_ns
    run = facts.run.time
    most_ns = UNDISTURBED_RATIO * run.total_ns / run.training_steps if run and run.training_steps else whole_ns
    if finding.whole_ns and whole_ns > most_ns:
        yield Violation(rule, "the whole of which a share is saved", whole_ns, most_ns)
    if saving.high_ns > whole_ns * (1 + 1e-9):
        yield Violation(rule, "saved of the whole step", saving.high_ns, whole_ns)
    what_if = finding.fix.what_if
    if saving.method is Method.REPLAY and isinstance(what_if, Edit) and facts.replay:
        left_ns = _untouched_ns(facts.replay.graph, what_if) / max(facts.replay.baseline_ns, 1.0) * step_ns
        if saving.high_ns > step_ns - left_ns + noise_ns:
            yield Violation(rule, "saved of what the fix touches", saving.high_ns, step_ns - left_ns)
    if RULES[rule].also_saves:
        return
    # Claims of longer recorded steps are not scaled down: they may be parts that recording did not make longer.
    recorded_ns = facts.typical.duration_ns if facts.typical else 0.0
    claimed_ns = facts.per_step_ns(finding.claims) * max(step_ns / recorded_ns if recorded_ns else 1.0, 1.0)
    claimed_ns = min(claimed_ns, step_ns or float("inf"))
    if saving.high_ns > claimed_ns + noise_ns and saving.method is not Method.REPLAY:
        yield Violation(rule, "saved, as an upper limit, of claimed time", saving.high_ns, claimed_ns)
    if saving.method is Method.REPLAY and facts.replay:
        events = facts.trace.events
        claims = finding.claims | facts.shared_time.spans  # a simulation shows what other work then takes
        gone = ClaimedTimeGone(claims, events.start_ns, events.end_ns)
        most_ns = facts.replay.saving_share((gone,), Scenario.EXPECTED) * step_ns
        if saving.expected_ns > most_ns + noise_ns:
            yield Violation(rule, "saved, simulated, of what its claimed time saves", saving.expected_ns, most_ns)


def _untouched_ns(graph: StepGraph, edit: Edit) -> float:
    """Mean time per step of the busiest stream in operations that the fix leaves as they are."""
    edited = edit.applied(graph, Scenario.HIGH)
    same = (edited.device.duration_ns == graph.device.duration_ns) & (edited.device.stream == graph.device.stream)
    interior = slice(1, -1) if graph.step_count > 2 else slice(None)
    steps = list(range(graph.step_count))[interior]
    counted = same & np.isin(graph.device.step, steps)
    busy = np.bincount(graph.device.stream[counted], weights=graph.device.duration_ns[counted])
    return float(busy.max(initial=0.0)) / max(len(steps), 1)
