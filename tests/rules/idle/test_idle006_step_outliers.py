from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.analysis.whole_run.building import BACKWARD, NO_GRAD, Runs, line
from tests.build import TraceBuilder
from tests.few import few
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, facts_of, finding, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category, StepBreakdown
from traceadvisor.model.findings import Found, RuleOutcome
from traceadvisor.model.report import StepRow
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.samples import SampledFrame, StackSamples
from traceadvisor.model.steps import Step
from traceadvisor.rules.idle.idle004_python_overhead import PythonOverhead
from traceadvisor.rules.idle.idle006_step_outliers import StepOutliers
from traceadvisor.rules.idle.step_outliers import Outliers, grown_category, periodic_outliers


def _steps(*lengths_us: float) -> TraceBuilder:
    """In each step a kernel of 80 us; what a step takes beyond 100 us the host spends saving a checkpoint."""
    builder = TraceBuilder()
    at = 0.0
    for number, length in enumerate(lengths_us):
        builder.step(number, at, at + length).op("aten::mm", at, at + 20).launch(
            at + 5, at + 10, kernel=(at + 20, at + 100)
        )
        if length > 100:
            builder.annotation("save", at + 100, at + length)
            builder.python("train.py(12): write_checkpoint", at + 100, at + length)
        at += length
    return builder


def _captured(lengths_us: list[float], folder: Path) -> Captured:
    """Undisturbed steps of these lengths, of which 10 us each are spent in the loader; the trace shows quick ones."""
    steps, at = [], 0
    for number, length in enumerate(lengths_us):
        duration_ns = int(length * 1000)
        steps.append(TimedStep(number, at, duration_ns, 10_000, 1, StepState.PLAIN, 0))
        at += duration_ns
    return Captured(_steps(100, 100, 100), folder).with_run(steps=tuple(steps))


def test_a_step_far_longer_than_the_median_is_found(tmp_path: Path) -> None:
    found = finding(StepOutliers(), _steps(100, 100, 100, 600, 100, 100, 100), tmp_path)
    # One of the five between the first and the last takes 500 us more.
    assert evidence(found, "time in slow steps beyond the median") == 100_000
    assert evidence(found, "share of slow steps") == 0.2
    assert evidence(found, "longest") == 600_000
    assert found.claims.total_ns == 500_000


def test_the_finding_names_what_only_the_slow_step_contains(tmp_path: Path) -> None:
    found = finding(StepOutliers(), _steps(100, 100, 100, 600, 100, 100, 100), tmp_path)
    assert evidence(found, "extra time in slow steps: GPU idle (other CPU work)") == 500_000
    assert evidence(found, "save, only in slow steps") == 500_000
    assert evidence(found, "Python code in write_checkpoint (train.py:12)") == 500_000
    (location,) = found.locations
    assert (location.file, location.function) == ("train.py", "write_checkpoint")


def test_unknown_time_is_not_what_made_a_step_slow() -> None:
    def row(parts: dict[Category, int | None]) -> StepRow:
        length = sum(part or 0 for part in parts.values())
        return StepRow(Step(0, 0, length, 0, length), StepBreakdown(length, parts))

    odd = row({Category.IDLE_UNKNOWN: 500, Category.IDLE_HOST: 30})
    usual = row({Category.IDLE_UNKNOWN: 0, Category.IDLE_HOST: 10})
    assert grown_category([odd], [usual]) == (Category.IDLE_HOST, 20)


def test_the_first_and_the_last_step_do_not_count(tmp_path: Path) -> None:
    assert clear(StepOutliers(), _steps(900, 100, 100, 100, 900), tmp_path).value == 0


def test_steps_that_vary_a_little_are_clear(tmp_path: Path) -> None:
    assert clear(StepOutliers(), _steps(100, 110, 100, 145, 100, 120, 100), tmp_path).value == 0


def test_waiting_for_the_loader_does_not_count(tmp_path: Path) -> None:
    builder = _steps(100, 100, 100).step(3, 300, 900).loader(300, 800)
    builder.op("aten::mm", 800, 820).launch(805, 810, kernel=(820, 900))
    for number, at in ((4, 900), (5, 1000)):
        builder.step(number, at, at + 100).op("aten::mm", at, at + 20).launch(
            at + 5, at + 10, kernel=(at + 20, at + 100)
        )
    assert clear(StepOutliers(), builder, tmp_path).value == 0


def test_all_undisturbed_steps_of_a_run_are_compared(tmp_path: Path) -> None:
    lengths = [100.0] * 60
    for slow in (9, 19, 29, 39, 49, 59):
        lengths[slow] = 1000.0
    found = _captured(lengths, tmp_path).finding(StepOutliers())
    # Six of 59: the first step of a run counts nowhere.
    assert evidence(found, "time in slow steps beyond the median") == pytest.approx(900_000 * 6 / 59)
    assert evidence(found, "interval between slow steps") == "10 steps"
    assert evidence(found, "median step without time in data loader") == 90_000
    assert any("no slow step was recorded" in caveat for caveat in found.caveats)


AFTER = [((30, 30, 60), False), ((110, 110, 110), True), ((60, 110, 110), True)]


@pytest.mark.parametrize(("after", "is_found"), AFTER)
def test_a_step_in_which_the_cpu_only_waits_for_the_gpu_is_no_outlier(
    after: tuple[float, ...], tmp_path: Path, *, is_found: bool
) -> None:
    # A value is read in every tenth step: right after, the CPU launches three steps ahead of the GPU.
    lengths = [110.0, *[110.0, 110.0, 110.0, 110.0, 110.0, 110.0, 290.0, *after] * 6, 110.0]
    outcome = run_rule(StepOutliers(), _captured(lengths, tmp_path).facts())
    assert isinstance(outcome, Found) == is_found


def test_the_saving_is_a_share_of_the_training_time(tmp_path: Path) -> None:
    lengths = [100.0] * 51
    for slow in range(5, 51, 5):
        lengths[slow] = 1000.0
    found = _captured(lengths, tmp_path).finding(StepOutliers())
    # Ten of fifty take 900 us more than the usual 100.
    assert found.whole_ns == pytest.approx(280_000)
    assert found.saving.high_ns == pytest.approx(180_000)


def test_a_recorded_outlier_is_found_at_any_position_in_the_recording(tmp_path: Path) -> None:
    lengths = [100.0] * 60
    for slow in (9, 19, 29, 39, 49, 59):
        lengths[slow] = 1000.0
    run = _captured(lengths, tmp_path).facts().run
    assert run is not None
    captured = Captured(_steps(1000, 100, 100, 100), tmp_path).with_run(steps=run.steps)
    assert captured.finding(StepOutliers()).claims.total_ns == 900_000


@pytest.mark.parametrize(("rollout", "lines"), [(60, [14]), (30, [])])
def test_a_line_with_more_time_than_all_usual_steps_is_that_of_the_slow_ones(
    rollout: int, lines: list[int], tmp_path: Path
) -> None:
    # Of 1,700 us in eight steps, the slow one takes 900 beyond the median: 0.53 of the time.
    samples = Samples().add(rollout, user("<module>", 14), user("play", 5))
    for at in (40, 41):
        samples.add((100 - rollout) // 2, user("<module>", at))
    captured = _captured(([100.0] * 7 + [1000.0]) * 9, tmp_path)
    found = captured.with_run(stacks=samples.build()).finding(StepOutliers())
    assert [one.line for one in found.locations] == lines


def test_with_every_third_step_slow_step_times_vary_in_general(tmp_path: Path) -> None:
    outcome = _captured([100.0, 100.0, 1000.0] * 20, tmp_path).clear(StepOutliers())
    assert (outcome.label, outcome.remark) == ("steps far above the median", "steps vary throughout; no outliers")


@pytest.mark.parametrize("every", [3, 4])
def test_slow_steps_that_save_may_be_many(every: int, tmp_path: Path) -> None:
    captured = _captured([300.0 if number % every == 0 else 100.0 for number in range(40)], tmp_path)
    assert captured.clear(StepOutliers()).remark == "steps vary throughout; no outliers"
    run = captured.facts().run
    steps = (replace(step, checkpoint_ns=150_000 if step.duration_ns > 100_000 else 0) for step in run.steps)
    found = captured.with_run(steps=tuple(steps)).finding(StepOutliers())
    assert found.fix.summary == "Save checkpoints less often, or in the background"
    assert evidence(found, "interval between slow steps") == f"{every} steps"


@pytest.mark.parametrize(("checkpoint_us", "is_found"), [(90, False), (110, True)])
def test_a_save_is_the_cause_of_slow_steps_if_it_takes_half_of_their_extra_time(
    checkpoint_us: int, tmp_path: Path, *, is_found: bool
) -> None:
    """Each tenth step takes 200 us more, as one that also evaluates."""
    captured = _captured([300.0 if number % 10 == 0 else 100.0 for number in range(40)], tmp_path)
    steps = (
        replace(step, checkpoint_ns=checkpoint_us * 1000 if step.duration_ns > 200_000 else 0)
        for step in captured.facts().run.steps
    )
    fix = captured.with_run(steps=tuple(steps)).finding(StepOutliers()).fix
    assert fix.summary.startswith("Save checkpoints") is is_found


def test_without_a_gpu_steps_that_save_at_any_distance_are_found(tmp_path: Path) -> None:
    lengths = _at_random(3)
    captured = _run(lengths, _on_cpu(*[100.0] * 4), tmp_path)
    assert captured.clear(StepOutliers()).remark == "other programs delay steps at random like this"
    run = captured.facts().run
    steps = (replace(step, checkpoint_ns=300_000 if step.duration_ns > 150_000 else 0) for step in run.steps)
    assert captured.with_run(steps=tuple(steps)).finding(StepOutliers()).fix.summary.startswith("Save checkpoints")


def test_the_first_step_of_an_epoch_is_no_outlier(tmp_path: Path) -> None:
    captured = _captured([100.0] * 20 + [3000.0] + [100.0] * 20, tmp_path)
    run = captured.facts().run
    assert run is not None
    begun = tuple(replace(step, loader_start_ns=5000) if step.index == 20 else step for step in run.steps)
    assert captured.with_run(steps=begun).clear(StepOutliers()).value == 0


def test_in_an_even_run_a_slow_recorded_step_does_not_count(tmp_path: Path) -> None:
    captured = Captured(_steps(100, 100, 100, 600, 100, 100, 100), tmp_path)
    steps = _captured([100.0] * 30, tmp_path).facts().run
    assert steps is not None
    assert captured.with_run(steps=steps.steps).clear(StepOutliers()).value == 0


def test_python_in_one_step_is_a_finding_on_slow_steps_and_not_on_every_step(tmp_path: Path) -> None:
    facts = facts_of(_steps(100, 100, 100, 600, 100, 100, 100), tmp_path)
    (row,) = judge(facts, (PythonOverhead(), StepOutliers())).findings
    assert row.finding.rule.id == "IDLE006"
    assert evidence(row.finding, "share of slow steps") == 1 / 5  # without the first and the last


def test_with_only_slow_recorded_steps_nothing_is_compared(tmp_path: Path) -> None:
    run = _captured([100.0] * 24 + [3000.0], tmp_path).facts().run
    assert run is not None
    found = Captured(_steps(300, 300, 300), tmp_path).with_run(steps=run.steps).finding(StepOutliers())
    assert found.claims.total_ns == 900_000
    assert not [row for row in found.evidence if "extra time in slow steps" in row.label]


def test_three_steps_are_too_few(tmp_path: Path) -> None:
    assert "between the first and the last" in skipped(StepOutliers(), _steps(100, 900, 100), tmp_path)


@pytest.mark.parametrize(("longest_us", "found"), [(341, False), (342, True)])
def test_outliers_count_from_five_percent_of_the_training_time(
    longest_us: float, tmp_path: Path, *, found: bool
) -> None:
    # One of 40 steps takes 231 us more than the usual 110, or 232: 5% of the 4,631.5 us of all 40 are 231.6 us.
    captured = _captured([110.0] * 40 + [longest_us], tmp_path)
    assert captured.is_found(StepOutliers()) is found


@pytest.mark.parametrize(("long_us", "found"), [(160, False), (161, True)])
def test_a_step_is_slow_beyond_1_5_times_the_median(long_us: float, tmp_path: Path, *, found: bool) -> None:
    captured = _captured([110.0] * 21 + [long_us] * 5, tmp_path)
    assert captured.is_found(StepOutliers()) is found


@pytest.mark.parametrize(("count", "found"), [(6, False), (5, True)])
def test_up_to_a_fifth_of_the_steps_are_outliers(count: int, tmp_path: Path, *, found: bool) -> None:
    captured = _captured([110.0] * 21 + [510.0] * count, tmp_path)
    assert captured.is_found(StepOutliers()) is found


@pytest.mark.parametrize(("count", "is_looked_at"), [(19, False), (20, True)])
def test_at_least_twenty_undisturbed_steps_are_compared(count: int, tmp_path: Path, *, is_looked_at: bool) -> None:
    # Where they are not, three recorded steps are too few. The first step of a run does not count.
    captured = _captured([110.0] * count + [910.0], tmp_path)
    assert isinstance(captured.outcome(StepOutliers()), Found) is is_looked_at


def test_at_least_three_recorded_steps_between_first_and_last_are_compared(tmp_path: Path) -> None:
    assert evidence(finding(StepOutliers(), _steps(100, 100, 600, 100, 100), tmp_path), "longest") == 600_000
    assert "between the first and the last" in skipped(StepOutliers(), _steps(100, 100, 600, 100), tmp_path)


def test_at_most_three_names_are_shown(tmp_path: Path) -> None:
    builder = _steps(100, 100, 100, 600, 100, 100, 100)
    for number, name in enumerate(("evaluate", "plot", "upload", "clean up")):
        builder.annotation(name, 410 + number, 420 + number)
    found = finding(StepOutliers(), builder, tmp_path)
    assert len([row for row in found.evidence if row.label.endswith(", only in slow steps")]) == 3


@pytest.mark.parametrize(("stretch_us", "is_told"), [(99, False), (100, True)])
def test_python_is_shown_from_stretches_of_100_microseconds(stretch_us: int, tmp_path: Path, *, is_told: bool) -> None:
    builder, at = TraceBuilder(), 0
    for number, stretches in enumerate((0, 0, 4, 0, 0)):
        end = at + 100 + (stretch_us + 1) * stretches
        builder.step(number, at, end).op("aten::mm", at, at + 100).launch(at + 5, at + 10, kernel=(at + 20, at + 100))
        builder.python("train.py(12): learn", at, end)
        for call in range(at + 100 + stretch_us, end, stretch_us + 1):
            builder.op("aten::add", call, call + 1)
        at = end
    found = finding(StepOutliers(), builder, tmp_path)
    assert any(row.label.startswith("Python code") for row in found.evidence) is is_told


@pytest.mark.parametrize(("last", "every"), [(63, None), (62, 20)])
def test_intervals_are_regular_up_to_a_tenth_of_their_median(last: int, every: int | None) -> None:
    assert Outliers((0, 20, 40, last), 100, 1.0, 2.0, 0.1).every == every


def test_two_intervals_are_too_few() -> None:
    assert Outliers((0, 20, 40), 100, 1.0, 2.0, 0.1).every is None


def test_the_content_of_slow_steps_is_the_mean_per_step(tmp_path: Path) -> None:
    lengths = [100.0] * 12
    lengths[3] = lengths[7] = 600.0
    found = finding(StepOutliers(), _steps(*lengths), tmp_path)
    assert evidence(found, "save, only in slow steps") == 500_000
    assert evidence(found, "Python code in write_checkpoint (train.py:12)") == 500_000
    assert evidence(found, "share of slow steps") == 0.2


def _run(lengths_us: list[float], trace: TraceBuilder, folder: Path) -> Captured:
    run = _captured(lengths_us, folder).facts().run
    assert run is not None
    return Captured(trace, folder).with_run(steps=run.steps)


def _on_cpu(*lengths_us: float, content: str | None = None) -> TraceBuilder:
    """Steps without a GPU. What a step takes beyond 100 us is a longer operator, or a range of the script."""
    builder, at = TraceBuilder(), 0.0
    for number, length in enumerate(lengths_us):
        builder.step(number, at, at + length).op("aten::mm", at, at + (100 if content else length))
        if content and length > 100:
            builder.annotation(content, at + 100, at + length)
        at += length
    return builder


def _at_random(seed: int, *, count: int = 200, share: float = 0.12) -> list[float]:
    """Lengths of steps in microseconds, some of them two to five times as long as the others."""
    chance = np.random.default_rng(seed)
    lengths = chance.uniform(100, 120, count)
    slow = chance.random(count) < share
    lengths[slow] *= chance.uniform(2, 5, int(slow.sum()))
    return [float(length) for length in lengths]


def test_without_a_gpu_slow_steps_at_random_are_due_to_other_programs(tmp_path: Path) -> None:
    outcome = _run(_at_random(1), _on_cpu(100, 100, 300, 100), tmp_path).clear(StepOutliers())
    assert outcome.remark is not None
    assert "other programs" in outcome.remark


def test_without_a_gpu_slow_steps_with_a_content_of_their_own_are_found(tmp_path: Path) -> None:
    trace = _on_cpu(100, 100, 400, 100, content="validate")
    found = _run(_at_random(1), trace, tmp_path).finding(StepOutliers())
    assert evidence(found, "validate, only in slow steps") == 300_000


@pytest.mark.parametrize("every", [5, 7, 10, 25])
@pytest.mark.parametrize("seed", few(range(5), "traceadvisor/rules/idle"))
def test_a_periodic_cost_is_found_among_random_slow_steps(seed: int, every: int, tmp_path: Path) -> None:
    lengths = _at_random(seed)
    lengths[every - 1 :: every] = [900.0] * len(lengths[every - 1 :: every])
    found = _run(lengths, _on_cpu(100, 100, 100), tmp_path).finding(StepOutliers())
    assert evidence(found, "interval between slow steps") == f"{every} steps"
    assert evidence(found, "share of slow steps") == pytest.approx(1 / every, abs=0.01)
    assert evidence(found, "extra time in each of them") == pytest.approx(785_000, rel=0.03)
    assert evidence(found, "time in slow steps beyond the median") == pytest.approx(785_000 / every, rel=0.05)


def test_random_slow_steps_have_no_period() -> None:
    for seed in range(200):
        lengths = dict(enumerate(_at_random(seed, count=60 + seed, share=0.02 + seed / 1000)))
        slow = [index for index, length in lengths.items() if length > 180]
        assert periodic_outliers(lengths, slow, 1.5) is None, seed


def test_the_period_is_the_interval_and_not_its_multiple() -> None:
    lengths = {index: 1000.0 if index % 5 == 2 else 100.0 for index in range(100)}
    found = periodic_outliers(lengths, [index for index in lengths if index % 5 == 2], 1.5)
    assert found is not None
    assert (found.every, len(found.indices), found.each_excess_ns) == (5, 20, 900.0)


def test_steps_that_update_the_parameters_after_others_that_accumulate_are_no_outliers(tmp_path: Path) -> None:
    builder, at = TraceBuilder(), 0
    for number in range(12):
        end = at + (300 if number % 6 == 5 else 100)
        builder.step(number, at, end).op("aten::mm", at, at + 20).launch(at + 5, at + 10, kernel=(at + 20, at + 100))
        if number % 6 == 5:
            builder.optimizer(at + 100, end).op("aten::add_", at + 100, end)
            builder.launch(at + 110, at + 115, kernel=(at + 120, end))
        at = end
    builder.step(12, at, at + 100).op("aten::mm", at, at + 20).launch(at + 5, at + 10, kernel=(at + 20, at + 100))
    outcome = clear(StepOutliers(), builder, tmp_path)
    assert outcome.remark == "the slow steps update the parameters, others do not"


def _on_gpu(*extra: tuple[str, float], warm_up_us: float = 0) -> TraceBuilder:
    """Steps of one kernel of 80 us. An extra is a range with Python in it, or ``noise``: a slower call."""
    builder, at = TraceBuilder(), 0.0
    for number, (what, length) in enumerate(extra):
        begin, slower = at, length if what == "noise" else 0.0
        slower += warm_up_us if number < 2 else 0.0
        builder.op("aten::mm", at, at + 20 + slower)
        builder.launch(at + 5, at + 10 + slower, kernel=(at + 20 + slower, at + 100 + slower))
        at += 100 + slower
        if length and what != "noise":
            builder.annotation(what, at, at + length).python("train.py(12): write", at, at + length)
            at += length
        builder.step(number, begin, at)
    return builder


USUAL = ("", 0.0)


@pytest.mark.parametrize("what", ["checkpoint", "validate"])
def test_periodic_work_of_a_gpu_training_is_named_with_its_line_and_period(what: str, tmp_path: Path) -> None:
    extra = [(what, 400.0) if number % 6 == 5 else USUAL for number in range(30)]
    found = finding(StepOutliers(), _on_gpu(*extra, warm_up_us=30), tmp_path)
    assert evidence(found, "interval between slow steps") == "6 steps"
    assert evidence(found, "extra time in each of them") == pytest.approx(400_000)
    assert evidence(found, f"{what}, only in slow steps") == 400_000
    assert [(each.file, each.function) for each in found.locations] == [("train.py", "write")]


def test_a_warm_up_of_the_first_step_is_no_outlier(tmp_path: Path) -> None:
    # The first recorded step does not count, and the second is one of many.
    assert clear(StepOutliers(), _on_gpu(*[USUAL] * 40, warm_up_us=150), tmp_path).value < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_noise_on_a_gpu_training_has_no_period(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed)
    extra = [("noise", float(chance.uniform(80, 300))) if chance.random() < 0.12 else USUAL for _ in range(60)]
    outcome = _outcome(_on_gpu(*extra), tmp_path)
    if isinstance(outcome, Found):
        assert not [row for row in outcome.finding.evidence if row.label == "interval between slow steps"]
        assert outcome.finding.locations == ()


def _outcome(builder: TraceBuilder, folder: Path) -> RuleOutcome:
    """What comes of the rule."""
    return run_rule(StepOutliers(), facts_of(builder, folder))


def test_steps_that_all_lie_in_one_phase_have_no_others_to_be_compared_with() -> None:
    lengths = {index: 100.0 if index % 12 else 900.0 for index in range(0, 240, 3)}
    slow = [index for index, length in lengths.items() if length > 500]
    found = periodic_outliers(lengths | {3: 900.0}, sorted([3, *slow]), 1.5)
    assert found is not None
    assert found.period == 12


def test_without_a_loader_regular_slow_steps_may_be_the_rest_of_an_iteration(tmp_path: Path) -> None:
    captured = _captured([900.0 if number % 8 == 7 else 100.0 for number in range(80)], tmp_path)
    assert any("an iteration holds 8 optimizer steps" in one for one in captured.finding(StepOutliers()).caveats)
    fed = captured.loader().finding(StepOutliers())
    assert not any("iteration" in one for one in fed.caveats)
    alone = finding(StepOutliers(), _steps(100, 100, 100, 600, 100, 100, 100), tmp_path)
    assert not any("iteration" in one for one in alone.caveats)


ROLLOUT = line(20, library("log_prob", 90, "torch/distributions/normal.py"))
POLICY = line(20, library("_call_impl", 1, "torch/nn/modules/module.py"))


def _with_rollouts(folder: Path, *stacks: tuple[tuple[SampledFrame, ...], float]) -> Captured:
    """A run of updates of 10 ms, of which every third comes after this."""
    runs = Runs()
    for step in range(90):
        runs.step([(line(11), 10.0), *(stacks if step % 3 == 2 else ())])
    run = runs.run()
    return Captured(_on_cpu(100, 100, 100, 100), folder).with_run(steps=run.steps, stacks=_counted(run.stacks))


def _counted(samples: StackSamples | None) -> StackSamples | None:
    """The samples with their number by stack."""
    if samples is None:
        return None
    counts = Counter(one.stack for one in samples.timed)
    stacks = tuple(
        replace(stack, by_state={StepState.PLAIN: replace(stack.by_state[StepState.PLAIN], count=counts[at])})
        for at, stack in enumerate(samples.stacks)
    )
    return replace(samples, stacks=stacks, squares_ns2=float(sum(one.time_ns**2 for one in samples.timed)))


def test_a_line_that_runs_before_every_third_update_is_found_with_its_own_share(tmp_path: Path) -> None:
    found = _with_rollouts(tmp_path, (ROLLOUT, 60.0), (POLICY, 30.0)).finding(StepOutliers())
    assert [at.line for at in found.locations] == [20]
    assert evidence(found, "share of undisturbed steps at this line") == pytest.approx(60 / 120, abs=0.01)
    assert found.saving.high_ns < 0.7 * 40_000_000
    assert "only slow steps run it" in found.fix.summary


def test_updates_that_other_programs_hold_up_alike_are_no_line(tmp_path: Path) -> None:
    assert not _with_rollouts(tmp_path, (line(11), 90.0)).is_found(StepOutliers())


@pytest.mark.parametrize(("others", "found"), [(0, True), (6, False)])
def test_beside_other_programs_a_line_of_slow_steps_must_take_more_cpu_time(
    others: int, tmp_path: Path, *, found: bool
) -> None:
    """Steps too short for samples with CPU time: some stand at a line for longer."""
    runs, slow = Runs(), {7, 19, 22, 48, 61, 77, 83}
    for step in range(90):
        runs.step([(line(11), 10.0), *([(line(20), 60.0)] if step in slow else [])], cpu=0.0)
    run = runs.run()
    captured = Captured(_on_cpu(100, 100, 100, 100), tmp_path).with_run(steps=run.steps, stacks=_counted(run.stacks))
    captured = captured.sampled(cpu=(2 + others) / 8).with_processes(mean_cpu_cores=2.0)
    assert captured.is_found(StepOutliers()) is found


def test_the_model_before_every_third_update_is_no_line_to_make_faster(tmp_path: Path) -> None:
    assert not _with_rollouts(tmp_path, (POLICY, 90.0)).is_found(StepOutliers())


@pytest.mark.parametrize(
    ("has_loader", "rows", "layer_us", "words"),
    [
        (True, None, 34, "If this line evaluates"),
        (False, None, 34, "If this line evaluates"),
        (False, 32, 34, "If this line evaluates"),
        (False, 1, 34, "Run the model for many samples at once"),
        (False, 1, 35, "If this line evaluates"),  # many samples would take as long together
    ],
)
def test_larger_batches_are_proposed_without_gradients_only_if_small_layers_run_for_one_sample(
    words: str, rows: int | None, layer_us: int, tmp_path: Path, *, has_loader: bool
) -> None:
    runs, module = Runs(), library("_call_impl", 1, "torch/nn/modules/module.py")
    acts = line(14, NO_GRAD, SampledFrame("act", "train.py", 3, is_user=True), module)
    for number in range(60):
        runs.step([(line(11), 6.0), (line(12, BACKWARD), 4.0), *[(acts, 20.0)] * 3 * (number % 10 == 5)])
    run, builder = runs.run(), _steps(100, 100, 100)
    for at in (5, 50) if rows else ():
        builder.op("aten::linear", at, at + layer_us, dims=[[rows or 0, 24], [8, 24]])
        builder.op("aten::linear", at + 36, at + 40, dims=[[512, 24], [8, 24]], sequence=at)
    captured = Captured(builder, tmp_path).with_run(steps=run.steps, stacks=run.stacks)
    captured = captured.with_loader(batch_size=4) if has_loader else captured
    found = captured.finding(StepOutliers())
    assert words in found.fix.summary
    assert [at.line for at in found.locations] == [14]


def test_a_metric_beside_the_model_without_gradients_is_named_and_not_the_model(tmp_path: Path) -> None:
    runs, module = Runs(), library("_call_impl", 1, "torch/nn/modules/module.py")
    validates = line(14, NO_GRAD, SampledFrame("validate", "train.py", 30, is_user=True))
    metric = (SampledFrame("update", "train.py", 20, is_user=True), SampledFrame("match", "train.py", 8, is_user=True))
    for number in range(60):
        slow = [((*validates, module), 10.0), *[((*validates, *metric), 20.0)] * 3]
        runs.step([(line(11), 6.0), (line(12, BACKWARD), 4.0), *(slow if number % 10 == 5 else ())])
    run = runs.run()
    captured = Captured(_steps(100, 100, 100), tmp_path).with_run(steps=run.steps, stacks=run.stacks)
    found = captured.finding(StepOutliers())
    assert [(at.line, at.function) for at in found.locations] == [(8, "match"), (14, "main")]
    assert "only slow steps run it" in found.fix.summary


def test_the_limit_of_a_line_is_no_lower_than_its_extra_time_in_slow_steps(tmp_path: Path) -> None:
    """Steps of 10 ms, of which every third takes 90 ms more at a line: 30 of 40 ms on average."""
    found = _with_rollouts(tmp_path, *[(ROLLOUT, 30.0)] * 3).finding(StepOutliers())
    assert evidence(found, "extra time of slow steps as a share") == pytest.approx(0.75)
    assert found.saving.high_ns >= 0.75 * 40_000_000


@pytest.mark.parametrize(("after", "found"), [(14, True), (15, False), (None, False)])
def test_one_slow_step_without_gradients_counts_if_the_same_line_runs_after_the_last_step(
    after: int | None, tmp_path: Path, *, found: bool
) -> None:
    """A line that evaluates after half of the steps and after all of them; other programs delay every third step."""
    runs, module = Runs(), library("_call_impl", 1, "torch/nn/modules/module.py")
    inside = (NO_GRAD, SampledFrame("evaluate", "train.py", 3, is_user=True), module)
    for number in range(60):
        evaluates = [(line(14, *inside), 40.0)] * 6 if number == 30 else []
        runs.step([(line(11), 6.0 + 20 * (number % 3 == 1)), (line(12, BACKWARD), 4.0), *evaluates])
    for _ in range(6 if after else 0):
        runs.outside(line(after or 0, *inside), 40.0)
    run = runs.run()
    captured = Captured(_on_cpu(100, 100, 100, 100), tmp_path)
    captured = captured.with_run(steps=run.steps, stacks=run.stacks, started=run.started, ended=run.ended)
    outcome = captured.outcome(StepOutliers())
    assert isinstance(outcome, Found) is found
    if isinstance(outcome, Found):
        assert [at.line for at in outcome.finding.locations] == [14]


def test_slow_steps_at_intervals_are_found_where_other_programs_hold_up_a_part_of_the_run(tmp_path: Path) -> None:
    """Steps of 450 us beside other programs, then of 50; every 30th takes 2 ms more at a line of its own."""
    runs = Runs()
    for number in range(240):
        base = 0.45 if number < 100 else 0.05
        runs.step([(line(11), base), *([(line(14), 2.0)] if number % 30 == 29 else [])])
    run = runs.run()
    captured = Captured(_on_cpu(100, 100, 100, 100), tmp_path).with_run(steps=run.steps, stacks=run.stacks)
    found = captured.finding(StepOutliers())
    assert evidence(found, "interval between slow steps") == "30 steps"
    assert evidence(found, "time in slow steps beyond the median, averaged") == pytest.approx(
        2_000_000 * 8 / 239, rel=0.02
    )
