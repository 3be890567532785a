from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, skipped
from traceadvisor.analysis.data.input_pipeline import is_input
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.data.data014_input_pipeline import InputPipeline

LOADER, XLA = 11, 12


def _steps(framework: str = "TensorFlow") -> TraceBuilder:
    """Three steps of 100 us, the first from 0."""
    builder = TraceBuilder().member("framework", framework)
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100)
    return builder


def test_the_wait_for_tf_data_is_claimed_with_the_fix_for_its_slowest_stage(tmp_path: Path) -> None:
    builder = _steps()
    for start in (0, 100, 200):
        builder.annotation("IteratorGetNextOp::DoCompute", start, start + 60)
        builder.annotation("Iterator::Root::Prefetch::ParallelMapV2", start, start + 55, thread=LOADER)
        builder.annotation("Iterator::Root::Prefetch::ParallelMapV2::TFRecord", start, start + 50, thread=LOADER)
    found = finding(InputPipeline(), builder, tmp_path)
    assert found.claims.total_ns == 180_000
    assert found.saving.high_ns == 60_000
    assert evidence(found, "slowest stage") == "TFRecord"
    assert evidence(found, "time in this stage") == 50_000
    assert "interleave" in (found.fix.change or "")


def test_a_wait_inside_a_compiled_function_is_on_another_thread(tmp_path: Path) -> None:
    builder = _steps()
    for start in (0, 100, 200):
        builder.annotation("IteratorGetNextOp::DoCompute", start + 10, start + 70, thread=LOADER)
    assert finding(InputPipeline(), builder, tmp_path).claims.total_ns == 180_000


def test_loading_while_xla_computes_is_no_wait(tmp_path: Path) -> None:
    builder = _steps("JAX").thread_name("tf_XLAEigen/12", thread=XLA)
    for start in (0, 100, 200):
        builder.annotation("load_batch", start, start + 60).op("dot", start + 20, start + 90, thread=XLA)
    found = finding(InputPipeline(), builder, tmp_path)
    assert found.claims.total_ns == 60_000
    assert facts_of(builder, tmp_path).partition[Category.FORWARD].total_ns == 210_000


def test_a_short_wait_is_clear(tmp_path: Path) -> None:
    builder = _steps("JAX")
    for start in (0, 100, 200):
        builder.python("train.py(3): load", start, start + 4)
    assert clear(InputPipeline(), builder, tmp_path).value == pytest.approx(0.04)


def test_without_an_event_that_says_so_it_is_unknown_whether_input_is_waited_for(tmp_path: Path) -> None:
    assert "unknown" in skipped(InputPipeline(), _steps("JAX").annotation("work", 0, 90), tmp_path)


def test_recordings_of_pytorch_have_other_checks(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("load_batch", 0, 60)
    assert skipped(InputPipeline(), builder, tmp_path).endswith("the recording is of PyTorch.")


@pytest.mark.parametrize(
    "name", ["load", "load_batch", "get_batch", "next_batch", "DataLoader", "makeInputs", "__next__"]
)
def test_names_of_input(name: str) -> None:
    assert is_input(name)


@pytest.mark.parametrize(
    "name",
    ["step", "load_checkpoint", "train_on_batch", "Handle inputs", "_load_unlocked", "get_loss", "ParseArguments"],
)
def test_other_names(name: str) -> None:
    assert not is_input(name)
