"""Where the time goes in a recording without device activity."""

from pathlib import Path

import pytest

from tests.analysis.analysing import breakdown_us, facts_of
from tests.build import AUTOGRAD, TraceBuilder

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def test_each_instant_takes_the_first_that_holds(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 20).op("aten::mm", 10, 40)
    builder.op(BACKWARD, 30, 70, thread=AUTOGRAD).optimizer(60, 90).op("aten::add_", 60, 95)
    expected = {"data_wait": 20, "forward": 10 + 5, "backward": 30, "optimizer": 30, "other_host": 5}
    assert breakdown_us(builder, tmp_path) == expected


def test_operators_of_another_thread_are_not_the_forward_pass(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).op("aten::mm", 1, 40).op("aten::mm", 50, 90, thread=AUTOGRAD)
    assert breakdown_us(builder, tmp_path) == {"data_wait": 1, "forward": 39, "other_host": 60}


@pytest.mark.parametrize("name", ["gloo:all_reduce", "nccl:all_reduce", "c10d::allreduce_", "NCCL:broadcast"])
def test_a_collective_on_any_thread_is_communication(name: str, tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 100).loader(0, 1).op("aten::mm", 1, 40).annotation(name, 30, 60, thread=AUTOGRAD)
    )
    assert breakdown_us(builder, tmp_path) == {"data_wait": 1, "forward": 39, "communication": 20, "other_host": 40}


def test_a_window_is_the_mark(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 90, 120).step(1, 130, 200)
    assert [step.duration_ns for step in facts_of(builder, tmp_path).steps.steps] == [100_000, 70_000]


def test_device_totals_are_not_measured(tmp_path: Path) -> None:
    mean = facts_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 90, 120), tmp_path).mean
    assert mean is not None
    assert (mean.totals.kernel_ns, mean.totals.h2d_copy_ns, mean.totals.idle_ns) == (None, None, None)


def test_kernels_that_were_launched_but_not_recorded_leave_the_hosts_breakdown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).op("aten::mm", 10, 40).launch(20, 30)
    assert breakdown_us(builder, tmp_path) == {"data_wait": 1, "forward": 30, "other_host": 69}
