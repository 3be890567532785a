"""Describes a recording by everything that needs no rule: its figures, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import median
from typing import Any

from traceadvisor.analysis.memory.device_memory import memory_by_operator
from traceadvisor.analysis.operators.modules import module_tree
from traceadvisor.analysis.operators.step_contents import step_contents
from traceadvisor.analysis.operators.tables import device_figures, kernel_table, operator_table
from traceadvisor.analysis.operators.user_functions import user_functions
from traceadvisor.analysis.sampled.run_lines import is_same_file
from traceadvisor.analysis.steps.timeline import representative_step, step_timeline
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen, replace
from traceadvisor.judging.source_at_hand import with_code
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Finding
from traceadvisor.model.memory_figures import OperatorMemory
from traceadvisor.model.origins import Origins
from traceadvisor.model.report import DeviceFigures, ModuleRow, OperatorRow, RecordedFinding, Recording
from traceadvisor.model.run_time import CostliestLine
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_contents import StepContents
from traceadvisor.statistics import error_of_middle
from traceadvisor.system.executor import Aside

MOST_TABLE_ROWS = 40
"""Maximum rows of the kernel and operator tables. The remaining rows take little time."""


LEAST_CALLS = 0.5
"""Calls of a function in a recorded step: with fewer, it may be the one around the loop."""


@frozen
class Tables:
    """Tables of what the time and memory of a recording belong to: half the time of its description."""

    operators: tuple[OperatorRow, ...]
    modules: tuple[ModuleRow, ...]
    memory_by_operator: tuple[OperatorMemory, ...]
    origins: Mapping[Category, Origins]
    contents: StepContents | None


def tables_of(facts: Facts) -> Tables:
    """The tables of a recording."""
    return Tables(
        operator_table(facts.trace, facts.launches, facts.tree, facts.steps, most=MOST_TABLE_ROWS, stacks=facts.stacks),
        module_tree(facts.trace, facts.launches, facts.steps),
        memory_by_operator(facts.trace, facts.tree, facts.device_index, facts.steps.typical),
        category_origins(facts),
        step_contents(facts.trace, facts.launches, facts.tree, facts.steps),
    )


def recording_of(facts: Facts) -> Recording:
    """The recording as the report shows it."""
    return with_tables(without_tables(facts, in_detail=True), tables_of(facts))


def with_tables(recording: Recording, tables: Tables) -> Recording:
    """The recording with its tables."""
    return replace(
        recording,
        operators=tables.operators,
        modules=tables.modules,
        memory_by_operator=tables.memory_by_operator,
        origins=tables.origins,
        contents=tables.contents,
    )


def without_tables(facts: Facts, *, in_detail: bool) -> Recording:
    """The recording as the report shows it, but for the tables of :func:`tables_of`.

    ``in_detail``: whether it has kernels and the trace of a step.
    """
    origin = facts.trace.origin
    durations = [step.duration_ns for step in facts.steps.kept]
    step = representative_step(facts.steps)
    figures = _figures(facts, facts.steps.kept_windows)
    are_alike = facts.steps.typical_windows == facts.steps.kept_windows
    return Recording(
        id=facts.recording_id,
        run=origin.run,
        worker=origin.worker,
        span=origin.span,
        cycle=origin.cycle,
        path=origin.path,
        distributed=facts.trace.distributed,
        device=None if facts.device_index is None else facts.trace.device(facts.device_index),
        accelerator=facts.trace.accelerator,
        device_word=facts.accelerator.device if facts.accelerator else "GPU",
        step_source=facts.steps.source,
        steps=facts.step_rows,
        dropped_steps=facts.steps.dropped,
        mean_step_ns=facts.mean.duration_ns if facts.mean else None,
        median_step_ns=float(median(durations)) if durations else None,
        undisturbed_median_step_ns=facts.timing.undisturbed_ns,
        undisturbed_mean_step_ns=facts.timing.mean_undisturbed_ns,
        samples_per_s=facts.samples_per_s,
        mean_breakdown=facts.mean,
        overlaps=facts.overlaps,
        figures=figures,
        timeline=step_timeline(facts.observation, facts.partition, step) if step and in_detail else None,
        kernels=kernel_table(facts.trace, facts.launches, facts.steps)[:MOST_TABLE_ROWS] if in_detail else (),
        operators=(),
        has_operators=bool(facts.steps.typical_marks.contains(facts.tree.start_ns).any()),
        loader_kinds=facts.observation.loader.kinds if facts.observation.loader else (),
        captured=replace(facts.captured, stacks=None, loader_stacks=None) if facts.captured else None,
        run_lines=facts.run.lines,
        costliest_line=_costliest_line(facts),
        recorded_wall_ns=facts.recorded_wall_ns,
        telemetry=facts.run.telemetry,
        rank_count=facts.run.rank_count,
        gpu_count=len(facts.trace.device_indices) * facts.run.rank_count or None,
        joules_per_sample=facts.joules_per_sample,
        device_memory=facts.memory_figures,
        communication=facts.communication,
        workload=facts.workload,
        inference_sign=facts.inference_sign,
        typical_step_ns=facts.typical.duration_ns if facts.typical else None,
        typical_breakdown=facts.typical,
        typical_figures=figures if are_alike else _figures(facts, facts.steps.typical_windows),
        operations_per_step=facts.operations_per_step,
        start_up_share=facts.start_up_share,
        distortion=facts.distortion,
        run_time=facts.run.time,
        run_growth=facts.run.growth,
        loop_samples_per_s=facts.run.loop_samples_per_s,
        tokens_per_sample=facts.settings.positions_per_sample,
        loader_time=facts.loader_time,
        step_error_share=_step_error(facts),
        framework=facts.trace.framework,
        is_cut_short=origin.is_cut_short,
    )


def _costliest_line(facts: Facts) -> CostliestLine | None:
    """The line that holds most of the loop, with its text, and what its function does in a recorded step."""
    found = facts.run.costliest_line
    if found is None:
        return None
    line, inside = (one and replace(one, place=with_code(facts, one.place)) for one in (found.line, found.inside))
    place = found.function or found.innermost.place
    functions = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    around = [one for one in functions if one.location.function == place.function and one.location.line <= place.line]
    around = [one for one in around if is_same_file(one.location.file, place.file)]
    spans = max(around, key=lambda one: one.location.line).spans if around else None
    if line is None or not spans or len(spans) < LEAST_CALLS * facts.step_count:
        return replace(found, line=line or found.line, inside=inside)
    operators = int(spans.contains(facts.trace.events.start_ns[facts.tree.rows[facts.tree.parent == NONE]]).sum())
    count = facts.step_count
    return replace(
        found, line=line, inside=inside, calls_per_step=len(spans) / count, operators_per_step=operators / count
    )


def _figures(facts: Facts, windows: SpanSet) -> DeviceFigures:
    figures = device_figures(facts.trace, facts.launches, windows, facts.unknown.spans)
    rate = facts.device_work.rate
    if rate is None or not rate.is_whole:
        return figures
    return replace(figures, flops_per_s=rate.flops_per_s, peak_rate_share=rate.peak_share)


def _step_error(facts: Facts) -> float | None:
    """The error of the step time within the run; that of the typical recorded steps where no other was timed."""
    if facts.timing.undisturbed_ns is not None:
        return facts.timing.error_share
    return error_of_middle([log(step.duration_ns) for step in facts.steps.typical if step.duration_ns])


_CATEGORY_ROWS = 8
"""Rows of a table about a category, besides the one for all others."""

_FINDING_ROWS = 4
"""Rows of a table about a finding, which is narrower already."""


def category_origins(facts: Facts) -> Mapping[Category, Origins]:
    """Origins of the time of each category, over the typical steps; categories without time are left out."""
    windows = facts.steps.typical_windows  # claims leave out start-up, the breakdown does not
    inside = {category: spans & windows for category, spans in facts.partition.items()}
    return {category: facts.origins(spans, _CATEGORY_ROWS) for category, spans in inside.items() if spans}


def claim_origins(facts: Facts, claims: SpanSet) -> Origins:
    """Origins of the time that a finding claims."""
    about_all = bool(claims - facts.steps.typical_windows)  # a rule on what happens in some steps only
    step_count = facts.of_all_steps.step_count if about_all else facts.step_count
    return facts.attribution.origins(claims, step_count, _FINDING_ROWS)


def _in_a_row(finding: Finding) -> Finding:
    """The finding with no more than a page shows in a table of many."""
    none, fix = SpanSet.empty(), replace(finding.fix, what_if=None)
    return replace(finding, claims=none, also_shortens=none, set_off_by=none, evidence=(), caveats=(), fix=fix)


_FACTS = "facts"


class Description:
    """The description of one recording."""

    def __init__(self, facts: Facts, aside: Aside | None = None, *, in_detail: bool = True) -> None:
        """Begin to describe a recording.

        Args:
            facts: its facts, none of them computed yet if there is another process.
            aside: the other process.
            in_detail: whether to make what a page shows of few recordings: tables, a trace, origins and evidence.
        """
        self._facts, self._aside, self._in_detail = facts, aside, in_detail
        self._begun = aside.begin(_MakeTables(facts)) if aside and in_detail else 0

    def with_findings(self, rows: Sequence[RecordedFinding]) -> tuple[Recording, tuple[RecordedFinding, ...]]:
        """The recording as the report shows it, and its findings, each with the origins of the time that it claims."""
        recording = without_tables(self._facts, in_detail=self._in_detail)  # first: the other process makes tables
        if not self._in_detail:
            return recording, tuple(replace(row, finding=_in_a_row(row.finding)) for row in rows)
        claims = tuple(row.finding.claims for row in rows if row.finding.claims)
        asked = self._aside.begin(_FindOrigins(claims)) if self._aside else 0
        tables = self._aside.outcome(self._begun) if self._aside else None
        found = self._aside.outcome(asked) if self._aside else None
        if not isinstance(tables, Tables):
            tables = tables_of(self._facts)
        origins = iter(found if isinstance(found, list) else [claim_origins(self._facts, one) for one in claims])
        findings = tuple(
            replace(row, finding=replace(row.finding, origins=next(origins))) if row.finding.claims else row
            for row in rows
        )
        return with_tables(recording, tables), findings


def get_ready(_: dict[str, Any]) -> None:
    """A task of the other process: to receive it, the process imports what a description needs."""


@frozen(eq=False)
class _MakeTables:
    """Makes the tables of a recording in the other process."""

    facts: Facts

    def __call__(self, kept: dict[str, Any]) -> Tables:
        kept[_FACTS] = self.facts
        return tables_of(self.facts)


@frozen(eq=False)
class _FindOrigins:
    """Finds in the other process where some time of the same recording comes from."""

    claims: tuple[SpanSet, ...]

    def __call__(self, kept: dict[str, Any]) -> list[Origins]:
        return [claim_origins(kept[_FACTS], one) for one in self.claims]
