"""The laws hold on every recording at hand, on trainings by chance, and on damaged recordings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.few import few
from tests.fuzz.case import Group, make_case
from tests.fuzz.subjects import built, laid_out
from tests.judging.reach import RULES, findings, shared_claims
from tests.judging.test_reach import of_origin, recorded
from tests.recordings.advice import Label, Origin, folder_of
from tests.recordings.generated.chance import training_by_chance
from tests.rules.judging import facts_of
from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.containers import LONG_GAP_NS, container_rows, long_call_time
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import judge
from traceadvisor.judging.ranking import Simulation
from traceadvisor.model.arrays import without
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.savings.interval import distortion_of

NOISE = 0.02
"""Share of the step."""

SEEDS, DAMAGED = range(0, 60, 3), range(40)


def broken(facts: Facts) -> Iterator[str]:
    """What breaks a law on one recording."""
    for finding in findings(facts):
        rule = finding.rule.id
        if shared_claims(facts, finding):
            yield f"{rule} claims time in which other operations run"
        edit = finding.fix.what_if
        if isinstance(edit, FasterKernels) and facts.device_work.row is None:
            others = without(
                edit.rows[edit.expected > 1], facts.device_work.plain_kernels
            )  # plain ones are not needed at all
            yield from (f"{rule} expects faster kernels by an unknown rate" for _ in others[:1])
    yield from _too_much(facts)
    backward = facts.observation.backward.together()
    if plain_python(facts.observation, 1) & backward:
        yield "the training thread runs Python while it waits for the backward pass"
    events, calls = facts.trace.events, facts.trace.events.rows(Kind.RUNTIME)
    short = events.spans(calls[events.duration_ns[calls] < LONG_GAP_NS])
    for row in container_rows(facts.trace).tolist():
        inside = SpanSet.of((int(events.start_ns[row]), int(events.end_ns[row])))
        if not (inside - short).lasting(LONG_GAP_NS) and long_call_time(facts.observation) & inside:
            yield "compiled code with small gaps is one long call"


def _too_much(facts: Facts) -> Iterator[str]:
    """Savings that leave less than what remains of the step, alone or together as a report prints them."""
    replay, step_ns = facts.replay, facts.step_ns
    if replay is None or not step_ns:
        return
    joint, distorted = Simulation(facts, replay, RULES), distortion_of(facts)
    edits, printed, wrong = [], 0.0, replay.gate.wrong_share + 1e-6
    for row in judge(facts).findings:
        edit, further = joint.edit_of(row.finding), row.further_saving or row.finding.saving
        if edit is None:
            continue
        if row.finding.saving.high_ns > (joint.most_share((edit,)) + wrong + NOISE) * step_ns and not distorted:
            yield f"{row.finding.rule.id} leaves less than what remains of the step"
        edits.append(edit)
        printed += (further.high_ns if further.is_limit else further.expected_ns) / step_ns
        if len(edits) > 1 and further.high_ns and printed > joint.most_share(edits) + wrong + NOISE:
            yield f"the savings down to {row.finding.rule.id} leave less than what remains of the step"


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("label", of_origin(Origin.REAL), ids=lambda label: label.path)
def test_laws_hold_on_real_recordings(label: Label, shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    assert [one for facts in recorded(folder_of(label)) for one in broken(facts)] == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_laws_hold_on_recordings_from_elsewhere(shared_traces: Path) -> None:
    paths = sorted((shared_traces / "others").iterdir())
    assert len(paths) >= 8
    assert [(path.name, one) for path in paths for facts in recorded(path) for one in broken(facts)] == []


@pytest.mark.parametrize("seed", few(SEEDS, "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"))
def test_laws_hold_on_trainings_by_chance(seed: int, tmp_path: Path) -> None:
    assert list(broken(facts_of(training_by_chance(seed).trace, tmp_path))) == []


@pytest.mark.parametrize("number", few(DAMAGED, "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"))
def test_laws_hold_on_damaged_recordings(number: int, tmp_path: Path) -> None:
    case = make_case((Group(1, (*built(), *laid_out())),), 24, number)
    try:
        read = list(recorded(case.write(tmp_path)))
    except TraceAdvisorError:
        return
    assert [one for facts in read if facts.steps.kept for one in broken(facts)] == []
