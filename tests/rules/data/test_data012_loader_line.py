from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import C_SLEEP, MAIN, Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Method, Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.samples import OnlyCall, SampledFrame, StackSamples
from traceadvisor.rules.data.data012_loader_line import LoaderLineCost

ITEM = user("__getitem__", 31)
JSON = library("load", 293, "json/__init__.py")
NEXT = library("__next__", 700, "torch/utils/data/dataloader.py")
COLLATE = library("default_collate", 300, "torch/utils/data/_utils/collate.py")


def _loading(count: int, *frames: SampledFrame, rest: int = 20, is_waiting: bool = False) -> StackSamples:
    """Samples of a line, and of other loading."""
    samples = Samples().add(count, MAIN, NEXT, *frames, is_fetching=True, is_waiting=is_waiting)
    return samples.add(rest, MAIN, NEXT, COLLATE, is_fetching=True).build()


def _captured(
    folder: Path,
    workers: int,
    samples: StackSamples | None,
    *,
    wait_us: int = 60_000,
    on_gpu: bool = False,
    operator_us: int = 0,
    small_operators: int = 0,
    small_us: int = 10,
    function_us: int = 16_500,
) -> Captured:
    """Steps of 100 ms that wait for their batch and then compute."""
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    builder = TraceBuilder()
    for at in builder.steps(3, 100000):
        builder.loader(at, at + wait_us, kind=kind)
        builder.op("aten::mm", at + wait_us, at + 100_000)
        if operator_us:
            builder.op("aten::grid_sampler_3d", at + 10, at + operator_us)
        if small_operators:
            builder.python("train.py(30): __getitem__", at + 1_000, at + 1_000 + function_us)
        for place in range(small_operators):
            begins_us = at + 1_001 + 100 * place
            builder.op("aten::select", begins_us, begins_us + small_us)
        if on_gpu:
            builder.launch(at + wait_us, at + wait_us + 5, kernel=(at + wait_us + 10, at + 99_990))
    captured = Captured(builder, folder).loader(workers=workers).with_steps([wait_us] * 30, step_us=100_000 - wait_us)
    return captured.with_run(**{"loader_stacks" if workers else "stacks": samples})


def test_a_line_inside_the_loader_is_named_before_the_loop(tmp_path: Path) -> None:
    found = _captured(tmp_path, 0, _loading(80, ITEM, JSON)).finding(LoaderLineCost())
    assert found.locations == (Location("train.py", 31, "__getitem__"), LOOP)
    assert evidence(found, "share of the loading in the costliest line") == 0.8
    assert evidence(found, "samples of the costliest line") == 80
    assert found.fix.summary == "Read the files of this line once, when the data set is made, and keep what they hold"


def test_in_process_the_line_saves_its_share_of_the_loading(tmp_path: Path) -> None:
    saving = _captured(tmp_path, 0, _loading(80, ITEM)).finding(LoaderLineCost()).saving
    assert saving.expected_ns == pytest.approx(0.9 * 0.8 * 60_000_000, rel=0.02)
    assert saving.low_ns < 0.5 * 0.8 * 60_000_000 * 1.02
    assert saving.high_ns >= 0.8 * 60_000_000


@pytest.mark.parametrize(("inner", "removed"), [((), 0.6), ((library("filter", 1300, "PIL/Image.py"),), 0.5)])
def test_what_is_done_once_takes_half_of_the_lines_around_it_along(
    inner: tuple[SampledFrame, ...], removed: float, tmp_path: Path
) -> None:
    """The line takes half of the loading, another one of its function a fifth; a random filter is not done once."""
    samples = Samples().add(50, MAIN, NEXT, ITEM, *inner, is_fetching=True)
    samples.add(20, MAIN, NEXT, user("__getitem__", 33), is_fetching=True)
    samples.add(30, MAIN, NEXT, COLLATE, is_fetching=True)
    for workers, all_ns in ((2, 100_000_000), (0, 60_000_000)):
        saving = _captured(tmp_path, workers, samples.build()).finding(LoaderLineCost()).saving
        assert saving.expected_ns == pytest.approx(0.9 * removed * all_ns, rel=0.02)


def test_workers_that_are_waited_for_become_faster_by_its_share(tmp_path: Path) -> None:
    # The workers make a batch every 100 ms, and with 0.9 of 0.5 of it every 55 ms. The rest takes 40.
    saving = _captured(tmp_path, 2, _loading(50, ITEM, rest=50)).finding(LoaderLineCost()).saving
    assert saving.method is Method.MODEL
    assert saving.expected_ns == pytest.approx(45_000_000)
    assert saving.high_ns < 0.61 * 100_000_000  # without the line, by the upper end of its share


def test_a_line_saves_at_most_what_the_rest_of_the_step_leaves_of_it(tmp_path: Path) -> None:
    # Of the wait of 60 ms, 0.7 are what it usually takes to receive a batch.
    captured = _captured(tmp_path, 2, _loading(99, ITEM, rest=1))
    saving = captured.finding(LoaderLineCost()).saving
    assert saving.expected_ns == pytest.approx(59_300_000)
    assert saving.high_ns == pytest.approx(84_000_000), "of a step of 100 ms, 0.4 of whose rest of 40 ms stays"
    saving = captured.with_run(steps=_steps(10, 40)).finding(LoaderLineCost()).saving
    assert saving.expected_ns == pytest.approx(59_300_000)
    assert saving.high_ns == pytest.approx(96_000_000), "the rest took 10 ms in a tenth of the steps"


def test_beside_the_wait_a_line_of_workers_saves_at_most_its_own_cpu_time(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(99, ITEM, C_SLEEP, rest=1, is_waiting=True)).made(wait_us=200_000)
    assert captured.finding(LoaderLineCost()).saving.high_ns == pytest.approx(59_300_000), "a line that sleeps"
    captured = _captured(tmp_path, 2, _loading(99, ITEM, rest=1)).made(cpu_us=15_000, wait_us=185_000)
    saving = captured.finding(LoaderLineCost()).saving
    assert saving.high_ns == pytest.approx(74_300_000, rel=1e-3), "15 ms of each batch compute"


def test_undisturbed_steps_tell_how_long_the_loop_waits_for_workers(tmp_path: Path) -> None:
    """It waits for 10 ms of 100, and for 2 ms in recorded steps: the profiler slows the training down."""
    captured = _captured(tmp_path, 2, _loading(99, ITEM, JSON, rest=1), wait_us=2_000)
    found = captured.with_run(steps=_steps(90, 90, 10)).finding(LoaderLineCost())
    assert found.saving.expected_ns == pytest.approx(9_300_000)


@pytest.mark.parametrize("recorded_us", [10_000, 2_000])
def test_workers_without_cores_also_keep_the_training_from_them(recorded_us: int, tmp_path: Path) -> None:
    """Training and workers get one of eight cores, for 20 and 80 ms per step; the loop waits for 10 of 100 ms.

    In recorded steps it may wait less: the profiler slows the training down, so that workers get ahead.
    """
    captured = _captured(tmp_path, 2, _loading(99, ITEM, JSON, rest=1), wait_us=recorded_us)
    captured = captured.with_run(steps=_steps(30, 90, 10)).made(80_000, core_wait_us=80_000, workers=[0, 1])
    crowded = captured.sampled(cpu=1.0).with_processes(mean_cpu_cores=1.0).finding(LoaderLineCost())
    waited_ns, then_ns = 9_300_000, 30_700_000
    assert crowded.saving.low_ns == pytest.approx(waited_ns)
    expected_ns = waited_ns + (100_000_000 - then_ns - waited_ns) / 8
    assert crowded.saving.expected_ns == pytest.approx(expected_ns), "others take 7 of 8 cores of what is freed"
    assert "Other programs kept 7.0 of 8 CPU cores busy. Without them the saving is about 50% of the step." in (
        crowded.caveats
    )


def _steps(least_ms: int, usual_ms: int, wait_ms: int = 60) -> tuple[TimedStep, ...]:
    """Steps that wait so long; every fifth has the least rest."""
    return tuple(
        TimedStep(number, 10**18 + number * 10**8, (wait_ms + rest_ms) * 10**6, wait_ms * 10**6, 1, StepState.PLAIN, 0)
        for number, rest_ms in enumerate([least_ms, *[usual_ms] * 4] * 6)
    )


def test_beside_a_gpu_a_line_saves_at_most_the_wait(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(99, ITEM, rest=1), on_gpu=True)
    assert captured.finding(LoaderLineCost()).saving.high_ns <= 60_000_000


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((ITEM, C_SLEEP), "Fetch many samples at once"),
        ((ITEM, library("open", 3200, "PIL/Image.py")), "Decode the data once"),
        ((ITEM, library("filter", 1300, "PIL/Image.py")), "If these transformations make samples smaller"),
        (
            (ITEM, library("forward", 120, "torchvision/transforms/v2/_misc.py")),
            "If these transformations make samples smaller",
        ),
        ((ITEM, SampledFrame("tensor")), "Convert the data"),
        ((ITEM,), "If this code goes through values or samples one by one"),
    ],
)
def test_the_fix_says_what_to_do_with_such_a_line(frames: tuple[SampledFrame, ...], words: str, tmp_path: Path) -> None:
    found = _captured(tmp_path, 2, _loading(80, *frames, is_waiting=C_SLEEP in frames)).finding(LoaderLineCost())
    assert found.fix.summary.startswith(words)


def test_a_line_with_more_of_the_cpu_time_than_making_samples_collates(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(80, ITEM, rest=20)).made(cpu_us=40_000, collate_us=60_000)
    assert captured.finding(LoaderLineCost()).fix.summary.startswith("If this line goes through values one by one")


def test_work_of_own_functions_on_each_sample_in_a_collate_function_is_done_once_before(tmp_path: Path) -> None:
    samples = Samples()
    for line in range(10, 18):  # a tokenizer
        samples.add(10, MAIN, NEXT, ITEM, user("encode", line), is_fetching=True)
    samples.add(20, MAIN, NEXT, COLLATE, is_fetching=True)
    captured = _captured(tmp_path, 2, samples.build()).made(cpu_us=40_000, collate_us=60_000)
    assert "do its work once before the training" in captured.finding(LoaderLineCost()).fix.summary


@pytest.mark.parametrize(("until_us", "is_for_batches"), [(50_000, False), (20_000, True)])
def test_large_operators_of_a_line_take_as_long_for_whole_batches(
    until_us: int, tmp_path: Path, *, is_for_batches: bool
) -> None:
    found = _captured(tmp_path, 0, _loading(80, ITEM), operator_us=until_us).finding(LoaderLineCost())
    assert ("whole arrays or batches" in found.fix.summary) is is_for_batches


@pytest.mark.parametrize(
    ("count", "small_us", "function_us", "frames", "is_loop"),
    [
        (150, 10, 16_500, (), True),
        (90, 10, 16_500, (), False),
        (150, 80, 16_500, (), False),
        (150, 10, 50_000, (), False),
        (150, 10, 16_500, (library("forward", 120, "kornia/filters.py"),), False),
    ],
)
def test_a_line_whose_function_starts_many_small_operators_loops_over_them(
    count: int, small_us: int, function_us: int, frames: tuple[SampledFrame, ...], tmp_path: Path, *, is_loop: bool
) -> None:
    captured = _captured(
        tmp_path, 0, _loading(80, ITEM, *frames), small_operators=count, small_us=small_us, function_us=function_us
    )
    found = captured.finding(LoaderLineCost())
    assert found.fix.summary.startswith("Replace the loop around this line") is is_loop
    assert found.saving.is_of_place is not is_loop


def test_a_line_of_which_no_change_is_known_to_give_the_same_batches_promises_nothing(tmp_path: Path) -> None:
    saving = _captured(tmp_path, 2, _loading(50, ITEM, rest=50)).finding(LoaderLineCost()).saving
    assert saving.is_of_place
    assert saving.low_ns == 0
    read = _captured(tmp_path, 2, _loading(50, ITEM, library("open", 3200, "PIL/Image.py"), rest=50))
    assert not read.finding(LoaderLineCost()).saving.is_of_place


def test_a_line_does_not_collate_where_collating_takes_a_quarter_of_the_loading(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(80, ITEM, rest=20)).made(cpu_us=75_000, collate_us=25_000)
    assert "do its work once before the training" in captured.finding(LoaderLineCost()).fix.summary


def test_more_workers_come_first_if_they_save_more(tmp_path: Path) -> None:
    samples = _loading(50, ITEM, C_SLEEP, rest=50, is_waiting=True)
    captured = _captured(tmp_path, 1, samples).made(wait_us=100_000)
    first = judge(captured.facts()).findings[0]
    assert first.finding.rule.id == "DATA003"
    assert "DATA012" in first.also
    assert first.finding.locations[0].line == 31


def test_the_line_comes_first_if_it_saves_more_than_workers(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 1, _loading(96, ITEM, JSON, rest=4)).made(100_000).cores(2)
    first = judge(captured.facts()).findings[0]
    assert first.finding.rule.id == "DATA012"


def test_one_slow_worker_comes_before_the_line_that_it_runs(tmp_path: Path) -> None:
    # The first of two workers takes 100 ms for a batch, the other 1 ms: all samples show the line of the first.
    slow = dict.fromkeys(range(0, 40, 2), 99_000.0)
    captured = _captured(tmp_path, 2, _loading(96, ITEM, rest=4)).made(1_000, workers=[0, 1], slow=slow)
    first = judge(captured.facts()).findings[0]
    assert first.finding.rule.id == "DATA011"
    assert "DATA012" in first.also
    assert first.finding.locations[0].line == 31


@pytest.mark.parametrize(
    ("counts", "function_share"),
    [((33, 27, 20), 0.8), ((45, 20, 15), None), ((33, 20, 0), 0), ((20, 20, 20, 20), 0)],
)
def test_the_first_of_several_lines_is_named_where_their_function_takes_most_of_the_time(
    counts: tuple[int, ...], function_share: float | None, tmp_path: Path
) -> None:
    samples = Samples()
    for line, count in enumerate(counts, 31):
        samples.add(count, MAIN, NEXT, user("__getitem__", line), is_fetching=True)
    samples.add(100 - sum(counts), MAIN, NEXT, COLLATE, is_fetching=True)
    captured = _captured(tmp_path, 2, samples.build())
    if function_share == 0:
        assert captured.clear(LoaderLineCost()).value == counts[0] / 100
        return
    found = captured.finding(LoaderLineCost())
    assert found.locations[0].line == 31
    shown = {one.label: one.value for one in found.evidence}
    assert shown.get("share of the loading in its function") == function_share
    if function_share:
        assert found.saving.expected_ns == pytest.approx(0.9 * 0.33 * 100_000_000), "that of the line alone"


def test_a_line_with_a_small_part_of_the_loading_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 2, _loading(30, ITEM, rest=70)).clear(LoaderLineCost()).value == 0.3


def test_a_loop_that_hardly_waits_is_clear(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(80, ITEM), wait_us=4_000)
    assert captured.clear(LoaderLineCost()).label == "data wait"


@pytest.mark.parametrize(("made_us", "is_hidden"), [(90_000, True), (2_000, False)])
def test_a_slow_line_that_workers_hide_is_named(made_us: int, tmp_path: Path, *, is_hidden: bool) -> None:
    captured = _captured(tmp_path, 2, _loading(80, ITEM), wait_us=4_000).made(made_us)
    assert captured.clear(LoaderLineCost()).hidden_at == (
        Location("train.py", 31, "__getitem__") if is_hidden else None
    )


def test_few_samples_skip_the_rule(tmp_path: Path) -> None:
    for samples, reason in ((None, "No samples show"), (_loading(3, ITEM, rest=1), "Too few samples")):
        outcome = _captured(tmp_path, 2, samples).outcome(LoaderLineCost())
        assert isinstance(outcome, Skipped)
        assert outcome.reason.startswith(reason)


def test_beside_other_programs_a_line_saves_at_most_the_loading_in_process(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 0, _loading(80, ITEM)).with_settings(cpu_count=2)
    beside = captured.sampled(cpu=1.0).with_processes(mean_cpu_cores=1.0).finding(LoaderLineCost()).saving
    assert beside.method is Method.MODEL
    assert beside.expected_ns == pytest.approx(0.9 * 0.8 * 60_000_000)
    assert beside.expected_ns < beside.high_ns <= 60_000_000 + 0.6 * 40_000_000


@pytest.mark.parametrize("least_ms", [5, 40])
def test_in_process_a_line_saves_at_most_what_the_loader_takes(least_ms: int, tmp_path: Path) -> None:
    captured = _captured(tmp_path, 0, _loading(80, ITEM, rest=0))
    saving = captured.with_run(steps=_steps(least_ms, 40)).finding(LoaderLineCost()).saving
    assert saving.expected_ns == pytest.approx(0.9 * 60_000_000)
    assert saving.high_ns == pytest.approx(60_000_000)


@pytest.mark.parametrize("wait_us", [6_000, 20_000, 60_000, 90_000])
@pytest.mark.parametrize("undisturbed_us", [7_000, 50_000])
@pytest.mark.parametrize("count", [50, 80, 99])
def test_no_end_of_the_saving_exceeds_the_larger_share_of_the_loader(
    wait_us: int, undisturbed_us: int, count: int, tmp_path: Path
) -> None:
    captured = _captured(tmp_path, 0, _loading(count, ITEM, rest=100 - count), wait_us=wait_us)
    captured = captured.with_steps([undisturbed_us] * 30, step_us=100_000 - undisturbed_us)
    assert captured.finding(LoaderLineCost()).saving.high_ns <= 1000 * max(wait_us, undisturbed_us) * 1.001


@pytest.mark.parametrize(
    "inner", [SampledFrame("stack"), library("pad_sequence", 465, "torch/nn/utils/rnn.py"), SampledFrame("cat")]
)
def test_a_line_that_already_stacks_tensors_with_one_call_has_no_fix(inner: SampledFrame, tmp_path: Path) -> None:
    captured = _captured(tmp_path, 0, _loading(80, user("collate", 45), inner))
    assert captured.clear(LoaderLineCost()).remark == "it stacks or pads whole tensors with one call already"
    assert captured.with_run(stacks=_loading(80, user("collate", 45))).is_found(LoaderLineCost())


def test_the_fix_of_collating_python_values_converts_them_before(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 2, _loading(80, user("collate", 45), SampledFrame("tensor")))
    found = captured.made(cpu_us=40_000, collate_us=60_000).finding(LoaderLineCost())
    assert found.fix.summary.startswith("Convert the data")


@pytest.mark.parametrize(("is_fixed", "words"), [(True, "Call sinc_kernel once"), (False, "do its work once before")])
def test_a_function_whose_arguments_are_no_part_of_a_sample_is_called_once(
    words: str, tmp_path: Path, *, is_fixed: bool
) -> None:
    call = OnlyCall("train.py", "__getitem__", 30, 40, "sinc_kernel", 31, has_fixed_arguments=is_fixed)
    samples = replace(_loading(80, ITEM, user("sinc_kernel", 12)), only_calls=(call,))
    found = _captured(tmp_path, 0, samples).finding(LoaderLineCost())
    assert words in found.fix.summary
    assert found.locations[0] == Location("train.py", 31, "__getitem__")


@pytest.mark.parametrize("draw", [library("randrange", 300, "random.py"), SampledFrame("getrandbits")])
def test_numbers_that_python_draws_one_by_one_are_drawn_with_one_call(draw: SampledFrame, tmp_path: Path) -> None:
    found = _captured(tmp_path, 0, _loading(80, ITEM, draw)).finding(LoaderLineCost())
    assert found.fix.summary.startswith("Draw all random numbers")
    assert not found.saving.is_of_place


@pytest.mark.parametrize("name", ["randint", "uniform", "random", "choice", "rand"])
def test_functions_that_may_draw_whole_arrays_are_not_to_be_called_once(name: str, tmp_path: Path) -> None:
    """As those of torch and NumPy do, of which a sample has the last name only."""
    found = _captured(tmp_path, 0, _loading(80, ITEM, SampledFrame(name))).finding(LoaderLineCost())
    assert not found.fix.summary.startswith("Draw all random numbers")
