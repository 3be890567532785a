"""What an accelerator does that is not understood silences every claim that depends on it."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.analysis.test_against_plain_reading import DEVICE, HOST, MARKS, SPAN_ENDS, Action, Draw, actions
from tests.replay.test_any_recording import facts_of_actions
from tests.shared import FORMATS, LATER_RECORDINGS
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import DEVICE_WORK, Kind
from traceadvisor.model.findings import Found
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace


def _unread(trace: Trace, kept: int) -> Trace:
    """The same recording, but every operation of the device after some of them is of an unknown category."""
    kind = trace.events.kind.copy()
    kind[trace.events.rows(*DEVICE_WORK)[kept:]] = Kind.UNREAD
    return replace(trace, events=replace(trace.events, kind=kind), unread_work=frozenset({"tpu_op"}))


def _assert_silent(facts: Facts) -> None:
    judged = judge(facts)
    assert not judged.findings
    for outcome in (run_rule(rule, facts) for rule in all_rules()):
        assert not (isinstance(outcome, Found) and outcome.finding.saving.high_ns), outcome
    claimed = facts.partition.keys() - {Category.KERNEL, Category.COMMUNICATION, Category.H2D_COPY, Category.OTHER_COPY}
    assert not any(facts.partition[one] for one in claimed - {Category.IDLE_UNKNOWN})
    assert "accelerator-unread" in {note.code for note in judged.notes}
    assert judged.rank is None


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("name", [*FORMATS[:1], *FORMATS[3:5], *LATER_RECORDINGS[1:2]])
def test_a_real_recording_of_an_unknown_accelerator_leads_to_no_claims(
    name: str, kept: int, shared_traces: Path
) -> None:
    trace = _unread(read_trace(Origin(shared_traces / name, "", "w", "")), kept)
    _assert_silent(Facts(trace, 0 if kept else None, ""))


@given(MARKS, SPAN_ENDS, actions(HOST + DEVICE))
@settings(max_examples=20)
def test_no_recording_of_an_unknown_accelerator_leads_to_claims(
    marks: list[int], span_end: int | None, acts: list[tuple[Action, Draw]]
) -> None:
    facts = facts_of_actions(marks, span_end, acts)
    trace = _unread(facts.trace, 0)
    if trace.events.rows(Kind.UNREAD).size:
        _assert_silent(Facts(trace, None, ""))
