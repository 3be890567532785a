"""The certainty of a change by the parts of the step."""

from dataclasses import replace

import numpy as np
import pytest

from tests.comparing.building import (
    BEFORE,
    FIXED,
    change_of,
    compared,
    finding,
    origins,
    recording,
    report,
    with_origins,
)
from tests.comparing.simulation import GPU_BOUND, HALF, WAITING, Parts, likely_calls
from traceadvisor.cli.comparison_output import decide
from traceadvisor.cli.fail_on import Regression
from traceadvisor.comparing.compare import compare
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.comparison import CpuChange, LikelyBecause, Measure, WorkChange
from traceadvisor.model.findings import Clear, Unit
from traceadvisor.model.report import OutcomeRow, Recording
from traceadvisor.model.run import RunSettings, StepState, TimedStep
from traceadvisor.model.step_contents import CountRow, StepContents
from traceadvisor.model.telemetry import Series, Telemetry
from traceadvisor.model.telemetry_window import NodeWindow, ProcessWindow, TelemetryWindow
from traceadvisor.model.verdict import Verdict, VerdictCertainty
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.content.comparison.sentences import certainty_sentences, verdict_sentence
from traceadvisor.rendering.document.blocks import Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.words import CPU_TIME_IS

SINGLE, MULTI = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


def _step(kind: str, data_ms: float, *, kernels_ms: float = 97.0, rest_ms: float = 20.0) -> Recording:
    parts = {Category.KERNEL: kernels_ms, Category.DATA_WAIT: data_ms, Category.IDLE_LAUNCH: rest_ms}
    return replace(recording("", parts, command=()), loader_kinds=(kind,))


def test_a_wait_that_workers_took_out_is_likely_with_one_capture_a_side() -> None:
    change = change_of(compared(_step(SINGLE, 25.0), _step(MULTI, 0.0)))
    assert (change.verdict, change.because) == (Verdict.FASTER, LikelyBecause.EXPLAINED)
    assert change_of(compared(_step(SINGLE, 25.0), _step(SINGLE, 0.0))).certainty is VerdictCertainty.NOT_SHOWN


def test_the_same_difference_of_an_unchanged_loader_is_not_shown() -> None:
    change = change_of(compared(_step(SINGLE, 59.0), _step(SINGLE, 33.0)))
    assert change.certainty is VerdictCertainty.NOT_SHOWN


def test_a_rest_that_changed_as_much_leaves_it_open() -> None:
    """The wait is gone, and other code takes the same time more."""
    head = _step(MULTI, 0.0, rest_ms=35.0)
    assert change_of(compared(_step(SINGLE, 25.0), head)).certainty is VerdictCertainty.NOT_SHOWN


def test_a_wait_that_only_fell_is_not_taken_out() -> None:
    assert change_of(compared(_step(SINGLE, 40.0), _step(MULTI, 20.0))).certainty is VerdictCertainty.NOT_SHOWN


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        (Regression(None), True),
        (Regression(None, VerdictCertainty.SHOWN), False),
        (Regression(0.05), True),
        (Regression(0.3), False),
    ],
)
def test_a_gate_fails_on_a_likely_regression_unless_it_asks_for_a_shown_one(
    condition: Regression, *, is_met: bool
) -> None:
    decision = decide([condition], compared(_step(MULTI, 0.0), _step(SINGLE, 35.5)))
    assert (decision.met is not None) is is_met
    assert "three captures" in f"{decision.met}{decision.undecided}"


@pytest.mark.parametrize("parts", [GPU_BOUND, HALF, WAITING], ids=lambda parts: parts.name)
def test_judged_by_parts_no_more_unchanged_steps_are_called_and_more_slower_kernels(parts: Parts) -> None:
    def called(ratio: float, *, by_parts: bool) -> int:
        counted = likely_calls(ratio, 300, parts, seed=7, by_parts=by_parts)
        return counted[Verdict.FASTER] + counted[Verdict.SLOWER]

    assert called(1.0, by_parts=True) <= called(1.0, by_parts=False)
    assert parts is not GPU_BOUND or (called(1.2, by_parts=True) > 290 > called(1.2, by_parts=False))


def _busy(step_ms: float, own_cores: float) -> Recording:
    """A capture on two cores, of which other programs used one and a half."""
    one = recording("run", undisturbed_ms=step_ms)
    nothing = Series(np.empty(0, np.int64), {})
    node = NodeWindow(9, (own_cores + 1.5) / 2, *(None,) * 8)
    processes = ProcessWindow(9, None, own_cores, None, None, None, None, ())
    assert one.captured is not None
    captured = replace(one.captured, telemetry=Telemetry("node", (), nothing, nothing, 2, None))
    return replace(one, telemetry=TelemetryWindow((), node, processes), captured=captured)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_busy_machine_with_several_threads_can_be_tried_with_one(threads: int) -> None:
    settings = RunSettings(torch_threads=threads, cpu_count=2)
    sides = [_busy(100.0, 0.5), _busy(60.0, 0.5)]
    base, head = (replace(one, captured=replace(one.captured, settings=settings)) for one in sides if one.captured)
    (run,) = compared(base, head).runs
    assert any("OMP_NUM_THREADS=1" in one for one in run.cautions) is (threads > 1)


def test_the_cpu_time_of_the_process_itself_bears_witness_on_a_busy_machine() -> None:
    """116 -> 5.57 ms: the process took half a core before and after, so it computes a twentieth per step."""
    change = change_of(compared(_busy(116.0, 0.5), _busy(5.57, 0.5)))
    assert (change.certainty, change.because) == (VerdictCertainty.LIKELY, LikelyBecause.WITNESSED)
    assert change.witness_ratio == pytest.approx(5.57 / 116.0)
    assert "the direction of the change, not its size" in " ".join(certainty_sentences(change, WorkChange()))


@pytest.mark.parametrize(
    ("threads", "cpu_ms", "is_likely"), [(1, 132.0, True), (2, 132.0, False), (2, 3 * 62.0, False), (2, 6 * 62.0, True)]
)
def test_threads_that_wait_for_one_another_on_a_busy_machine_are_no_witness(
    threads: int, cpu_ms: float, *, is_likely: bool
) -> None:
    """74.5 -> 498 ms with 62 and 132 ms of CPU time: an unchanged training with two threads on two busy cores.

    Another one took 2.64 times the CPU time.
    """
    settings = RunSettings(torch_threads=threads, cpu_count=2)
    sides = (_busy(step_ms, cpu_ms / step_ms) for step_ms, cpu_ms in ((74.5, 62.0), (498.0, cpu_ms)))
    base, head = (replace(one, captured=replace(one.captured, settings=settings)) for one in sides if one.captured)
    assert (change_of(compared(base, head)).certainty is VerdictCertainty.LIKELY) is is_likely


@pytest.mark.parametrize(("settings", "is_likely"), [(FIXED, True), (BEFORE, False)])
def test_a_fix_that_was_made_tells_less_work_from_threads_that_wait(settings: RunSettings, *, is_likely: bool) -> None:
    """A third of the CPU time, with two threads on a busy machine: a fix was to save 60 of 100 ms."""
    threads = RunSettings(torch_threads=2, cpu_count=2)
    base, head = (
        replace(one, captured=replace(one.captured, settings=replace(threads, cudnn_benchmark=of.cudnn_benchmark)))
        for one, of in ((_worked(100.0, 90.0), BEFORE), (_worked(35.0, 30.0), settings))
        if one.captured
    )
    clear = OutcomeRow("IDLE001", (base.id,), Clear("waits", 0.01, 0.05, Unit.SHARE))
    comparison = compare([report(base, findings=[finding(saves_ms=60.0, on=base)])], [report(head, outcomes=[clear])])
    change = change_of(comparison)
    assert (change.certainty is VerdictCertainty.LIKELY) is is_likely
    assert change.cpu is not None
    assert change.cpu.is_called is is_likely


@pytest.mark.parametrize(("calls", "is_called"), [(40.0, True), (60.0, False)])
def test_fewer_operators_tell_less_work_from_threads_that_wait(calls: float, *, is_called: bool) -> None:
    """A third of the CPU time, with two threads on a busy machine, and 100 operators before."""
    threads = RunSettings(torch_threads=2, cpu_count=2)
    base, head = (
        replace(
            one,
            captured=replace(one.captured, settings=threads),
            contents=StepContents((CountRow("aten::mm", count),), (), None, 0, (), ()),
        )
        for one, count in ((_worked(100.0, 90.0), 100.0), (_worked(35.0, 30.0), calls))
        if one.captured
    )
    for change in (change_of(compared(base, head)), change_of(compared(head, base))):
        assert change.cpu is not None
        assert change.cpu.is_called is is_called


def test_a_step_that_only_got_fewer_cores_is_not_shown_on_a_busy_machine() -> None:
    """The same CPU time per step, in a fifth of the time."""
    change = change_of(compared(_busy(100.0, 0.1), _busy(20.0, 0.5)))
    assert (change.certainty, change.is_crowded) == (VerdictCertainty.NOT_SHOWN, True)


@pytest.mark.parametrize(("threads", "is_likely"), [(1, True), (2, False)])
def test_threads_that_lack_a_core_on_one_side_show_no_gain(threads: int, *, is_likely: bool) -> None:
    """4.99 -> 1.31 ms, with 0.9 and 0.6 of two cores taken: an unchanged training with two threads."""
    nodes = [replace(_busy(step_ms, 0.5), step_error_share=0.01) for step_ms in (4.99, 1.31)]
    base, head = (
        replace(
            one,
            captured=replace(one.captured, settings=RunSettings(torch_threads=threads, cpu_count=2)),
            telemetry=replace(one.telemetry, node=NodeWindow(9, (0.5 + others) / 2, *(None,) * 8)),
        )
        for one, others in zip(nodes, (0.9, 0.6), strict=True)
        if one.captured and one.telemetry
    )
    own = [one.telemetry and one.telemetry.others_cores(2) for one in (base, head)]
    assert own == pytest.approx([0.9, 0.6])
    assert (change_of(compared(base, head)).certainty is VerdictCertainty.LIKELY) is is_likely


def _worked(step_ms: float, cpu_ms: float) -> Recording:
    """A capture on a busy machine: a step with a core throughout takes 40 ms."""
    one = _busy(step_ms, cpu_ms / step_ms)
    steps = tuple(TimedStep(number, number, int(40e6), 0, 0, StepState.PLAIN) for number in range(9))
    return replace(one, captured=replace(one.captured, steps=steps)) if one.captured else one


def test_on_a_busy_machine_the_cpu_time_tells_beside_a_wall_time_that_cannot() -> None:
    sides = [[(60.0, 40.0), (180.0, 41.0), (90.0, 40.5)], [(120.0, 28.0), (50.0, 28.5), (70.0, 28.2)]]
    reports = [[report(_worked(*one)) for one in side] for side in sides]
    comparison = compare(*reports)
    change, (run,) = change_of(comparison), comparison.runs
    assert (change.verdict, change.cpu and change.cpu.verdict) == (Verdict.INCONCLUSIVE, Verdict.FASTER)
    assert verdict_sentence(run) == (
        "CPU time per step fell 30% (28% to 33%), shown; wall time differs because other programs ran: "
        "99.1 -> 74.9 ms per step (24% less time)"
    )
    by_sample = replace(run, change=replace(change, measure=Measure.UNDISTURBED_SAMPLE))
    assert verdict_sentence(by_sample).startswith("CPU time per sample fell 30%")
    assert Prose(CPU_TIME_IS, Tone.SCOPE, Detail.SUMMARY) in comparison_document(comparison).top


def test_a_headline_leads_with_cpu_time_where_other_programs_changed_the_wall_time() -> None:
    """5.5 times as fast, with 28% less CPU time."""
    (run,) = compared(_worked(220.0, 40.0), _worked(40.0, 28.8)).runs
    assert verdict_sentence(run) == (
        "CPU time per step fell 28%, likely; wall time differs because other programs ran: "
        "220 -> 40.0 ms per step (5.5 times as fast)"
    )
    assert run.change is not None
    open_ = replace(run, change=replace(run.change, cpu=CpuChange(0.96, 0.9, 1.03, Verdict.INCONCLUSIVE)))
    assert verdict_sentence(open_) == (
        "CPU time per step is 96% (90% to 103%) of before, perhaps by chance; wall time differs because other programs "
        "ran: 220 -> 40.0 ms per step (5.5 times as fast), likely"
    )
    as_wall = replace(run, change=replace(run.change, cpu=CpuChange(0.18, None, None, Verdict.FASTER)))
    near = replace(run.change, cpu=CpuChange(0.165, None, None, Verdict.FASTER))
    assert "differs because" not in verdict_sentence(replace(run, change=near)), "identical runs differ by so much"
    assert verdict_sentence(as_wall).startswith(
        "CPU time per step fell 82%, likely; wall time: 220 -> 40.0 ms per step"
    )


def test_the_cpu_time_of_steps_that_mostly_wait_tells_nothing() -> None:
    assert change_of(compared(_worked(60.0, 15.0), _worked(90.0, 5.0))).cpu is None


def _ran(step_ms: float, own_cores: float, **operators: float) -> Recording:
    """The same with the times of the operators in its recorded step."""
    counts = tuple(CountRow(f"aten::{name}", 8.0) for name in operators)
    times = origins(sum(operators.values()), {f"aten::{name}": ms for name, ms in operators.items()})
    one = replace(
        _busy(step_ms, own_cores),
        typical_step_ns=times.total_ns,
        typical_breakdown=MeanBreakdown(times.total_ns, {Category.FORWARD: float(times.total_ns)}),
        contents=StepContents(counts, (), None, 0, (), ()),
    )
    return with_origins(one, forward=times)


def test_operators_that_are_gone_bear_witness_on_a_busy_machine() -> None:
    """The process gets a tenth of a core, then half of one. Three quarters of its step were operators that are gone."""
    base, head = _ran(100.0, 0.1, item=75.0, mm=25.0), _ran(20.0, 0.5, mm=25.0)
    change = change_of(compared(base, head))
    assert (change.certainty, change.because) == (VerdictCertainty.LIKELY, LikelyBecause.WITNESSED)
    assert change.witness_ratio == pytest.approx(0.25)
    assert change_of(compared(head, base)).witness_ratio == pytest.approx(4.0)
    few = _ran(100.0, 0.1, item=5.0, mm=95.0)
    assert change_of(compared(few, _ran(20.0, 0.5, mm=95.0))).certainty is VerdictCertainty.NOT_SHOWN


@pytest.mark.parametrize(("came_ms", "witness"), [(75.0, None), (60.0, None), (10.0, 0.35)])
def test_operators_that_came_in_place_of_others_count_against_them(came_ms: float, witness: float | None) -> None:
    """75 of 100 ms are gone, and others came: 100, 85 and 35 ms are left."""
    base, head = _ran(100.0, 0.1, item=75.0, mm=25.0), _ran(20.0, 0.5, mm=25.0, stack=came_ms)
    for change, expected in (
        (change_of(compared(base, head)), witness),
        (change_of(compared(head, base)), witness and 1 / witness),
    ):
        assert change.witness_ratio == (None if expected is None else pytest.approx(expected))
        assert (change.certainty is VerdictCertainty.LIKELY) is (expected is not None)
