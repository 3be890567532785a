"""What is the same for every task of a recording, measured and assumed."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.events import NONE
from traceadvisor.replay.step_graph import Action


def test_each_constant_is_measured_where_the_recording_has_a_case_of_it(tmp_path: Path) -> None:
    # Started 3 us after a call of 4, followed after 2 us by a queued kernel; a wait returns 6 us after that.
    builder = TraceBuilder().step(0, 0, 200).launch(0, 4, kernel=(7, 100)).launch(10, 14, kernel=(102, 110))
    constants = graph_of(builder.sync(20, 116), tmp_path).constants
    assert (constants.launch_latency_ns, constants.queued_gap_ns) == (3_000, 2_000)
    assert (constants.launch_call_ns, constants.wait_call_ns) == (4_000, 6_000)


def test_without_a_case_the_default_constants_apply(tmp_path: Path) -> None:
    # A copy, and no kernel: launched long before it starts, followed and waited for by nothing.
    builder = TraceBuilder().step(0, 0, 400).copy(0, 4, on_device=(300, 310), pinned=True)
    constants = graph_of(builder, tmp_path).constants
    assert (constants.launch_latency_ns, constants.queued_gap_ns) == (2_000, 1_000)
    assert (constants.launch_call_ns, constants.wait_call_ns) == (5_000, 7_000)


@pytest.mark.parametrize(("start", "latency_ns"), [(103.9, 99_900), (104, 2_000)])
def test_an_operation_that_starts_100_us_after_its_launch_waited(start: float, latency_ns: int, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 200).launch(0, 4, kernel=(start, 150))
    assert graph_of(builder, tmp_path).constants.launch_latency_ns == latency_ns


@pytest.mark.parametrize(("end", "gap_ns"), [(34, 1_000), (34.1, 5_000)])
def test_a_kernel_is_queued_where_its_launch_returned_20_us_before_the_one_ahead_ended(
    end: float, gap_ns: int, tmp_path: Path
) -> None:
    builder = TraceBuilder().step(0, 0, 200).launch(0, 4, kernel=(7, end)).launch(10, 14, kernel=(end + 5, 60))
    assert graph_of(builder, tmp_path).constants.queued_gap_ns == gap_ns


@pytest.mark.parametrize(("launches", "step_us"), [(1022, 21_000), (1023, 25_000)])
def test_a_launch_stalls_where_1022_are_in_flight(launches: int, step_us: float, tmp_path: Path) -> None:
    """Launches of 1 us behind a kernel of 5 ms; then 20 ms of host work and a last kernel."""
    builder = TraceBuilder().step(0, 0, launches + 20_001).launch(0, 1, kernel=(2, 5_000), name="long")
    for number in range(1, launches):
        builder.launch(number, number + 1, kernel=(5_000 + number / 100, 5_000.005 + number / 100))
    builder.launch(launches + 20_000, launches + 20_001, kernel=(launches + 20_002, launches + 20_003))
    assert steps_us(graph_of(builder, tmp_path))[0] == pytest.approx(step_us, rel=0.01)


@pytest.mark.parametrize(("returned", "is_waited_for"), [(95, True), (94.9, False)])
def test_a_wait_is_for_what_ends_up_to_5_us_after_its_return(
    returned: float, tmp_path: Path, *, is_waited_for: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 200).launch(0, 4, kernel=(7, 100)).sync(20, returned)
    host = graph_of(builder, tmp_path).host
    waiting = host.first[host.action == Action.WAIT].tolist()
    assert waiting == ([0] if is_waited_for else [NONE] if waiting else [])
