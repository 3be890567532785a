from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import DEVICE, Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from tests.rules.products import A100, multiplying
from traceadvisor.model.findings import Finding
from traceadvisor.rules.gpu.gpu011_memory_bound import MemoryBound


def test_pointwise_operations_that_take_most_kernel_time_are_found(tmp_path: Path) -> None:
    found = finding(MemoryBound(), multiplying(500, plain_us=1500), tmp_path)
    assert found.claims.total_ns == 1_500_000
    assert evidence(found, "memory-bound share of kernel time") == pytest.approx(0.75)
    assert found.saving.high_ns == pytest.approx(750_000)


def _thin_product() -> TraceBuilder:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    shapes = [[1, 4096], [4096, 4096]]
    return builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=shapes).launch(2, 5, kernel=(10, 90))


def test_memory_bound_matmuls_count_and_are_not_claimed(tmp_path: Path) -> None:
    found = finding(MemoryBound(), _thin_product(), tmp_path)
    assert evidence(found, "memory-bound share of kernel time") == 1.0
    assert (found.claims.total_ns, found.saving.high_ns) == (0, 0)


def test_a_gpu_that_mostly_runs_matmuls_is_clear(tmp_path: Path) -> None:
    assert clear(MemoryBound(), multiplying(1500, plain_us=500), tmp_path).value == pytest.approx(0.25)


def test_an_idle_gpu_is_clear(tmp_path: Path) -> None:
    remark = clear(MemoryBound(), multiplying(500, plain_us=1500, step_us=9000), tmp_path).remark
    assert remark == "the GPU is idle most of the time"


def test_very_short_kernels_do_not_count(tmp_path: Path) -> None:
    builder = multiplying(100, step_us=600)
    for number in range(100):
        builder.op("aten::relu", 10 + number, 11 + number)
        builder.launch(10 + number, 10.5 + number, kernel=(110 + 4 * number, 114 + 4 * number))
    assert clear(MemoryBound(), builder, tmp_path).value == 0


def test_operators_of_other_libraries_are_not_judged(tmp_path: Path) -> None:
    assert "Only 25%" in skipped(MemoryBound(), multiplying(500, plain_us=1500, plain="mylib::fused"), tmp_path)
    assert clear(MemoryBound(), multiplying(500, plain_us=400, plain="mylib::fused"), tmp_path).value == 0


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def _graph(**share_us: int) -> TraceBuilder:
    """A step of 100 us with kernels that no operator launched."""
    builder, at = TraceBuilder().device(0, **A100).step(0, 0, 100), 0
    names = {"add": ADD, "compiled": "triton_poi_fused_add_0", "gemm": "ampere_sgemm_128x64_tn", "mine": "mine"}
    for name, duration_us in share_us.items():
        builder.kernel(at, at + duration_us, name=names[name])
        at += duration_us
    return builder


def test_kernels_of_a_graph_count_by_their_names(tmp_path: Path) -> None:
    found = finding(MemoryBound(), _graph(add=60, gemm=40), tmp_path)
    assert found.claims.total_ns == 60_000
    assert found.saving.high_ns == pytest.approx(30_000)


def test_kernels_that_a_compiler_fused_are_not_claimed(tmp_path: Path) -> None:
    assert finding(MemoryBound(), _graph(add=50, compiled=40, gemm=10), tmp_path).claims.total_ns == 50_000
    assert clear(MemoryBound(), _graph(add=40, compiled=50, gemm=10), tmp_path).remark == (
        "a compiler has fused these kernels already"
    )


def test_kernels_of_other_libraries_are_memory_bound_but_not_claimed(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100).kernel(0, 40, name=ADD)
    builder.kernel(40, 90, name="split_embedding_codegen_forward_unweighted_kernel<float, float>")
    found = finding(MemoryBound(), builder, tmp_path)
    assert evidence(found, "memory-bound share of kernel time") == 1
    assert found.claims.total_ns == 40_000


def _with_optimizer(update_us: float) -> TraceBuilder:
    """A step with 1500 us of pointwise operations of the model, and those that update its parameters."""
    builder = multiplying(500, plain_us=1500, step_us=6000)
    builder.annotation("Optimizer.step#Adam.step", 2500, 2600).op("aten::add_", 2500, 2540)
    return builder.launch(2510, 2515, kernel=(2700, 2700 + update_us))


def test_kernels_that_update_parameters_are_not_claimed(tmp_path: Path) -> None:
    found = finding(MemoryBound(), _with_optimizer(1000), tmp_path)
    assert evidence(found, "memory-bound share of kernel time") == pytest.approx(2500 / 3000)
    assert found.claims.total_ns == 1_500_000


def test_an_optimizer_with_most_of_these_kernels_is_no_model_to_compile(tmp_path: Path) -> None:
    assert str(clear(MemoryBound(), _with_optimizer(2000), tmp_path).remark).startswith(
        "most of these kernels update parameters"
    )


def test_sampled_memory_utilisation_is_shown(tmp_path: Path) -> None:
    captured = Captured(multiplying(500, plain_us=1500), tmp_path)
    vars((facts := captured.facts()).run)["device_telemetry"] = replace(DEVICE, mean_memory_utilization_share=0.7)
    found = MemoryBound().check(facts)
    assert isinstance(found, Finding)
    assert evidence(found, "memory utilisation") == 0.7


@pytest.mark.parametrize(("plain_us", "found"), [(899, False), (900, True)])
def test_a_step_is_memory_bound_from_half_of_kernel_time_on(plain_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(MemoryBound(), multiplying(900, plain_us=plain_us), tmp_path) is found


@pytest.mark.parametrize(("step_us", "found"), [(5001, False), (5000, True)])
def test_a_gpu_is_busy_from_30_percent_of_the_step_on(step_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(MemoryBound(), multiplying(500, plain_us=1500, step_us=step_us), tmp_path) is found


@pytest.mark.parametrize(("kernel_us", "found"), [(4.9, False), (5, True)])
def test_kernels_count_from_five_microseconds_on(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    builder = multiplying(100, step_us=600)
    for number in range(80):
        at = 110 + 5 * number
        builder.op("aten::relu", 10 + number, 11 + number)
        builder.launch(10 + number, 10.5 + number, kernel=(at, at + kernel_us))
    assert is_found(MemoryBound(), builder, tmp_path) is found


def test_compute_bound_matmuls_do_not_make_a_step_memory_bound(tmp_path: Path) -> None:
    # Pointwise operations and matmuls each take 1,500 of 5,200 us.
    assert not is_found(MemoryBound(), multiplying(1500, plain_us=1500, step_us=5200), tmp_path)


def test_a_matmul_without_shapes_is_not_judged(tmp_path: Path) -> None:
    assert "No launch calls were recorded" in skipped(MemoryBound(), _graph(add=40, gemm=60), tmp_path)


def test_a_gpu_with_unknown_peak_rates_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name="A future GPU").step(0, 0, 100)
    shapes = [[1, 4096], [4096, 4096]]
    builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=shapes).launch(2, 5, kernel=(10, 90))
    assert "rates" in skipped(MemoryBound(), builder, tmp_path)
