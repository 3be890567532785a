"""Reports on accelerators of which no real recording is at hand, from the names in the sources of their profilers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor import load
from traceadvisor.hardware.profiler_names import names
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report

RUNTIMES = {
    "XPU": ("xpu_runtime", "urEnqueueKernelLaunch"),
    "MTIA": ("mtia_runtime", "runFunction"),
    "HPU": ("hpu_op", "launch"),
    "PrivateUse1": ("privateuse1_runtime", "launch"),
    "MLU": ("mlu_runtime", "cnInvokeKernel"),
}


def _report(folder: Path, accelerator: str, *, linked: bool) -> Report:
    """Four steps of 100 us, in each of which a kernel runs for 60 and a copy for 10."""
    category, call = RUNTIMES[accelerator]
    builder = TraceBuilder()
    for number in range(4):
        at, id_ = 100 * number, number + 1
        builder.step(number, at, at + 100).loader(at, at + 5).op("aten::mm", at + 5, at + 30)
        link = {"correlation": id_} if linked else {}
        builder.event(ph="X", cat=category, name=call, pid=100, tid=100, ts=at + 6, dur=2, args=link)
        kernel = "mtia_ccp_events" if accelerator == "MTIA" else "kernel"
        for kind, name, start, length in (
            (kernel, "gemm", 20, 60),
            ("gpu_memcpy", "Memcpy H2D (Host -> Device)", 85, 10),
        ):
            args = {"device": 0, "stream": 1, **(link if kind == kernel else {})}
            builder.event(ph="X", cat=kind, name=name, pid=0, tid=1, ts=at + start, dur=length, args=args)
    builder.write(folder / "worker0.1.pt.trace.json")
    return load(folder)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("accelerator", RUNTIMES)
def test_work_is_busy_time_with_and_without_a_launch(accelerator: str, tmp_path: Path, *, linked: bool) -> None:
    (recording,) = _report(tmp_path, accelerator, linked=linked).recordings
    assert recording.accelerator == accelerator
    assert recording.mean_breakdown is not None
    parts = recording.mean_breakdown.parts_ns
    assert parts[Category.KERNEL] == pytest.approx(60_000, rel=0.01)
    assert parts[Category.H2D_COPY] == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize("accelerator", RUNTIMES)
def test_the_report_says_that_no_real_recording_was_read(accelerator: str, tmp_path: Path) -> None:
    report = _report(tmp_path, accelerator, linked=True)
    (note,) = (row.note for row in report.health_notes if row.note.code == "accelerator-untested")
    assert accelerator in note.message


@pytest.mark.parametrize("accelerator", RUNTIMES)
def test_no_check_speaks_of_what_only_cuda_devices_have(accelerator: str, tmp_path: Path) -> None:
    report = _report(tmp_path, accelerator, linked=True)
    fixes = [(row.finding.fix.summary, row.finding.fix.change) for row in report.findings]
    reasons = [row.outcome.reason for row in report.outcomes if isinstance(row.outcome, Skipped)]
    texts = [text.replace("what CUDA devices have", "") for text in map(str, [*fixes, *reasons])]
    assert [text for text in texts if re.search(names().cuda, text)] == []
