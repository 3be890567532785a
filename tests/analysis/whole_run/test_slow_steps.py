from dataclasses import replace

import pytest

from tests.analysis.whole_run.building import BACKWARD, COMPILER, LOOP, MS, NO_GRAD, Runs, line
from traceadvisor.analysis.steps.run_time import run_time
from traceadvisor.analysis.whole_run.sampled_steps import sampled_steps
from traceadvisor.analysis.whole_run.slow_steps import SlowSteps, slow_steps
from traceadvisor.model.run import Change, LoaderSettings, PauseKind, Run, RunSettings, StepState, TimedStep
from traceadvisor.model.run_time import RunCause, RunPart, RunTime
from traceadvisor.model.samples import OWN_WORK, OnlyCall, SampledFrame

USUAL = [(line(11), 6.0), (line(12, BACKWARD), 4.0)]
EVALUATE = line(14, NO_GRAD, SampledFrame("evaluate", "train.py", 3, is_user=True))
LOG = line(15, SampledFrame("emit", "logging/__init__.py", 1100))
BARRIER = line(16, SampledFrame("barrier", "torch/distributed/distributed_c10d.py", 4800))
WAIT = line(17, SampledFrame("synchronize", "torch/cuda/__init__.py", 1100))
SAVE = line(18, SampledFrame("save", "torch/serialization.py", 960))
IMPORT = line(2, SampledFrame("_find_and_load", "<frozen importlib._bootstrap>", 1176))


def slow_of(run: Run) -> SlowSteps:
    return slow_steps(run, sampled_steps(run, LOOP))


def time_of(run: Run) -> RunTime:
    found = run_time(run, None, sampled_steps(run, LOOP))
    assert found
    assert sum(found.parts_ns.values()) == found.total_ns
    return found


def test_compilations_are_the_cause_of_the_steps_that_hold_them() -> None:
    runs = Runs()
    for step in range(60):
        runs.step(USUAL if step % 10 else [*USUAL, (line(11, COMPILER), 40.0)])
        if step and not step % 10:
            runs.pause(PauseKind.COMPILATION, 40, file="model.py", line=3, reason="size 1", change=Change.SHAPE)
    found = slow_of(runs.run())
    assert found.steps_with(RunCause.COMPILATION) == [10, 20, 30, 40, 50]
    assert found.total_ns(RunCause.COMPILATION) == 5 * 40 * MS
    assert found.total_ns(RunCause.OTHER) == 0
    assert found.lines[RunCause.COMPILATION].line == 11
    assert found.changed
    assert found.changed.change is Change.SHAPE


@pytest.mark.parametrize(("work_ms", "slow_ms"), [(0, 39 * 80), (2.4, 39 * 80), (10, 0)])
def test_a_step_that_waits_for_a_device_with_launched_steps_is_not_slow(work_ms: float, slow_ms: float) -> None:
    """The CPU launches nine steps in 2 ms each, and reads the loss in the tenth, after 10 ms of GPU work for each."""
    runs = Runs()
    for step in range(400):
        runs.step([(line(11), 82.0 if step % 10 == 0 else 2.0)])
    run = runs.run()
    found = slow_steps(run, sampled_steps(run, LOOP), work_ms * MS)
    assert found.total_ns(RunCause.OTHER) == slow_ms * MS


def test_most_steps_may_compile_and_the_usual_step_is_still_known() -> None:
    runs = Runs()
    for _ in range(30):
        runs.step([*USUAL, (line(11, COMPILER), 40.0)]).pause(PauseKind.COMPILATION, 40)
    assert slow_of(runs.run()).total_ns(RunCause.COMPILATION) == 29 * 40 * MS  # the first step is start-up


def test_a_collection_inside_a_compilation_counts_as_compilation() -> None:
    runs = Runs()
    for step in range(60):
        runs.step([*USUAL, (line(11), 30.0 * (step == 30))])
        if step == 30:
            runs.pause(PauseKind.COMPILATION, 30).pause(PauseKind.COLLECTION, 12, back_ms=5)
    found = slow_of(runs.run())
    assert found.total_ns(RunCause.COMPILATION) == 30 * MS
    assert found.total_ns(RunCause.COLLECTION) == 0


@pytest.mark.parametrize(
    ("frames", "cause", "at"),
    [
        (EVALUATE, RunCause.EVALUATION, 14),
        (LOG, RunCause.LOGGING, 15),
        ((*LOG, SampledFrame("emit", "train.py", 6, is_user=True)), RunCause.LOGGING, 15),
        (BARRIER, RunCause.SYNCHRONISATION, 16),
        (WAIT, RunCause.SYNCHRONISATION, 17),
    ],
)
def test_samples_show_what_slow_steps_do(frames: tuple[SampledFrame, ...], cause: RunCause, at: int) -> None:
    runs = Runs()
    for step in range(60):
        runs.step([(frames, 100.0), *USUAL] if step and step % 10 == 0 else USUAL)
    found = slow_of(runs.run())
    assert found.total_ns(cause) == pytest.approx(5 * 100 * MS, rel=0.1)  # shares of samples: 100 of 110 ms
    assert found.lines[cause].line == at


def test_what_usual_steps_do_as_well_makes_none_slow() -> None:
    """A rollout without gradients in each step; other programs delay some."""
    backward = line(12, SampledFrame("_engine_run_backward", "torch/autograd/graph.py", 970))
    runs = Runs()
    for step in range(60):
        runs.step([(EVALUATE, 180.0 if step % 10 == 3 else 70.0), (backward, 20.0)])
    found = slow_of(runs.run())
    assert found.total_ns(RunCause.EVALUATION) == 0
    assert found.total_ns(RunCause.OTHER) == 6 * 110 * MS


def test_a_recording_that_is_saved_between_steps_is_no_code_of_the_script() -> None:
    runs = Runs()
    for step in range(60):
        runs.step(USUAL, state=StepState.RECORDED if step in {20, 21} else StepState.PLAIN)
        if step == 21:
            runs.step([(line(11, OWN_WORK), 5000.0), (line(15), 30.0)], state=StepState.OTHER, fetches=0)
    found = time_of(runs.run())
    assert found.parts_ns[RunPart.OTHER] == 30 * MS
    assert found.parts_ns[RunPart.RECORDING] == 5000 * MS


def test_a_decorated_function_with_a_backward_pass_is_no_evaluation() -> None:
    """As the closure of LBFGS, which calls it with gradients inside of a step without them."""
    backward = (*EVALUATE, SampledFrame("_engine_run_backward", "torch/autograd/graph.py", 970))
    runs = Runs()
    for step in range(60):
        runs.step([(EVALUATE, 40.0), (backward, 60.0), *USUAL] if step and step % 10 == 0 else USUAL)
    found = slow_of(runs.run())
    assert found.total_ns(RunCause.EVALUATION) == 0
    assert found.total_ns(RunCause.OTHER) == 5 * 100 * MS


LAYER = SampledFrame("_call_impl", "torch/nn/modules/module.py", 1780)
SCORE = SampledFrame("score", "train.py", 5, is_user=True)


def _scoring(names: tuple[str, ...], every: int) -> Run:
    """A run whose steps sometimes call a function of 20 ms that calls others by these names."""
    runs = Runs()
    for step in range(60):
        scored = [(line(14, SCORE, LAYER), 20.0)] if step and step % every == 0 else []
        runs.step([(line(11, LAYER), 20.0), (line(12, BACKWARD), 40.0), *scored])
    run = runs.run()
    assert run.stacks
    calls = tuple(OnlyCall("train.py", "score", 4, 9, name, 5) for name in names)
    return replace(run, stacks=replace(run.stacks, only_calls=calls))


def test_a_function_that_evaluates_without_gradients_is_named_in_the_time_of_training_steps() -> None:
    found = time_of(_scoring(("eval", "no_grad"), every=5))
    (own,) = [one for one in found.causes if one.part is RunPart.TRAINING]
    assert (own.cause, own.line and own.line.line) == (RunCause.EVALUATION, 14)
    assert own.total_ns == pytest.approx(11 * 20 * MS, rel=0.05)


@pytest.mark.parametrize(("names", "every"), [(("no_grad",), 5), (("eval",), 5), (("eval", "no_grad"), 60)])
def test_a_function_without_signs_of_evaluation_is_part_of_the_training(names: tuple[str, ...], every: int) -> None:
    assert not [one for one in time_of(_scoring(names, every)).causes if one.part is RunPart.TRAINING]


def test_a_part_of_the_model_that_each_step_runs_without_gradients_is_no_evaluation() -> None:
    """All layers run in a function that sets a frozen part to evaluation."""
    runs = Runs()
    for _ in range(60):
        runs.step([(line(11, SCORE, LAYER), 30.0), (line(12, BACKWARD), 40.0)])
    run = runs.run()
    assert run.stacks
    calls = tuple(OnlyCall("train.py", "score", 4, 9, name, 5) for name in ("eval", "no_grad"))
    assert not [one for one in time_of(replace(run, stacks=replace(run.stacks, only_calls=calls))).causes if one.line]


def test_without_a_backward_pass_code_without_gradients_is_what_the_steps_do() -> None:
    runs = Runs()
    for step in range(60):
        runs.step([(EVALUATE, 100.0 if step and step % 10 == 0 else 10.0)])
    assert RunCause.EVALUATION not in slow_of(runs.run()).lines


def test_the_line_that_slow_steps_have_more_of_is_named() -> None:
    runs = Runs()
    for step in range(100):
        runs.step([*USUAL, *([(line(20), 20.0)] * 2 if step and step % 10 == 0 else [])])
    found = slow_of(runs.run())
    assert found.total_ns(RunCause.OTHER) == 9 * 40 * MS
    assert found.lines[RunCause.OTHER].line == 20


def test_slow_steps_that_a_profiler_watches_are_no_usual_ones() -> None:
    """Every fourth step calls line 20: those with the profiler would show it as a line of usual steps, too."""
    runs = Runs()
    for step in range(60):
        state = StepState.RECORDED if 20 <= step < 40 else StepState.PLAIN
        longer = [(line(20), 100.0 if state is StepState.RECORDED else 20.0)] if step % 4 == 3 else []
        runs.step([*USUAL, *longer], state=state)
    assert slow_of(runs.run()).lines[RunCause.OTHER].line == 20


def test_steps_that_other_programs_delay_have_no_line() -> None:
    """All lines of a slow step take longer alike."""
    runs = Runs()
    for step in range(100):
        runs.step([(frames, ms * (5 if step % 10 == 3 else 1)) for frames, ms in USUAL])
    found = slow_of(runs.run())
    assert found.total_ns(RunCause.OTHER) == 10 * 40 * MS
    assert not found.lines


def test_the_line_that_saves_checkpoints_is_named_and_makes_no_step_slow() -> None:
    runs = Runs()
    for step in range(60):
        runs.step([*USUAL, (SAVE, 20.0)] if step % 10 == 9 else USUAL)
    run = runs.run()
    saved = [replace(one, checkpoint_ns=20 * MS * (one.index % 10 == 9)) for one in run.steps]
    (cause,) = time_of(replace(run, steps=tuple(saved))).causes
    assert (cause.part, cause.cause, cause.total_ns) == (RunPart.CHECKPOINTS, RunCause.SAVING, 6 * 20 * MS)
    assert cause.line
    assert cause.line.line == 18


def test_a_step_in_which_the_next_loop_starts_after_a_break_is_not_slow() -> None:
    runs, sampler = Runs(), line(10, SampledFrame("__iter__", "torch/utils/data/sampler.py", 182))
    for step in range(120):
        runs.step([*USUAL, (sampler, 300.0)] if step % 30 == 29 else USUAL)
    run = runs.run()
    steps = [replace(one, loader_start_ns=280 * MS if one.index % 30 == 0 else 0) for one in run.steps]
    broken = replace(run, steps=tuple(steps))
    assert slow_of(broken).steps_with(RunCause.OTHER) == [119]  # no loop starts in it
    assert slow_of(run).steps_with(RunCause.OTHER) == [29, 59, 89, 119]


def test_a_growing_step_is_compared_with_its_neighbours() -> None:
    runs = Runs()
    for step in range(400):
        runs.step([(line(11), 5 + step / 10)])
    assert not slow_of(runs.run()).parts


def test_slow_steps_are_a_part_of_the_run_with_causes() -> None:
    runs = Runs(start_ms=500)
    for number in range(10):
        runs.before(IMPORT if number < 6 else line(3), 50)
    for step in range(60):
        runs.step([*USUAL, *([(EVALUATE, 90.0)] * (step in {20, 40}))])
    found = time_of(runs.run(after_ms=20))
    assert found.parts_ns[RunPart.START_UP] == 500 * MS
    assert found.parts_ns[RunPart.SLOW] == 180 * MS
    assert found.parts_ns[RunPart.TRAINING] == 600 * MS
    assert found.training_share_of_loop == 1
    by_part = {part: sum(one.total_ns for one in found.causes if one.part is part) for part in RunPart}
    assert by_part[RunPart.START_UP] == found.parts_ns[RunPart.START_UP]
    assert by_part[RunPart.SLOW] == found.parts_ns[RunPart.SLOW]
    shares = {one.cause: one.total_ns for one in found.causes if one.part is RunPart.START_UP}
    # of the samples before the end of the first step, 300 of 510 ms import
    assert shares[RunCause.IMPORTS] == pytest.approx(500 * MS * 300 / 510, rel=1e-6)
    lines = {one.cause: one.line.line for one in found.causes if one.part is RunPart.START_UP and one.line}
    assert lines == {RunCause.IMPORTS: 2, RunCause.SET_UP: 3}


def test_a_first_step_that_takes_longer_is_no_code_before_it() -> None:
    runs = Runs(start_ms=100)
    for _ in range(5):
        runs.before(line(3), 20)
    runs.step([(line(14), 400)])
    for _ in range(60):
        runs.step(USUAL)
    found = time_of(runs.run())
    shares = {one.cause: one.total_ns / found.parts_ns[RunPart.START_UP] for one in found.causes}
    assert shares == {RunCause.FIRST_STEP: pytest.approx(0.8), RunCause.SET_UP: pytest.approx(0.2)}


def test_samples_of_a_small_part_of_the_start_tell_no_more_than_that_part() -> None:
    runs = Runs(start_ms=5_000)
    for _ in range(10):
        runs.before(IMPORT, 50)
    for _ in range(60):
        runs.step(USUAL)
    (cause,) = (one for one in time_of(runs.run()).causes if one.cause is RunCause.IMPORTS)
    assert cause.total_ns == 500 * MS


def test_a_run_has_64_stretches_that_sum_to_it_whatever_its_length() -> None:
    for steps in (3, 700):
        runs = Runs(start_ms=50)
        for _ in range(steps):
            runs.step(USUAL)
        found = time_of(runs.run(after_ms=7))
        assert len(found.stretches) == 64
        assert sum(one.steps for one in found.stretches) == steps
        assert found.stretches[0].start_ns == 0
        assert found.stretches[-1].end_ns == found.total_ns
        for part, ns in found.parts_ns.items():
            assert sum(one.parts_ns.get(part, 0) for one in found.stretches) == pytest.approx(ns, abs=64)


@pytest.mark.parametrize(("late_ms", "waits_ms"), [(0, 0), (2_000, 1_960)])
def test_workers_that_deliver_in_bursts_make_no_steps_slow(late_ms: float, waits_ms: float) -> None:
    """One step of four waits 160 ms for all four workers. A batch that is late by far is still found."""
    steps: list[TimedStep] = []
    for number in range(200):
        waited_ms = 160 * (number % 4 == 0) + late_ms * (number == 100)
        start = 10**18 + sum(step.duration_ns for step in steps)
        length = round((10 + waited_ms) * MS)
        steps.append(TimedStep(number, start, length, round(waited_ms * MS), 1, StepState.PLAIN, 0))
    settings = RunSettings(loader=LoaderSettings(worker_count=4))
    found = slow_of(Run(("train.py",), "", tuple(steps), settings, None))
    assert found.total_ns(RunCause.LOADER) == pytest.approx(waits_ms * MS, rel=0.05)


def test_the_end_of_a_run_has_its_causes_and_the_line_that_works() -> None:
    runs = Runs()
    for _ in range(10):
        runs.step(USUAL)
    for _ in range(8):
        runs.outside(line(30), 10)
    runs.outside(EVALUATE, 20)
    found = run_time(built := runs.run(), sampled=sampled_steps(built, None))
    assert found is not None
    ends = {one.cause: (one.total_ns, one.line and one.line.line) for one in found.causes if one.part is RunPart.AFTER}
    assert ends == {RunCause.OTHER: (80 * MS, 30), RunCause.EVALUATION: (20 * MS, None)}


def test_an_optimizer_that_every_step_runs_is_no_line_of_slow_steps() -> None:
    """Other programs hold up its step for 40 ms in six of 60 steps."""
    optimize = line(13, SampledFrame("_single_tensor_adam", "torch/optim/adam.py", 400))
    runs = Runs()
    for step in range(60):
        runs.step([*USUAL, (optimize, 40.0 if step % 10 == 3 else 1.0)])
    built = runs.run()
    assert RunCause.OTHER not in slow_steps(built, sampled_steps(built, None)).lines
