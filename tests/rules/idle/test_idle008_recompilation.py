from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rules.idle.idle008_recompilation import Recompilation


def _steps(*lengths_us: float) -> TraceBuilder:
    """In each step a kernel of 60 us."""
    builder = TraceBuilder()
    at = 0.0
    for number, length in enumerate(lengths_us):
        builder.step(number, at, at + length).op("aten::mm", at, at + 10)
        builder.launch(at + 5, at + 10, kernel=(at + 20, at + 80))
        at += length
    return builder


def _compiled(builder: TraceBuilder, at: float) -> TraceBuilder:
    """500 us of it, as ranges within each other, called by the script."""
    builder.op("dynamo", at, at + 500, stack=("torch/_dynamo/eval_frame.py(499): __call__", "train.py(12): forward"))
    builder.op("entire_frame_compile", at + 5, at + 490)
    return builder.op("_compile.compile_inner (dynamo_timed)", at + 10, at + 480)


def test_compiling_in_a_later_step_is_found(tmp_path: Path) -> None:
    found = finding(Recompilation(), _compiled(_steps(100, 100, 700, 100), 290), tmp_path)
    assert found.claims.total_ns == 500_000
    assert evidence(found, "time in compilation") == 125_000
    assert evidence(found, "compilations") == 0.25
    assert found.fix.change == "model = torch.compile(model, dynamic=True)"
    (location,) = found.locations
    assert (location.file, location.function) == ("train.py", "forward")


def test_compilation_that_overlaps_the_gpu_costs_nothing(tmp_path: Path) -> None:
    builder = _compiled(_steps(100, 100, 700, 100), 290).launch(280, 285, kernel=(290, 800))
    assert clear(Recompilation(), builder, tmp_path).value == 0


def test_the_first_step_may_compile(tmp_path: Path) -> None:
    assert clear(Recompilation(), _compiled(_steps(700, 100, 100), 90), tmp_path).value == 0


def test_running_compiled_code_is_no_compilation(tmp_path: Path) -> None:
    builder = _steps(100, 100, 100).op("Torch-Compiled Region: 0/0", 110, 190).op("TorchDynamo Cache Lookup", 100, 109)
    assert clear(Recompilation(), builder, tmp_path).value == 0


def test_a_convolution_that_waits_for_events_tries_out_algorithms(tmp_path: Path) -> None:
    builder = _steps(100, 100, 400, 100).op("aten::cudnn_convolution", 300, 580)
    for at in (310, 400, 490):
        builder.sync(at, at + 80, name="cudaEventSynchronize")
    found = finding(Recompilation(), builder, tmp_path)
    assert evidence(found, "time in compilation and algorithm search") == 70_000
    assert evidence(found, "convolutions with an algorithm search") == 0.25
    assert found.fix.change == "torch.backends.cudnn.benchmark = False"


def test_other_waits_for_events_are_no_search(tmp_path: Path) -> None:
    builder = _steps(100, 100, 100).op("aten::cudnn_convolution", 110, 120)
    assert clear(Recompilation(), builder.sync(130, 190, name="cudaEventSynchronize"), tmp_path).value == 0


def test_one_step_is_too_few(tmp_path: Path) -> None:
    assert "A single step" in skipped(Recompilation(), _steps(100), tmp_path)


@pytest.mark.slow
def test_compilations_recorded_by_torch_are_found(tmp_path: Path) -> None:
    path = tmp_path / "worker0.1.pt.trace.json"
    compiled = torch.compile(lambda x: x.sin().sum(), backend="eager", dynamic=False)
    compiled(torch.ones(2))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for size in (2, 2, 3, 4, 2):
            with record_function("Optimizer.step#SGD.step"):
                compiled(torch.ones(size))
    profiler.export_chrome_trace(str(path))
    outcome = run_rule(
        Recompilation(), Facts(read_trace(Origin(path, run="", worker="worker0", span="1")), None, "recording")
    )
    assert isinstance(outcome, Found)
    # Steps are told from the optimizer's ends: four of them, and the two new sizes are in the second and the third.
    assert evidence(outcome.finding, "compilations") == 2 / 4


@pytest.mark.parametrize(("last_us", "found"), [(15_767, False), (15_766, True)])
def test_compiling_counts_from_three_percent_of_the_steps(last_us: int, tmp_path: Path, *, found: bool) -> None:
    # 500 us of 16,666 us, and of 1 us more.
    assert is_found(Recompilation(), _compiled(_steps(100, 100, 700, last_us), 290), tmp_path) is found
