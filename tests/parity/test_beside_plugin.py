"""`report --beside-plugin`: each difference has its cause."""

import re
import shutil
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.children import run
from tests.few import few
from tests.sample_reports import sample
from tests.shared import CHECKOUT, FORMATS, LATER_RECORDINGS, LOGS, SAMPLES
from traceadvisor import api
from traceadvisor.errors import UsageError
from traceadvisor.integrations.beside_plugin import beside_plugin
from traceadvisor.model.beside_plugin import Cause, Quantity

NIGHTLY = pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis", "tests/parity")

CAUSES = {
    "ns-timestamps-v100": (Quantity.STEP, Cause.LATE_DEVICE),
    "nccl-rank0of2-a100": (Quantity.KERNELS, Cause.COLLECTIVES),
    "rocm-mi250": (Quantity.STEPS, Cause.MIRRORED_MARKS),
    "rocm-mi300-resnet-ddp": (Quantity.STEPS, Cause.MIRRORED_MARKS),
    "triton-cuda-driver": (Quantity.STEP, Cause.LONG_MARK),
    "alexnet-inference": (Quantity.KERNELS, Cause.NO_MARKS),
    "vllm-decode-cuda-graphs": (Quantity.STEP, Cause.NO_MARKS),
    "attention-forward-h100": (Quantity.BUSY, Cause.BETWEEN_STEPS),
    "hf-qwen-h100-inference": (Quantity.TENSOR_CORES, Cause.OLD_KERNEL_NAMES),
    "all-to-all-recommender": (Quantity.COMMUNICATION, Cause.COLLECTIVES),
}


@NIGHTLY
@pytest.mark.parametrize("name", [*FORMATS, *LATER_RECORDINGS, "others/attention-forward-h100.pt.trace.json.gz"])
def test_each_difference_has_a_known_cause(name: str, shared_traces: Path) -> None:
    (beside,) = beside_plugin(api.load(shared_traces / name)).recordings
    causes = {figure.quantity: figure.cause for figure in beside.figures}
    assert Cause.UNKNOWN not in causes.values()
    quantity, cause = CAUSES.get(Path(name).name.partition(".")[0], (None, None))
    assert quantity is None or causes[quantity] is cause


def test_time_between_steps_is_the_cause_of_a_smaller_busy_share(tmp_path: Path) -> None:
    """The GPU is busy for 160 of 200 us in two steps, and for 160 of 240 us from the first to the last."""
    builder = TraceBuilder()
    for number, start in enumerate((0, 140)):
        builder.step(number, start, start + 100).op("aten::mm", start, start + 90)
        builder.launch(start + 1, start + 2, kernel=(start + 10, start + 90))
    (beside,) = beside_plugin(api.load(builder.write(tmp_path / "w.1.pt.trace.json"))).recordings
    (busy,) = [figure for figure in beside.figures if figure.quantity is Quantity.BUSY]
    assert (round(busy.plugin or 0, 3), busy.ours, busy.cause) == (0.667, 0.8, Cause.BETWEEN_STEPS)


@pytest.mark.parametrize(
    "sample", few(SAMPLES, "traceadvisor/parsing", "traceadvisor/analysis"), ids=lambda path: path.name
)
def test_each_difference_in_our_own_captures_has_a_known_cause(sample: Path) -> None:
    compared = beside_plugin(api.load(sample)).recordings
    assert all(len(one.figures) >= 4 for one in compared)
    assert Cause.UNKNOWN not in {figure.cause for one in compared for figure in one.figures}


def test_a_mean_without_the_first_recorded_step_is_the_cause_of_another_mean_step() -> None:
    report = sample("left-on")
    (steps, step, *_) = beside_plugin(report).recordings[0].figures
    assert (steps.quantity, steps.plugin, steps.ours, steps.cause) == (Quantity.STEPS, 9, 9, None)
    assert (step.quantity, step.cause) == (Quantity.STEP, Cause.STEPS_NOT_COUNTED)
    assert [row.step.kept for row in report.recordings[0].steps] == [False] + [True] * 8


def test_a_mean_that_also_differs_over_the_same_steps_has_no_such_cause() -> None:
    report = sample("left-on")
    (recording,) = report.recordings
    longer = replace(recording, mean_step_ns=2 * (recording.mean_step_ns or 0))
    (_, step, *_) = beside_plugin(replace(report, recordings=(longer,))).recordings[0].figures
    assert step.cause is Cause.UNKNOWN


def test_collectives_beside_work_of_the_training_thread_are_the_cause_of_more_communication() -> None:
    for one in beside_plugin(sample("two-ranks")).recordings:
        causes = {figure.quantity: figure.cause for figure in one.figures}
        assert causes[Quantity.COMMUNICATION] is Cause.HOST_COLLECTIVES


def test_a_rank_without_a_trace_has_no_figures_of_the_plugin(tmp_path: Path) -> None:
    sample = tmp_path / "capture"
    shutil.copytree(CHECKOUT / "sample_traces" / "left-on", sample)
    for trace in sample.glob("*.pt.trace.json.gz"):
        trace.unlink()
    report = api.load(sample)
    assert len(report.recordings) == 1
    assert beside_plugin(report).recordings == ()


@NIGHTLY
def test_a_recording_that_the_plugin_cannot_read_is_named(shared_traces: Path) -> None:
    path = shared_traces / "formats/array-form-v100.pt.trace.json.gz"
    (beside,) = beside_plugin(api.load(path)).recordings
    assert beside.failure is not None
    assert beside.failure.startswith("TypeError")


def test_without_the_plugin_the_error_names_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("traceadvisor.integrations.beside_plugin.version", missing)
    report = sample("left-on")
    with pytest.raises(UsageError, match=re.escape("pip install 'traceadvisor[old-plugin]'")):
        beside_plugin(report)


@NIGHTLY
def test_both_are_printed_and_written(shared_traces: Path, tmp_path: Path) -> None:
    shutil.copy(shared_traces / LOGS[0], tmp_path)
    done = run("traceadvisor", "report", ".", "--beside-plugin", "--format", "html,md", cwd=tmp_path, check=True)
    assert "0 of 11 figures differ from those of torch-tb-profiler 0.4.3." in done.stdout
    written = (tmp_path / "traceadvisor-report" / "beside-plugin.md").read_text()
    assert "| GPU busy | 55.5% | 55.5% | same |" in written
    assert (tmp_path / "traceadvisor-report" / "beside-plugin.html").exists()
