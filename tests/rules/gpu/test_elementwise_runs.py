from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import STREAM, TraceBuilder
from traceadvisor.rules.gpu.gpu006_elementwise_chains import ElementwiseRuns, elementwise_runs

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def _runs(builder: TraceBuilder, folder: Path) -> ElementwiseRuns:
    facts = facts_of(builder, folder)
    return elementwise_runs(facts.trace, facts.device_work.kernels, 2, facts.device_work.calls.kernel_rows)


def test_a_fused_run_takes_at_least_its_longest_kernel(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(5, 15), name=ADD)
    runs = _runs(builder.launch(1, 2, kernel=(15, 45), name=ADD), tmp_path)
    assert runs.count == 1
    assert runs.least_share.tolist() == [0.75, 0.75]


def test_another_kernel_ends_a_run(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(5, 15), name=ADD)
    builder.launch(1, 2, kernel=(15, 45), name="gemm").launch(2, 3, kernel=(45, 50), name=ADD)
    assert _runs(builder, tmp_path).count == 0


def test_kernels_of_two_streams_are_no_run(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(5, 15), name=ADD)
    builder.launch(1, 2, kernel=(15, 45), name=ADD, stream=STREAM + 1)
    assert _runs(builder, tmp_path).count == 0


def test_without_kernels_there_is_no_run(tmp_path: Path) -> None:
    assert _runs(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5), tmp_path).count == 0
