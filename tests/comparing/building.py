"""Reports for tests of comparisons, in a line each: times are in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.build_report import MS, rule
from traceadvisor.comparing.compare import compare
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.comparison import Comparison, StepChange
from traceadvisor.model.findings import Confidence, Effort, Estimate, Finding, Fix, Location, Method, Severity
from traceadvisor.model.health import Health
from traceadvisor.model.location import Frame
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins, StackRow, StackTable
from traceadvisor.model.report import (
    DeviceFigures,
    OutcomeRow,
    RankedFinding,
    Recording,
    Report,
    Source,
    SourceKind,
)
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Distributed

HOST = {Category.DATA_WAIT: 20.0, Category.FORWARD: 30.0, Category.BACKWARD: 50.0}

Rows = Mapping[str | None, float]

FIX = {"cudnn_benchmark": True}
BEFORE, FIXED = RunSettings(cudnn_benchmark=False), RunSettings(cudnn_benchmark=True)
"""The setting that the fix of each finding changes, and the settings of a run without it and with it."""


def recording(
    name: str = "train",
    parts_ms: Mapping[Category, float | None] = HOST,
    *,
    undisturbed_ms: float | None = None,
    rank: int | None = None,
    command: Sequence[str] = ("train.py",),
    error_share: float | None = 0.01,
    settings: RunSettings | None = None,
    folder: str = "/runs",
) -> Recording:
    """A recording of a capture; without a command, that of a log directory."""
    step_ns = sum(ms or 0.0 for ms in parts_ms.values()) * MS
    parts_ns = {category: None if ms is None else ms * MS for category, ms in parts_ms.items()}
    captured = Run(tuple(command), "ran to its end", (), settings or RunSettings(), None) if command else None
    worker = "worker0" if rank is None else f"rank{rank}"
    return Recording(
        id=f"{name}/{worker}",
        run=name,
        worker=worker,
        span="1",
        cycle=0,
        path=Path(folder) / name / f"{worker}.pt.trace.json",
        distributed=None if rank is None else Distributed(rank, 2, "gloo"),
        device=None,
        step_source=StepSource.MARKS,
        steps=(),
        dropped_steps=(),
        mean_step_ns=step_ns,
        median_step_ns=step_ns,
        undisturbed_median_step_ns=None if undisturbed_ms is None else undisturbed_ms * MS,
        samples_per_s=None,
        mean_breakdown=MeanBreakdown(step_ns, parts_ns),
        overlaps={},
        figures=DeviceFigures(None, None, None),
        timeline=None,
        kernels=(),
        operators=(),
        loader_kinds=(),
        typical_step_ns=step_ns,
        typical_breakdown=MeanBreakdown(step_ns, parts_ns),
        captured=captured,
        step_error_share=error_share,
    )


def report(
    *recordings: Recording, findings: Sequence[RankedFinding] = (), outcomes: Sequence[OutcomeRow] = ()
) -> Report:
    """A report on recordings, or on one that takes 100 ms per step."""
    return Report(
        tool_version="0.1.0",
        source=Source((Path("runs/train"),), SourceKind.CAPTURE),
        health=Health(),
        health_notes=(),
        recordings=recordings or (recording(),),
        findings=tuple(findings),
        not_worth_doing=(),
        outcomes=tuple(outcomes),
    )


def captures(*undisturbed_ms: float, name: str = "run") -> list[Report]:
    """Captures of one script with these undisturbed steps."""
    return [
        report(recording(f"{name}{number}", undisturbed_ms=ms)) for number, ms in enumerate(undisturbed_ms, start=1)
    ]


def finding(
    rule_id: str = "IDLE001",
    saves_ms: float = 20.0,
    *places: tuple[str, int, str],
    step_ms: float = 100.0,
    on: Recording | None = None,
    severity: Severity = Severity.HIGH,
) -> RankedFinding:
    """A simulated saving, give or take a fifth, at some places: file, line and function."""
    saving = Estimate(0.8 * saves_ms * MS, saves_ms * MS, 1.2 * saves_ms * MS, Method.REPLAY)
    found = Finding(
        rule=rule(rule_id, rule_id.lower(), f"The title of {rule_id}"),
        claims=SpanSet.of((0, MS)),
        saving=saving,
        confidence=Confidence.HIGH,
        effort=Effort.LINE,
        evidence=(),
        fix=Fix(f"Fix {rule_id}", settings=FIX),
        locations=tuple(Location(*place) for place in places),
    )
    ids = ((on or recording()).id,)
    return RankedFinding(found, ids, severity, saves_ms / step_ms, step_ns=step_ms * MS, further_saving=saving)


def origins(total_ms: float, operators: Rows, lines: Mapping[tuple[str, int, str], float] | None = None) -> Origins:
    """Where a category's time comes from, over one step; what the rows leave is in the others."""
    total = round(total_ms * MS)
    rows = tuple(OriginRow(name, round(ms * MS), 1) for name, ms in operators.items())
    stacks = tuple(
        StackRow(Location(*place), None, None, Frame("item"), round(ms * MS), 1) for place, ms in (lines or {}).items()
    )
    return Origins(
        total,
        1,
        OriginTable(rows, OtherOrigins(total - sum(row.total_ns for row in rows), 0)),
        None,
        None if lines is None else StackTable(stacks, OtherOrigins(total - sum(row.total_ns for row in stacks), 0)),
    )


def with_origins(one: Recording, **by_category: Origins) -> Recording:
    """The recording with the origins of some categories."""
    return replace(one, origins={Category(name): found for name, found in by_category.items()})


def compared(base: Recording, head: Recording) -> Comparison:
    """The comparison of two captures of one recording each."""
    return compare([report(base)], [report(head)])


def change_of(comparison: Comparison) -> StepChange:
    """The change of the only run that was compared."""
    (run,) = comparison.runs
    assert run.change is not None
    return run.change
