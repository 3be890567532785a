"""`report --beside-plugin`: each difference has its cause."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.children import run
from tests.shared import FORMATS, LATER_RECORDINGS, LOGS
from traceadvisor import api
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
    "hf-qwen-h100-inference": (Quantity.TENSOR_CORES, Cause.OLD_KERNEL_NAMES),
    "all-to-all-recommender": (Quantity.COMMUNICATION, Cause.COLLECTIVES),
}


@NIGHTLY
@pytest.mark.parametrize("name", [*FORMATS, *LATER_RECORDINGS])
def test_each_difference_has_a_known_cause(name: str, shared_traces: Path) -> None:
    (beside,) = beside_plugin(api.load(shared_traces / name)).recordings
    causes = {figure.quantity: figure.cause for figure in beside.figures}
    assert Cause.UNKNOWN not in causes.values()
    quantity, cause = CAUSES.get(Path(name).name.partition(".")[0], (None, None))
    assert quantity is None or causes[quantity] is cause


@NIGHTLY
def test_a_recording_that_the_plugin_cannot_read_is_named(shared_traces: Path) -> None:
    path = shared_traces / "formats/array-form-v100.pt.trace.json.gz"
    (beside,) = beside_plugin(api.load(path)).recordings
    assert beside.failure is not None
    assert beside.failure.startswith("TypeError")


@NIGHTLY
def test_both_are_printed_and_written(shared_traces: Path, tmp_path: Path) -> None:
    shutil.copy(shared_traces / LOGS[0], tmp_path)
    done = run("traceadvisor", "report", ".", "--beside-plugin", "--format", "html,md", cwd=tmp_path, check=True)
    assert "0 of 11 figures differ from those of torch-tb-profiler 0.4.3." in done.stdout
    written = (tmp_path / "traceadvisor-report" / "beside-plugin.md").read_text()
    assert "| GPU busy | 55.5% | 55.5% | same |" in written
    assert (tmp_path / "traceadvisor-report" / "beside-plugin.html").exists()
