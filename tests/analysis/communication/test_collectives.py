from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.communication.collectives import collective_calls, host_collective_rows
from traceadvisor.model.communication import CollectiveKind, Purpose


def _steps() -> TraceBuilder:
    """Two steps of 100 us, each with a kernel and a collective; one more collective between them."""
    builder = TraceBuilder()
    for number, at in ((3, 0), (4, 150)):
        builder.step(number, at, at + 100).launch(at, at + 1, kernel=(at + 2, at + 20))
        builder.collective(at + 5, at + 6, kernel=(at + 20, at + 50), message=(256, "Float"))
    return builder.collective(110, 111, kernel=(112, 120))


def test_collectives_of_the_device_are_given_by_step(tmp_path: Path) -> None:
    facts = facts_of(_steps(), tmp_path)
    calls = collective_calls(facts.all_collectives, facts.trace, facts.steps, facts.partition)
    assert calls.step.tolist() == [3, 4]
    assert calls.start_ns.tolist() == [20_000, 170_000]
    assert calls.duration_ns.tolist() == [30_000, 30_000]


def test_without_a_device_they_are_the_hosts(tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).op("aten::mm", 0, 10).annotation("gloo:all_reduce", 20, 60, thread=9)
    facts = facts_of(builder.annotation("Gloo:barrier", 120, 130, thread=9).annotation("eval", 70, 80), tmp_path)
    assert host_collective_rows(facts.trace).size == 2
    calls = collective_calls(facts.all_collectives, facts.trace, facts.steps, facts.partition)
    assert (calls.step.tolist(), calls.start_ns.tolist()) == ([7], [20_000])


def test_messages_have_a_size_where_it_was_recorded(tmp_path: Path) -> None:
    found = facts_of(_steps(), tmp_path).collectives
    assert found.sent_bytes.tolist() == [1024, 1024]
    assert found.rows.size == 2  # the one between the steps is left out


def test_figures_are_means_per_step(tmp_path: Path) -> None:
    # 30 us and 30 us, of which the second runs beside a kernel for 10 us.
    builder = _steps().distributed(0, 4).launch(157, 158, kernel=(190, 200))
    facts = facts_of(builder, tmp_path)
    (row,) = facts.communication
    assert (row.kind, row.purpose) == (CollectiveKind.ALL_REDUCE, Purpose.BOOKKEEPING)
    assert (row.calls_per_step, row.total_ns_per_step, row.exposed_ns_per_step) == (1, 30_000, 25_000)
    assert (row.size_bytes_per_step, row.group_size) == (1024, 4)
    assert row.algorithm_bytes_per_s == pytest.approx(1024 / 30e-6)
    assert row.bus_bytes_per_s == pytest.approx(1.5 * 1024 / 30e-6)
    assert row.fastest_bus_bytes_per_s is None  # no large message


def test_an_unknown_size_leaves_bandwidths_unknown(tmp_path: Path) -> None:
    builder = _steps().collective(60, 61, kernel=(60, 70))
    (known, unknown) = sorted(facts_of(builder, tmp_path).communication, key=lambda row: row.purpose.value)
    assert known.size_bytes_per_step == 1024
    assert (unknown.size_bytes_per_step, unknown.algorithm_bytes_per_s, unknown.bus_bytes_per_s) == (None, None, None)


def test_time_in_which_two_kinds_run_belongs_to_neither(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 20))
    builder.collective(2, 3, kernel=(20, 60), args={"Collective name": "all_to_all"})
    builder.collective(4, 5, kernel=(50, 70), stream=9, args={"Collective name": "allreduce"})
    exposed = {row.kind: row.exposed_ns_per_step for row in facts_of(builder, tmp_path).communication}
    assert exposed == {CollectiveKind.ALL_TO_ALL: 30_000, CollectiveKind.ALL_REDUCE: 10_000}


def test_host_collectives_are_those_that_the_program_asked_for(tmp_path: Path) -> None:
    # Gloo runs a reduce-scatter as an all-reduce, on a thread of its own.
    builder = TraceBuilder().step(0, 0, 100).annotation("FSDP::post_backward_reduce (0)", 10, 20)
    builder.op("c10d::_reduce_scatter_base_", 11, 12).annotation("gloo:all_reduce", 30, 60, thread=9)
    found = facts_of(builder, tmp_path).collectives
    assert found.kinds == (CollectiveKind.REDUCE_SCATTER,)
    assert found.purposes == (Purpose.SHARDS,)


def test_host_collectives_without_their_operators_have_an_unknown_purpose(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("c10d::allreduce_", 1, 2).op("c10d::allreduce_", 3, 4)
    builder.annotation("gloo:all_reduce", 30, 60, thread=9)
    found = facts_of(builder, tmp_path).collectives
    assert (found.kinds, found.purposes) == ((CollectiveKind.ALL_REDUCE,), (Purpose.UNKNOWN,))


def test_launches_on_many_threads_are_found_in_their_ranges(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000)
    for thread in range(40):
        inside = thread % 2 == 0
        builder.annotation("DistributedDataParallel.forward", 10, 90 if inside else 40, thread=200 + thread)
        at = 50 + thread
        kernel = (100 + 10 * thread, 105 + 10 * thread)
        builder.collective(at, at + 1, kernel=kernel, thread=200 + thread, args={"Collective name": "broadcast"})
    found = facts_of(builder, tmp_path).collectives
    expected = tuple(Purpose.BUFFERS if n % 2 == 0 and 50 + n < 90 else Purpose.UNKNOWN for n in range(40))
    assert found.purposes == expected


def test_the_output_of_an_all_gather_follows_from_its_input(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 4)
    builder.collective(2, 3, kernel=(20, 60), args={"Collective name": "all_gather"}, message=(10, "Float"))
    assert facts_of(builder, tmp_path).collectives.size_bytes.tolist() == [160]
