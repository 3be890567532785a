from pathlib import Path

import numpy as np
import pytest

from tests.alternatives.subjects import training
from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.alternatives.cpus import OtherCpu, speed_by_cores
from traceadvisor.alternatives.edits import (
    MeasuredBatch,
    MoreRanks,
    OtherBatch,
    OtherGpu,
    ratio_of_links,
)
from traceadvisor.alternatives.kernels import Factors
from traceadvisor.model.whatif import Basis, Range
from traceadvisor.replay.what_if import Scenario

SAME = Range(1.0, 1.0, 1.0)


def _gpu(factor: float, rows: tuple[int, ...]) -> OtherGpu:
    factors = np.full(len(rows), factor)
    table = Factors(np.array(rows), factors, factors, factors, [Basis.BANDWIDTH] * len(rows), frozenset())
    return OtherGpu(table, 1.0, SAME, SAME)


@pytest.mark.parametrize(
    ("scenario", "kernel_us"), [(Scenario.HIGH, 400), (Scenario.EXPECTED, 2 + 399), (Scenario.LOW, 5 + 397.5)]
)
def test_the_first_microseconds_of_a_kernel_stay(scenario: Scenario, kernel_us: float, tmp_path: Path) -> None:
    graph = graph_of(training(), tmp_path)
    faster = _gpu(0.5, tuple(sorted(graph.device.row.tolist()))).applied(graph, scenario)
    assert steps_us(faster)[1] == pytest.approx(200 + kernel_us)


def test_gradients_that_nothing_hides_are_added_to_the_step(tmp_path: Path) -> None:
    # 1 MB to and fro by half at 10 GB/s takes 100 us, and 250 us where only 0.4 of the rate is reached
    edit = MoreRanks(1_000_000, 2, 10e9)
    assert steps_us(edit.applied(graph_of(training(), tmp_path), Scenario.LOW))[1] == pytest.approx(1250, abs=1)


def test_gradients_of_one_bucket_follow_the_backward_pass_in_any_case(tmp_path: Path) -> None:
    edit = MoreRanks(1_000_000, 2, 10e9)
    assert steps_us(edit.applied(graph_of(training(), tmp_path), Scenario.HIGH))[1] == pytest.approx(
        1000 + 100 / 0.9, 1e-3
    )


def test_gradients_of_many_buckets_are_hidden_but_for_the_last(tmp_path: Path) -> None:
    # 1 GiB in buckets of 25 MiB at 10 TB/s: 107 us, far less than the backward pass
    edit = MoreRanks(1 << 30, 2, 1e13)
    expected_us = (1 << 30) / 1e13 / 0.7 * 1e6 * 25 / 1024
    assert steps_us(edit.applied(graph_of(training(), tmp_path), Scenario.EXPECTED))[1] == pytest.approx(
        1000 + expected_us, abs=1
    )


def test_a_cpu_half_as_fast_takes_twice_as_long(tmp_path: Path) -> None:
    graph = OtherCpu(Range(0.5, 0.5, 0.5)).applied(graph_of(training(), tmp_path), Scenario.EXPECTED)
    assert steps_us(graph)[1] > 1150


def test_a_larger_batch_on_a_cpu_may_need_new_pages_for_large_tensors(tmp_path: Path) -> None:
    graph = graph_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100), tmp_path)
    larger = OtherBatch(2.0, on_cpu=True).applied(graph, Scenario.LOW)
    assert larger.host.work_ns.sum() / 1000 == pytest.approx(100 * 2 * 1.25, abs=0.01)
    smaller = OtherBatch(0.5, on_cpu=True).applied(graph, Scenario.HIGH)
    assert smaller.host.work_ns.sum() / 1000 == pytest.approx(100 * 0.5 / 1.25, abs=0.01)


@pytest.mark.parametrize("times", [0.25, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("kind", [OtherBatch, lambda times: MeasuredBatch(times, SAME, SAME)])
def test_the_shortest_time_is_no_longer_than_the_longest(kind: object, times: float, tmp_path: Path) -> None:
    edit = kind(times)  # type: ignore[operator]  # either kind of change
    graph = graph_of(training(), tmp_path)
    low, expected, high = (
        steps_us(edit.applied(graph, scenario))[1] for scenario in (Scenario.HIGH, Scenario.EXPECTED, Scenario.LOW)
    )
    assert low <= expected <= high


@pytest.mark.parametrize(
    ("used", "cores", "speed"),
    [
        (1.0, 8, (1.0, 1.0, 2.0)),
        (3.9, 8, (1.0, 1.414, 2.0)),
        (None, 8, (1.0, 1.414, 2.0)),
        (1.0, 1, (0.25, 1.0, 1.0)),
        (2.0, 1, (0.25, 0.5, 1.0)),
        (9.0, 1, (0.25, 0.25, 1.0)),
        (None, 1, (0.25, 0.5, 1.0)),
        (1.0, 4, (1.0, 1.0, 1.0)),
    ],
)
def test_other_cores_change_the_cpu_between_not_at_all_and_in_proportion(
    used: float | None, cores: int, speed: tuple[float, float, float]
) -> None:
    found = speed_by_cores(4.0, used, cores)
    assert (found.low, found.expected, found.high) == pytest.approx(speed, abs=0.001)


def test_a_slower_link_takes_as_recorded_or_up_to_in_proportion() -> None:
    assert ratio_of_links(20.0, 10.0) == Range(1.0, 2.0, 2.0)
    assert ratio_of_links(10.0, 40.0) == Range(0.25, 0.5, 1.0)
    assert ratio_of_links(None, 10.0) == SAME
