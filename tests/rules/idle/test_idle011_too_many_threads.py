from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Method
from traceadvisor.model.telemetry_window import WorkerWindow
from traceadvisor.rules.idle.idle011_too_many_threads import TooManyThreads


def _on_cpu() -> TraceBuilder:
    """Three steps of 100 us, of which operators take 80."""
    builder = TraceBuilder()
    for start in builder.steps(3, 100):
        builder.op("aten::mm", start, start + 80)
    return builder


def _with(folder: Path, threads: int, **settings: float) -> Captured:
    captured = Captured(_on_cpu(), folder).with_settings(torch_threads=threads, cpu_count=4, **settings)
    return captured.with_node(mean_cpu_share=None)


def test_threads_without_a_core_have_an_upper_limit(tmp_path: Path) -> None:
    found = _with(tmp_path, 16).finding(TooManyThreads())
    assert found.saving.method is Method.BOUND
    # Twelve of sixteen threads have no core: 80 us in operators times 3/4.
    assert found.saving.high_ns == pytest.approx(60_000)
    assert found.fix.change == "torch.set_num_threads(4)"
    assert evidence(found, "threads per operator") == 16


def test_the_threads_of_all_ranks_count(tmp_path: Path) -> None:
    found = _with(tmp_path, 4, ranks_on_host=2).finding(TooManyThreads())
    assert found.fix.change == "torch.set_num_threads(2)"
    assert evidence(found, "ranks on the machine") == 2


@pytest.mark.parametrize(("cores", "workers", "change"), [(0.05, 0, 2), (0.04, 0, 4), (0.05, 1, 4)])
def test_other_processes_that_compute_share_the_cores(cores: float, workers: int, change: int, tmp_path: Path) -> None:
    """A process that collects experience computes beside the training; a loader worker has one thread."""
    child = WorkerWindow(7, "python3", cores)
    found = _with(tmp_path, 16).with_loader(worker_count=workers).with_processes(mean_cpu_cores=1.0, workers=(child,))
    assert found.finding(TooManyThreads()).fix.change == f"torch.set_num_threads({change})"


def test_a_quota_counts_like_fewer_cores(tmp_path: Path) -> None:
    assert _with(tmp_path, 4, cpu_quota=2.0).finding(TooManyThreads()).fix.change == "torch.set_num_threads(2)"


def test_the_cores_of_one_rank_are_not_divided_among_all(tmp_path: Path) -> None:
    """Each of two ranks is bound to two of four cores."""
    assert not _with(tmp_path, 2, ranks_on_host=2, cpu_quota=2.0).is_found(TooManyThreads())


@pytest.mark.parametrize(("threads", "found"), [(5, False), (6, True)])
def test_threads_count_from_half_as_many_again_as_cores(threads: int, tmp_path: Path, *, found: bool) -> None:
    assert _with(tmp_path, threads).is_found(TooManyThreads()) is found


@pytest.mark.parametrize(("busy", "found"), [(0.49, False), (0.5, True)])
def test_threads_on_idle_cores_wait_for_none(busy: float, tmp_path: Path, *, found: bool) -> None:
    captured = _with(tmp_path, 16).with_processes(granted_cpu_share=busy).with_node(mean_cpu_share=0.1)
    assert captured.is_found(TooManyThreads()) is found
    assert found or captured.clear(TooManyThreads()).value == busy


def test_more_ranks_than_cores_with_one_thread_each_have_no_thread_to_leave_out(tmp_path: Path) -> None:
    captured = _with(tmp_path, 1, ranks_on_host=8)
    assert not captured.is_found(TooManyThreads())
    assert captured.clear(TooManyThreads()).limit == 1
    assert _with(tmp_path, 2, ranks_on_host=8).finding(TooManyThreads()).fix.change == "torch.set_num_threads(1)"


def test_without_a_capture_the_threads_are_unknown(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(TooManyThreads(), _on_cpu(), tmp_path)


def test_operators_on_a_gpu_use_no_threads(tmp_path: Path) -> None:
    builder = _on_cpu().launch(5, 10, kernel=(20, 60))
    assert skipped(TooManyThreads(), builder, tmp_path) == "The GPU runs the operators."
