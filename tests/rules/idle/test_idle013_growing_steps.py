import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.whole_run.building import MS, NO_GRAD, Runs, line
from tests.analysis.whole_run.test_slow_steps import EVALUATE, USUAL
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Found, Skipped
from traceadvisor.model.run import Change, PauseKind, Run, StepState
from traceadvisor.model.samples import Sampled, SampledFrame
from traceadvisor.rules.idle.idle005_gc_pause import GcPause
from traceadvisor.rules.idle.idle006_step_outliers import StepOutliers
from traceadvisor.rules.idle.idle008_recompilation import GIVEN_UP, Recompilation
from traceadvisor.rules.idle.idle013_growing_steps import GrowingSteps


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 2, 100).step(1, 100, 200).op("aten::mm", 102, 200)


def _with(run: Run, folder: Path) -> Captured:
    found = Captured(_step(), folder).with_run(steps=run.steps, stacks=run.stacks, started=run.started, ended=run.ended)
    return found.with_settings(pauses=run.settings.pauses)


def _growing(ms_per_step: float, *, cpu: float = 1.0) -> Run:
    runs = Runs()
    for step in range(200):
        runs.step([(line(11), 5), (line(14), 1 + ms_per_step * step)], cpu=cpu)
    return runs.run()


def _often(run: Run) -> Run:
    """The same run with many samples."""
    assert run.stacks
    often = tuple(
        replace(one, by_state={state: Sampled(found.time_ns, 10_000) for state, found in one.by_state.items()})
        for one in run.stacks.stacks
    )
    return replace(run, stacks=replace(run.stacks, stacks=often, squares_ns2=1e12))


def test_growing_steps_are_found_with_their_line_and_what_they_would_save(tmp_path: Path) -> None:
    """Steps take 6 to 16 ms: a first quarter of 7.2 ms at its middle, 11 ms on average. The first step took 6."""
    found = _with(_growing(0.05), tmp_path).finding(GrowingSteps())
    assert [place.line for place in found.locations] == [14]
    assert found.of_run
    assert found.saving.high_ns == pytest.approx((11 - 6) * MS, rel=0.1)
    assert evidence(found, "CPU time of a step at the beginning") == pytest.approx(7.2 * MS, rel=0.05)


def test_the_line_that_calls_a_function_that_grows_is_named(tmp_path: Path) -> None:
    runs = Runs()
    for step in range(200):
        runs.step([(line(11), 5), (line(14, SampledFrame("accuracy", "train.py", 9, is_user=True)), 1 + 0.05 * step)])
    (place,) = _with(_often(runs.run()), tmp_path).finding(GrowingSteps()).locations
    assert (place.line, place.function) == (14, "main")
    assert place.owner
    assert place.owner.line == 9


@pytest.mark.parametrize(("starts_ms", "limit_ms"), [(1, 6.0), (6, 5.0)])
def test_samples_of_the_line_that_grows_are_the_limit_if_it_does_little_else(
    starts_ms: float, limit_ms: float, tmp_path: Path
) -> None:
    """A line that takes 10 ms more at the end: 5 on average, beside the time at the start."""
    runs = Runs()
    for step in range(200):
        runs.step([(line(11), 5), (line(14), starts_ms + 0.05 * step)])
    found = _with(_often(runs.run()), tmp_path).finding(GrowingSteps())
    assert found.saving.high_ns == pytest.approx(limit_ms * MS, rel=0.06)
    shown = [row.label for row in found.evidence]
    assert ("share of undisturbed steps at this line" in shown) is (starts_ms == 1)


@pytest.mark.parametrize(("others", "share"), [(0, 0.135), (6, 0.45)])
def test_on_a_busy_machine_waits_for_a_core_grow_with_the_cpu_time(others: int, share: float, tmp_path: Path) -> None:
    """The thread has a core for 0.3 of its time, and its CPU time grows from 1.8 to 4.8 ms."""
    run, busy = _growing(0.05, cpu=0.3), 2 + others
    captured = _with(run, tmp_path).sampled(cpu=busy / 8).with_processes(mean_cpu_cores=2.0)
    found = captured.finding(GrowingSteps())
    mean_ms = 11
    assert found.saving.high_ns == pytest.approx(share * mean_ms * MS, rel=0.1)


def test_subnormal_numbers_have_a_fix_of_their_own(tmp_path: Path) -> None:
    found = _with(_growing(0.05), tmp_path).with_settings(subnormal_share=0.2).finding(GrowingSteps())
    assert "set_flush_denormal(True)" in (found.fix.change or "")


def _doubling(*inside: SampledFrame, rest: float = 1.0) -> Run:
    """Two lines that take twice as long after each 50 steps, steadily; ``rest``: the share of one that does."""
    runs = Runs()
    for step in range(200):
        times = 2.0 ** (step / 50)
        runs.step([(line(11), 2 * (rest * times + 1 - rest)), (line(14, *inside), 4 * times)])
    return runs.run()


def test_steps_in_which_all_lines_grow_alike_do_more_of_the_same_work(tmp_path: Path) -> None:
    outcome = _with(_doubling(), tmp_path).outcome(GrowingSteps())
    assert isinstance(outcome, Skipped)
    assert "more of the same work" in outcome.reason


def test_a_line_that_grows_beside_steady_ones_is_named(tmp_path: Path) -> None:
    found = _with(_doubling(rest=0.0), tmp_path).finding(GrowingSteps())
    assert [place.line for place in found.locations] == [14]
    assert found.fix.summary.startswith("Find what grows with the steps")


def test_code_without_gradients_is_the_training_if_no_backward_pass_runs(tmp_path: Path) -> None:
    estimate = SampledFrame("projected_grads", "train.py", 50, is_user=True)
    found = _with(_doubling(NO_GRAD, estimate, rest=0.0), tmp_path).finding(GrowingSteps())
    assert [place.line for place in found.locations] == [50]


def _of_backward(counts: tuple[int, ...], folder: Path) -> Captured:
    """Backward passes take longer and longer; recorded steps run so many operators of them."""
    runs = Runs()
    for step in range(200):
        engine = SampledFrame("_engine_run_backward", "torch/autograd/graph.py", 979)
        runs.step([(line(11), 5), (line(14, engine), 1 + 0.05 * step)])
    run, builder = runs.run(), TraceBuilder()
    for step, count in enumerate(counts):
        builder.step(step, 100 * step, 100 * step + 100).op("aten::mm", 100 * step + 2, 100 * step + 40)
        for number in range(count):
            at = 100 * step + 50 + number
            builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 1)
    return Captured(builder, folder).with_run(steps=run.steps, stacks=run.stacks, started=run.started, ended=run.ended)


def test_a_graph_that_grows_in_each_recorded_step_is_to_be_detached(tmp_path: Path) -> None:
    found = _of_backward((3, 5, 7, 9, 11), tmp_path).finding(GrowingSteps())
    assert [place.line for place in found.locations] == [14]
    assert found.fix.summary.startswith("Detach what one step hands to the next")


@pytest.mark.parametrize(("forward", "found"), [(0, True), (1, False)])
def test_a_graph_that_grows_is_found_where_times_do_not_show_it(forward: int, tmp_path: Path, *, found: bool) -> None:
    """Nodes of 1 us, two more in each step of 100: 30 steps take 29 each more on average. Sequences may grow, too."""
    builder = TraceBuilder()
    for step in range(5):
        builder.step(step, 100 * step, 100 * step + 100)
        for number in range(1 + forward * step):
            builder.op("aten::mm", 100 * step + 2 + 4 * number, 100 * step + 5 + 4 * number)
        for number in range(3 + 2 * step):
            at = 100 * step + 50 + number
            builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 1)
    runs = Runs()
    for _ in range(30):
        runs.step([(line(11), 5)])
    run = runs.run()
    captured = Captured(builder, tmp_path).with_run(steps=run.steps, started=run.started, ended=run.ended)
    outcome = captured.outcome(GrowingSteps())
    assert isinstance(outcome, Found) is found
    if isinstance(outcome, Found):
        assert outcome.finding.fix.summary.startswith("Detach what one step hands to the next")
        share = evidence(outcome.finding, "share of the run beyond that of the first step's")
        assert share == pytest.approx(29 / (100 - 7 + 3 + 29))


def test_a_backward_pass_that_only_takes_longer_may_have_larger_inputs(tmp_path: Path) -> None:
    outcome = _of_backward((5, 5, 5, 5, 5), tmp_path).outcome(GrowingSteps())
    assert "did not become more" in str(outcome)


def test_steady_steps_are_clear(tmp_path: Path) -> None:
    assert _with(_growing(0), tmp_path).clear(GrowingSteps()).value == 0


def test_without_a_capture_growth_is_unknown(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(GrowingSteps(), _step(), tmp_path)


def _compiling(last: int, *, every: int = 10) -> Run:
    """Each tenth step up to a last one compiles for 40 ms; others take 10."""
    runs = Runs()
    for step in range(100):
        is_compiling = step % every == every - 1 and step <= last
        runs.step([*USUAL, (line(11), 40.0 * is_compiling)])
        if is_compiling:
            where, reason = {"file": "net.py", "line": 3, "function": "forward"}, "0/1: n == 3"
            runs.pause(PauseKind.COMPILATION, 40, reason=reason, change=Change.OTHER, **where)  # type: ignore[arg-type]
            runs.pause(PauseKind.COLLECTION, 20, back_ms=5)
    return runs.run()


def test_compilations_of_the_whole_run_are_found_though_no_recorded_step_compiles(tmp_path: Path) -> None:
    found = _with(_compiling(99), tmp_path).finding(Recompilation())
    assert evidence(found, "steps that compile") == 10
    assert evidence(found, "the same as a share of the training time") == pytest.approx(400 / 1400)
    assert evidence(found, "what had changed") == "0/1: n == 3"
    assert "out of the compiled code" in found.fix.summary
    assert found.saving.high_ns == pytest.approx(4 * MS, rel=0.01)


def test_compilations_of_the_first_steps_alone_happen_once(tmp_path: Path) -> None:
    assert not _with(_compiling(29), tmp_path).is_found(Recompilation())


@pytest.mark.parametrize(("last", "found"), [(20, True), (17, False)])
def test_a_function_that_torch_compiled_eight_times_runs_uncompiled_from_then_on(
    last: int, tmp_path: Path, *, found: bool
) -> None:
    captured = _with(_compiling(last, every=3), tmp_path)
    assert captured.is_found(Recompilation()) == found
    if found:
        given_up = captured.finding(Recompilation())
        assert evidence(given_up, "times that one function was compiled") == 8
        assert GIVEN_UP in given_up.caveats


def test_long_collections_after_the_last_step_do_not_count(tmp_path: Path) -> None:
    runs = Runs()
    for _ in range(20):
        runs.step(USUAL)
    runs.outside(line(30), 400)
    runs.pause(PauseKind.COLLECTION, 60)
    shares = {"gc_share": 0.16, "gc_long_share": 0.15, "gc_long_count": 3, "gc_longest_ns": 60 * MS}
    assert _with(runs.run(), tmp_path).with_settings(**shares).clear(GcPause()).value == pytest.approx(0.01)


def test_collections_while_torch_compiles_do_not_count(tmp_path: Path) -> None:
    captured = _with(_compiling(99), tmp_path)
    captured.with_settings(gc_share=0.15, gc_longest_ns=20 * MS, gc_long_count=10, gc_long_share=0.14)
    assert captured.clear(GcPause()).value == pytest.approx(0.01)


def test_slow_steps_without_gradients_are_found_with_their_line(tmp_path: Path) -> None:
    runs = Runs()
    for step in range(60):
        runs.step([(EVALUATE, 100.0), *USUAL] if step in {17, 20, 43} else USUAL)
    captured = _with(runs.run(), tmp_path)
    found = captured.finding(StepOutliers())
    assert [place.line for place in found.locations] == [3, 14]
    assert "only slow steps run it" in found.fix.summary


def test_other_code_of_the_slow_steps_counts_with_what_they_do_without_gradients(tmp_path: Path) -> None:
    """An evaluation calls a model for 20 ms and sorts its results for 80."""
    runs = Runs()
    slow = random.Random(4).sample(range(1, 64), 16)
    for step in range(64):
        runs.step([(EVALUATE, 20.0), (line(31), 80.0), *USUAL] if step in slow else USUAL)
    found = _with(runs.run(), tmp_path).finding(StepOutliers())
    assert found.locations[0].line == 31
    assert evidence(found, "extra time of slow steps in this code") == pytest.approx(16 * 100 * MS)


def test_with_a_limit_of_no_steps_a_run_without_compilations_is_clear(tmp_path: Path) -> None:
    assert _with(_growing(0), tmp_path).clear(Recompilation(fewest_steps=0)).value == 0


def test_collections_outside_of_training_steps_are_no_part_of_compilations(tmp_path: Path) -> None:
    """Each validation, after nine steps, collects for 60 ms: nothing compiles."""
    runs = Runs()
    for step in range(200):
        is_validation = step % 10 == 9
        runs.step(
            [(line(11), 100 if is_validation else 5)], state=StepState.OTHER if is_validation else StepState.PLAIN
        )
        if is_validation:
            runs.pause(PauseKind.COLLECTION, 60)
    shares = {"gc_share": 0.4, "gc_long_share": 0.4, "gc_long_count": 20, "gc_longest_ns": 60 * MS}
    found = _with(runs.run(), tmp_path).with_settings(**shares).finding(GcPause())
    assert evidence(found, "share of the run in garbage collection") == pytest.approx(0.4)
