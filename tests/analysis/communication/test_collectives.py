from __future__ import annotations

from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.communication.collectives import collective_calls, host_collective_rows, message_sizes


def _steps() -> TraceBuilder:
    """Two steps of 100 us, each with a kernel and a collective; one more collective between them."""
    builder = TraceBuilder()
    for number, at in ((3, 0), (4, 150)):
        builder.step(number, at, at + 100).launch(at, at + 1, kernel=(at + 2, at + 20))
        builder.collective(at + 5, at + 6, kernel=(at + 20, at + 50), message=(256, "Float"))
    return builder.collective(110, 111, kernel=(112, 120))


def test_collectives_of_the_device_are_given_by_step(tmp_path: Path) -> None:
    facts = facts_of(_steps(), tmp_path)
    calls = collective_calls(facts.observation, facts.steps)
    assert calls.step.tolist() == [3, 4]
    assert calls.start_ns.tolist() == [20_000, 170_000]
    assert calls.duration_ns.tolist() == [30_000, 30_000]


def test_without_a_device_they_are_the_hosts(tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).op("aten::mm", 0, 10).annotation("gloo:all_reduce", 20, 60, thread=9)
    facts = facts_of(builder.annotation("Gloo:barrier", 120, 130, thread=9).annotation("eval", 70, 80), tmp_path)
    assert host_collective_rows(facts.trace).size == 2
    calls = collective_calls(facts.observation, facts.steps)
    assert (calls.step.tolist(), calls.start_ns.tolist()) == ([7], [20_000])


def test_messages_have_a_size_where_it_was_recorded(tmp_path: Path) -> None:
    facts = facts_of(_steps(), tmp_path)
    rows, sent_bytes = message_sizes(facts.trace, facts.launches, facts.tree)
    assert sent_bytes.tolist() == [1024, 1024]
    assert facts.trace.events.start_ns[rows].tolist() == [20_000, 170_000]
