"""Reports on accelerators of which no real recording is at hand, from the names in the sources of their profilers."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.few import few
from traceadvisor import load
from traceadvisor.judging.catalogue import trace_rules
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report
from traceadvisor.rules.base import Rule, SnapshotRule

OF_CUDA = re.compile(r"CUDA|cuda|cuDNN|cudnn|\bNCCL|nccl\b|TF32|tf32|[Tt]ensor cores?|NVML|nvidia|MIOpen|RCCL")

OF_WHAT_RAN = {
    "DIST010": "a pattern of names of libraries",
    "IDLE001": "names of methods in the user's code",
    "IDLE002": "graphs; other words stand there for other accelerators",
    "IDLE007": "settings that were found on",
    "IDLE008": "a search for algorithms that was recorded",
    "MEM001": "a setting that was found on, for CUDA only",
}
"""Rules of any accelerator that name something of CUDA, and what it is."""

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
@pytest.mark.parametrize(
    "accelerator", few(RUNTIMES, "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
)
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
    assert [text for text in texts if OF_CUDA.search(text)] == []


def _texts(rule: Rule) -> list[str]:
    """Strings in the module of a rule that stand in no docstring."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(type(rule)) or ast))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documented)
    return [node.value for node in constants if isinstance(node.value, str)]


def test_rules_of_any_accelerator_name_nothing_of_cuda() -> None:
    speaking = {
        rule.meta.id
        for rule in trace_rules()
        if not rule.of_cuda and not isinstance(rule, SnapshotRule) and any(map(OF_CUDA.search, _texts(rule)))
    }
    assert speaking == OF_WHAT_RAN.keys()
