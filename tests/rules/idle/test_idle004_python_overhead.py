import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import AUTOGRAD, Generation, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from traceadvisor.analysis.operators.metric_modules import metric_calls
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Certainty, Effort, Fix, Found, Location, Method, Skipped
from traceadvisor.model.location import Frame, PlaceKind
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.samples import OnlyCall, SampledFrame
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rules import operator_sizes
from traceadvisor.rules.idle.idle004_python_overhead import PROFILED, PythonOverhead
from traceadvisor.rules.idle.model_python import OF_MODEL, TITLE
from traceadvisor.rules.idle.python_fixes import (
    FOR_LOCK,
    FOR_PROCESSES,
    KEPT,
    OF_DRAWS,
    OF_LARGE_OPERATORS,
    OF_LISTS,
    OF_LOOP,
    OF_NEEDED,
    WAIT_LESS,
    WHOLE_TENSORS,
)
from traceadvisor.savings.outcomes import finding_of
from traceadvisor.statistics import share_interval

FORWARD = ("torch/nn/modules/module.py(1751): _call_impl", "train.py(27): train", "train.py(80): main")
LATER = ("torch/optim/sgd.py(30): step", "train.py(31): train", "train.py(80): main")


def _steps(
    *, logging_us: float, count: int = 3, generation: Generation = Generation.CURRENT, stack: tuple[str, ...] = ()
) -> TraceBuilder:
    """A kernel of 100 us, then 40 us of preparing a batch's metrics and plain Python up to the next step."""
    builder = TraceBuilder(generation)
    length = 200 + logging_us
    for start in builder.steps(count, length):
        builder.op("aten::mm", start, start + 20, stack=stack).launch(
            start + 5, start + 10, kernel=(start + 20, start + 120)
        )
        builder.sync(start + 20, start + 120).op("aten::mm", start + 120, start + 190, stack=stack and LATER)
        builder.launch(start + 125, start + 130, kernel=(start + 140, start + 200))
    return builder


def test_a_long_stretch_without_operators_is_found_and_without_stacks_says_how_to_get_them(tmp_path: Path) -> None:
    # From the second kernel's end at 200 to the end of the step at 700.
    found = finding(PythonOverhead(), _steps(logging_us=500), tmp_path)
    assert evidence(found, "idle time in long stretches") == 500_000
    assert evidence(found, "long stretches of Python code") == 1
    assert found.locations == ()
    assert any("with_stack=True" in caveat for caveat in found.caveats)


def test_the_saving_is_simulated(tmp_path: Path) -> None:
    saving = finding(PythonOverhead(), _steps(logging_us=500, count=5), tmp_path).saving
    assert saving.method is Method.REPLAY
    # The 510 us between operators; that steps do without this code is not known.
    assert saving.is_of_place
    assert saving.low_ns == 0
    assert saving.expected_ns == pytest.approx(510_000, rel=0.01)


def test_code_of_an_inference_is_not_to_run_less_often(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(6, 1000):
        for place in range(10):
            builder.op("aten::linear", at + place, at + place + 1, sequence=-1)
        builder.op("aten::mm", at + 10, at + 12, sequence=-1).launch(at + 10, at + 11, kernel=(at + 12, at + 500))
        builder.sync(at + 20, at + 510)
    assert (
        finding(PythonOverhead(), builder, tmp_path).fix.summary
        == "Run this code in another process, or while the GPU computes"
    )


def test_work_in_only_some_steps_has_an_upper_limit(tmp_path: Path) -> None:
    # Five steps of 1000 us; in the second one, Python takes the place of the second kernel.
    builder = TraceBuilder()
    for step, start in enumerate(builder.steps(5, 1000)):
        builder.op("aten::mm", start, start + 20)
        builder.launch(start + 5, start + 10, kernel=(start + 20, start + 120))
        if step != 1:
            builder.op("aten::mm", start + 120, start + 900).launch(
                start + 125, start + 130, kernel=(start + 140, start + 1000)
            )
    found = finding(PythonOverhead(), builder, tmp_path)
    assert found.saving.method is Method.BOUND
    assert found.saving.is_of_place, "without a data loader, it may make the data of several steps"
    assert evidence(found, "steps with this code") == "1 of 5"
    fed = finding(PythonOverhead(), builder.loader(4980, 4981), tmp_path)
    assert "usual steps" in str(fed.saving.reason)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_stretch_after_the_last_optimizer_step_is_no_cost_of_every_step(count: int, tmp_path: Path) -> None:
    # Steps of 100 ms without a pause; after the last one's optimizer the script runs 85 ms of Python.
    builder = TraceBuilder()
    for step in range(count):
        start, end = 100_000 * step, 100_000 * (step + 1)
        builder.step(step, start, end + 85_000 * (step == count - 1)).op("aten::mm", start, start + 90_000)
        for at in range(start, start + 90_000, 9_000):
            builder.launch(at, at + 5, kernel=(at + 10, at + 8_990))
        builder.optimizer(start + 90_000, end).op("aten::add_", start + 90_000, end)
        builder.launch(start + 91_000, start + 91_005, kernel=(start + 91_010, end))
    facts = facts_of(builder, tmp_path)
    assert [step.index for step in facts.steps.typical] == list(range(count - 1))
    assert "it is the last step of the recording" in (facts.steps.steps[-1].atypical or "")
    assert clear(PythonOverhead(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("recorded", "skips"), [(None, False), (0, False), (2, True)])
def test_python_code_is_not_judged_in_steps_in_which_a_profiler_of_it_ran(
    recorded: int | None, tmp_path: Path, *, skips: bool
) -> None:
    captured = Captured(_steps(logging_us=500), tmp_path)
    captured = captured.with_settings(python_profiler="cProfile", python_profiler_recorded=recorded)
    outcome = captured.outcome(PythonOverhead())
    assert (outcome == Skipped(PROFILED)) is skips


def test_short_stretches_belong_to_the_launches_between_them(tmp_path: Path) -> None:
    assert clear(PythonOverhead(), _steps(logging_us=50), tmp_path).value == 0


def test_waiting_for_the_backward_pass_is_no_python(tmp_path: Path) -> None:
    # The autograd thread pauses for 600 of 1000 us between two nodes.
    builder, node = TraceBuilder(), "autograd::engine::evaluate_function: MmBackward0"
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 100)
        builder.launch(start + 5, start + 10, kernel=(start + 20, start + 100))
        builder.op(node, start + 100, start + 200, thread=AUTOGRAD).op(node, start + 800, start + 950, thread=AUTOGRAD)
        builder.launch(start + 900, start + 910, kernel=(start + 910, start + 1000), thread=AUTOGRAD)
    assert clear(PythonOverhead(), builder, tmp_path).value == 0


def test_waiting_for_other_ranks_is_no_python(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 200)
        builder.annotation("gloo:all_reduce", start + 200, start + 1000, thread=2)
    assert clear(PythonOverhead(), builder, tmp_path).value == 0


def test_python_that_overlaps_the_gpu_costs_nothing(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 20)
        builder.launch(start + 5, start + 10, kernel=(start + 20, start + 1000))
    assert clear(PythonOverhead(), builder, tmp_path).value < 0.01


def test_the_functions_are_named_the_costliest_first_with_what_they_call(tmp_path: Path) -> None:
    builder = _steps(logging_us=500)
    for start in (0, 700, 1400):
        builder.python("train.py(80): main", start, start + 700)
        builder.python("train.py(12): log_metrics", start + 210, start + 310)
        builder.python("json/__init__.py(183): dumps", start + 220, start + 310)
        builder.python("train.py(40): checkpoint", start + 310, start + 690)
        builder.python("torch/serialization.py(940): save", start + 320, start + 690)
        builder.python("<built-in method write of _io.BufferedWriter object at 0x7f00>", start + 330, start + 690)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert [(each.file, each.line, each.function) for each in found.locations[:2]] == [
        ("train.py", 40, "checkpoint"),
        ("train.py", 12, "log_metrics"),
    ]
    assert not found.locations[0].is_line
    assert evidence(found, "torch/serialization.py(940): save, called by checkpoint (train.py:40)") == 370_000
    assert evidence(found, "json/__init__.py(183): dumps, called by log_metrics (train.py:12)") == 90_000


def test_recordings_of_2021_name_the_lines_before_and_after(tmp_path: Path) -> None:
    builder = _steps(logging_us=500, generation=Generation.Y2021, stack=FORWARD)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert [(each.file, each.line) for each in found.locations] == [("train.py", 31), ("train.py", 27)]
    # Two of three: nothing follows the last.
    assert evidence(found, "between train.py:31 and train.py:27") == pytest.approx(500_000 * 2 / 3)


def test_without_a_gpu_every_long_stretch_counts(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 600)
        builder.python("train.py(12): log_metrics", start + 600, start + 1000)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert evidence(found, "in log_metrics (train.py:12)") == 400_000


def test_time_in_training_code_does_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 600)
        builder.python("train.py(12): train", start, start + 1000)
        builder.python("torch/_tensor.py(566): backward", start + 600, start + 990)
        builder.op(f"{AUTOGRAD}: MmBackward0", start + 600, start + 610, sequence=start, forward_thread=1)
    assert clear(PythonOverhead(), builder, tmp_path).value == pytest.approx(0.01)


def _on_cpu(*python_us: float, operators: int = 6) -> TraceBuilder:
    """Steps without a GPU or stacks: operators of 100 us each, and after the second one this much plain Python."""
    builder, at = TraceBuilder(), 0.0
    for number, length in enumerate(python_us):
        begin = at
        for position in range(operators):
            builder.op(f"aten::op{position}", at, at + 100)
            at += 100 + (length if position == 1 else 0)
        builder.step(number, begin, at)
    return builder


def test_without_stacks_python_at_the_same_place_of_each_step_is_found(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _on_cpu(*[400] * 6), tmp_path)
    assert evidence(found, "Python between aten::op1 and aten::op2") == 400_000
    assert any("with_stack=True" in caveat for caveat in found.caveats)


def test_a_step_that_was_delayed_at_this_place_does_not_count(tmp_path: Path) -> None:
    # The delayed one is three times as long as its neighbours at this place, but no outlier among these steps.
    builder = _on_cpu(200, 300, 230, 320, 250, 890, 280)
    facts, found = facts_of(builder, tmp_path), finding(PythonOverhead(), builder, tmp_path)
    # 1580 us in six of the seven steps.
    assert evidence(found, "Python between aten::op1 and aten::op2") == pytest.approx(
        1_580_000 / len(facts.steps.typical)
    )


def test_without_stacks_python_at_another_place_in_each_step_is_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(6, 1000)):
        for position in range(6):
            begin = at + 100 * position + (400 if position > number % 5 else 0)
            builder.op(f"aten::op{position}", begin, begin + 100)
    assert "no place takes this time" in skipped(PythonOverhead(), builder, tmp_path)


def test_with_two_steps_no_place_recurs(tmp_path: Path) -> None:
    assert "no place takes this time" in skipped(PythonOverhead(), _on_cpu(400, 400), tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_waiting_for_a_busy_core_is_no_place(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed)
    builder, at = TraceBuilder(), 0.0
    for number in range(8):
        begin = at
        for position in range(60):
            builder.op(f"aten::op{position}", at, at + 40)
            at += 45 + (3000 if chance.random() < 0.02 else 0)
        builder.step(number, begin, at)
    assert "no place takes this time" in skipped(PythonOverhead(), builder, tmp_path)


def test_without_stacks_garbage_collection_is_another_finding(tmp_path: Path) -> None:
    captured = Captured(_on_cpu(*[400] * 6), tmp_path)
    assert captured.with_settings(gc_share=0.1).is_found(PythonOverhead())
    assert captured.with_settings(gc_share=0.3).clear(PythonOverhead()).remark == (
        "garbage collection takes most of this time"
    )


def _small_operators(python_us: float, count: int = 6, shapes: Sequence[Sequence[int]] = ()) -> TraceBuilder:
    """Steps of fifty operators of 30 us each, with this much Python after each one."""
    builder, at = TraceBuilder(), 0.0
    for number in range(count):
        begin = at
        for _ in range(50):
            builder.op("aten::mm", at, at + 30, dims=shapes)
            at += 30 + python_us
        builder.step(number, begin, at)
    return builder


@pytest.mark.parametrize(("python_us", "found"), [(9, False), (10, True)])
def test_without_a_gpu_python_between_small_operators_counts_from_a_quarter_of_the_step(
    python_us: float, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(PythonOverhead(), _small_operators(python_us), tmp_path) is found


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (("torch/nn/modules/linear.py(124): forward",), False),
        (("torch/nn/modules/activation.py(1): forward", "torch/nn/functional.py(6200): attention"), False),
        (("torch/nn/modules/module.py(1747): _call_impl", "net.py(9): forward"), True),
        (("net.py(9): forward", "torch/functional.py(372): einsum"), True),
    ],
)
def test_small_operators_of_layers_are_none_that_the_script_can_join(
    frames: tuple[str, ...], tmp_path: Path, *, found: bool
) -> None:
    builder, at = TraceBuilder(), 0
    for number in range(6):
        begin = at
        for _ in range(50):
            for place, frame in enumerate(("train.py(3): step", *frames)):
                builder.python(frame, at + place, at + 48 - place)
            builder.op("aten::mm", at + 5, at + 35)
            at += 50
        builder.step(number, begin, at)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


def test_python_between_small_operators_has_an_upper_limit_and_its_own_remedy(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _small_operators(20, shapes=[[50, 50], [50, 30]]), tmp_path)
    assert found.saving.method is Method.BOUND
    called = 0.4 + 0.6 * 12.5 / 30  # each product takes 17.5 us at most
    left_ns = (1 - 0.4 * called) * (1 - called) * 50 * 50_000
    assert found.saving.high_ns == pytest.approx(50 * 50_000 - left_ns, rel=1e-4), "the rest is faster in proportion"
    assert found.saving.expected_ns == pytest.approx(1_000_000 / 2), "half of the Python between them"
    assert evidence(found, "operators without those inside others") == 50
    assert evidence(found, "median operator") == 30_000
    assert "larger operators" in found.fix.summary


def test_the_limit_of_small_operators_has_the_undisturbed_time_outside_the_loader(tmp_path: Path) -> None:
    # Recorded steps of 2.5 ms wait for 0.5 ms, others of 1 ms for 0.1 ms.
    builder = TraceBuilder()
    for number, at in enumerate(range(0, 15_000, 2_500)):
        builder.step(number, at, at + 2_500).loader(at, at + 500)
        for start in range(at + 500, at + 2_500, 50):
            builder.op("aten::mul", start, start + 15)
    steps = [TimedStep(number, number, 1_000_000, 100_000, 1, StepState.PLAIN) for number in range(30)]
    steps += [TimedStep(number, number, 2_500_000, 500_000, 1, StepState.RECORDED) for number in range(30, 36)]
    found = Captured(builder, tmp_path).with_run(steps=tuple(steps)).finding(PythonOverhead())
    assert found.saving.high_ns == pytest.approx(900_000, rel=0.01)


def test_with_a_gpu_short_stretches_belong_to_the_launches(tmp_path: Path) -> None:
    builder, at = TraceBuilder(), 0.0
    for number in range(5):
        begin = at
        for _ in range(20):
            builder.op("aten::mul", at, at + 10).launch(at + 2, at + 8, kernel=(at + 9, at + 12))
            at += 40
        builder.step(number, begin, at)
    assert not is_found(PythonOverhead(), builder, tmp_path)


def test_time_in_the_loader_does_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 1000):
        builder.op("aten::mm", start, start + 600)
        builder.loader(start + 600, start + 1000)
    assert clear(PythonOverhead(), builder, tmp_path).value == 0


def write_checkpoint() -> None:
    time.sleep(0.02)


def test_the_line_of_a_recording_by_current_torch_is_the_line_of_the_function(tmp_path: Path) -> None:
    path = tmp_path / "worker0.1.pt.trace.json"
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(4):
            with record_function("Optimizer.step#SGD.step"):
                torch.ones(8, 8).sum()
            write_checkpoint()
    profiler.export_chrome_trace(str(path))
    facts = Facts(read_trace(Origin(path, run="", worker="worker0", span="1")), None, "recording")
    outcome = run_rule(PythonOverhead(), facts)
    assert isinstance(outcome, Found)
    (location,) = outcome.finding.locations
    assert Path(location.file).name == Path(__file__).name
    assert Path(__file__).read_text().splitlines()[location.line - 1] == "def write_checkpoint() -> None:"


def _idle_at_the_end(*idle_us: float, step_us: float) -> TraceBuilder:
    """Steps of an operator and its kernel, and then as long of plain Python."""
    builder = TraceBuilder()
    for number, idle in enumerate(idle_us):
        at = step_us * number
        builder.step(number, at, at + step_us).op("aten::mm", at, at + step_us - idle)
        builder.launch(at + 1, at + 2, kernel=(at + 3, at + step_us - idle))
    return builder


@pytest.mark.parametrize(("idle_us", "found"), [(199, False), (200, True)])
def test_plain_python_counts_from_five_percent_of_the_step(idle_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = _idle_at_the_end(idle_us, idle_us, idle_us, step_us=4000)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


@pytest.mark.parametrize(("idle_us", "found"), [(99, False), (100, True)])
def test_a_stretch_of_plain_python_is_long_from_100_microseconds(idle_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = _idle_at_the_end(idle_us, idle_us, idle_us, step_us=1000)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


@pytest.mark.parametrize(("odd_us", "is_usual"), [(801, False), (799, True)])
def test_python_is_usual_if_the_median_step_has_more_than_half_of_the_mean(
    odd_us: int, tmp_path: Path, *, is_usual: bool
) -> None:
    # The mean of 200, 200 and 800 is 400.
    found = finding(PythonOverhead(), _idle_at_the_end(200, 200, odd_us, step_us=1000), tmp_path)
    assert (found.fix.what_if is not None) is is_usual


def _with_functions(*lengths_us: int) -> TraceBuilder:
    """Steps of 2 ms, of which 1 ms is plain Python in functions of these lengths, written line below line."""
    builder = _idle_at_the_end(1000, 1000, 1000, step_us=2000)
    for number in range(3):
        at = 2000 * number + 1000
        for line, length in enumerate(lengths_us):
            builder.python(f"train.py({line}): work", at, at + length)
            at += length
    return builder


@pytest.mark.parametrize(
    ("others_cores", "called_in", "found"), [(1.5, range(5), False), (1.5, [2], True), (0.0, range(5), True)]
)
def test_code_of_every_step_that_other_programs_held_up_in_one_is_no_finding(
    others_cores: float, called_in: Sequence[int], tmp_path: Path, *, found: bool
) -> None:
    idle_us = (20, 20, 1500, 20, 20)
    builder = _idle_at_the_end(*idle_us, step_us=2000)
    for step in called_in:
        builder.python("train.py(5): work", 2000 * step + 2000 - idle_us[step], 2000 * step + 2000)
    captured = Captured(builder, tmp_path).with_settings(cpu_count=2).with_processes(mean_cpu_cores=0.5)
    assert captured.with_node(mean_cpu_share=(0.5 + others_cores) / 2).is_found(PythonOverhead()) is found


def test_the_loops_own_code_that_other_programs_held_up_in_some_steps_is_no_finding(tmp_path: Path) -> None:
    # The call of the script's own code holds all steps: none begins inside of one.
    builder = _idle_at_the_end(20, 20, 1500, 20, 20, step_us=2000).python("train.py(1): <module>", -10, 10_010)
    captured = Captured(builder, tmp_path).with_settings(cpu_count=2).with_processes(mean_cpu_cores=0.5)
    assert not captured.with_node(mean_cpu_share=1.0).is_found(PythonOverhead())
    assert captured.with_node(mean_cpu_share=0.25).is_found(PythonOverhead())


def test_at_most_five_functions_are_named(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _with_functions(180, 170, 165, 163, 162, 160), tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2, 3, 4]


def test_a_function_is_named_from_five_percent_of_the_time(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _with_functions(851, 100, 49), tmp_path)
    assert [each.line for each in found.locations] == [0, 1]
    found = finding(PythonOverhead(), _with_functions(850, 100, 50), tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2]


def _with_average(
    *, in_module: bool = False, has_optimizer: bool = True, count: int = 4, flip_us: int = 0
) -> TraceBuilder:
    """Steps of 1 ms without a GPU: a module, its backward pass, and a user function that runs operators for 300 us.

    ``flip_us``: how long one operator of another function takes at the end of this.
    """
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(count, 1000)):
        builder.python("train.py(10): train", at, at + 1000)
        builder.python("nn.Module: Net_0", at, at + (800 if in_module else 300))
        builder.op("aten::mm", at + 1, at + 299, sequence=number)
        builder.op(
            "autograd::engine::evaluate_function: MmBackward0", at + 310, at + 500, sequence=number, forward_thread=1
        )
        if has_optimizer:
            builder.optimizer(at + 301, at + 309)
        builder.python("train.py(60): update", at + 500, at + 800 - flip_us)
        for start in range(at + 500, at + 800 - flip_us, 10):
            builder.op("aten::mul", start, start + 10)
        if flip_us:
            builder.python("train.py(70): flip", at + 800 - flip_us, at + 800)
            builder.op("aten::where", at + 800 - flip_us, at + 800)
        builder.op("aten::mm", at + 800, at + 1000, sequence=100 + number)
        builder.op("MmBackward0", at + 999, at + 1000, sequence=100 + number, forward_thread=1)
    return builder


def test_without_a_gpu_operators_that_no_backward_pass_needs_count_with_the_code_around_them(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _with_average(), tmp_path)
    assert evidence(found, "in update (train.py:60)") == 300_000
    assert found.claims.total_ns == 4 * 300_000
    assert [(each.line, each.function) for each in found.locations] == [(60, "update")]


@pytest.mark.parametrize(("function", "found"), [("step", False), ("log", True)])
def test_no_step_can_do_without_what_a_wrapper_of_an_optimizer_does_before_it(
    function: str, tmp_path: Path, *, found: bool
) -> None:
    builder = _with_average(has_optimizer=False)
    for at in range(0, 4000, 1000):
        builder.python(f"private.py(50): {function}", at + 500, at + 801).optimizer(at + 795, at + 799)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


@pytest.mark.parametrize(("made", "found"), [((50, 0), False), ((0,), True)])
def test_a_librarys_function_that_the_backward_pass_goes_through_cannot_run_less_often(
    made: tuple[int, ...], tmp_path: Path, *, found: bool
) -> None:
    """Steps of 1 ms without a GPU: a solver of 500 us, of which one operator takes 10."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.python("train.py(10): train", at, at + 1000).python("scipy/ode.py(7): solve", at + 300, at + 800)
        builder.op("aten::mm", at, at + 290, sequence=number).op("aten::mul", at + 300, at + 310, sequence=50 + number)
        for one in made:
            node = at + 900 - 2 * one
            builder.op("MmBackward0", node, node + 100, sequence=one + number, forward_thread=1)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


@pytest.mark.parametrize(("call_us", "is_large"), [(5, False), (4, True)])
def test_large_operators_beside_the_model_are_not_called_python_code(
    call_us: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    monkeypatch.setattr(operator_sizes, "MOST_USUAL_US", call_us)  # of 10 us
    found = finding(PythonOverhead(), _with_average(flip_us=120), tmp_path)
    assert ("on fewer elements if" in found.fix.summary) is is_large
    assert found.rule.title == (OF_LARGE_OPERATORS if is_large else PythonOverhead.meta.title)
    # One operator on whole tensors is no Python code, but one of them.
    assert found.claims.total_ns == 4 * (300_000 if is_large else 180_000)


def test_operators_of_a_module_belong_to_the_training(tmp_path: Path) -> None:
    assert not is_found(PythonOverhead(), _with_average(in_module=True), tmp_path)


def _with_search(*, has_operators: bool = False) -> TraceBuilder:
    """Steps of 1 ms without a GPU: a module calls a function of the user that runs for 500 us without operators."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.python("train.py(10): train", at, at + 1000)
        builder.python("nn.Module: Net_0", at, at + 800)
        builder.python("train.py(60): search", at + 300, at + 800)
        for start in range(at + 300, at + 800, 50 if has_operators else 500):
            builder.op("aten::mul", start, start + (50 if has_operators else 1))
        builder.op("aten::mm", at + 1, at + 299, sequence=number)
        builder.optimizer(at + 801, at + 809)
        builder.op("MmBackward0", at + 810, at + 1000, sequence=number, forward_thread=1)
    return builder


def _search_samples(count: int, *, has_operator: bool = False) -> Samples:
    train = (user("<module>", 80), user("train", 20), library("_call_impl", 1, "torch/nn/modules/module.py"))
    found = Samples().add(200 - count, *train)
    found = found.add(count * 3 // 4, *train, user("search", 62)).add(count // 4, *train, user("search", 63))
    return found.add(count, *train, user("search", 64), SampledFrame("mul", None, None)) if has_operator else found


def test_python_inside_a_module_without_operators_is_found_at_its_lines_with_the_sampled_share(tmp_path: Path) -> None:
    captured = Captured(_with_search(), tmp_path).with_run(stacks=_search_samples(80).build())
    found = captured.finding(PythonOverhead())
    assert found.rule.title == TITLE
    assert found.fix.summary == OF_MODEL.summary
    assert found.saving.method is Method.BOUND
    assert [(at.line, at.function, at.samples) for at in found.locations] == [(62, "search", 60), (63, "search", 20)]
    assert evidence(found, "share of undisturbed steps in this function") == pytest.approx(0.4, abs=0.01)
    assert found.saving.high_ns == pytest.approx(500_000, rel=0.01)  # recorded: more than the upper end of 40%
    assert found.claims.total_ns == pytest.approx(4 * 500_000, rel=0.01)


@pytest.mark.parametrize(("samples", "has_operators"), [(4, False), (80, True)])
def test_python_inside_a_module_needs_its_samples_and_a_stretch_without_operators(
    samples: int, tmp_path: Path, *, has_operators: bool
) -> None:
    builder = _with_search(has_operators=has_operators)
    outcome = run_rule(
        PythonOverhead(), Captured(builder, tmp_path).with_run(stacks=_search_samples(samples).build()).facts()
    )
    assert not (isinstance(outcome, Found) and outcome.finding.rule.title == TITLE)


def test_a_line_whose_time_passes_in_an_operator_is_no_place_of_python_code(tmp_path: Path) -> None:
    captured = Captured(_with_search(), tmp_path).with_run(stacks=_search_samples(80, has_operator=True).build())
    assert [at.line for at in captured.finding(PythonOverhead()).locations] == [62, 63]


def test_a_wait_inside_a_module_is_found_with_its_own_remedy(tmp_path: Path) -> None:
    # In each step of 1 ms, the module sleeps for 100 us in its function.
    builder = _with_average(in_module=True)
    for start in range(0, 4000, 1000):
        builder.python("train.py(70): forward", start + 510, start + 640)
        builder.python("<built-in function sleep>", start + 520, start + 620)
    train = (user("<module>", 80), user("train", 20), library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(40, *train, user("forward", 71), SampledFrame("sleep")).add(60, *train).build()
    found = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    assert found.fix.summary == WAIT_LESS.format("Call sleep")
    assert found.rule.title == "The script sleeps during the step"
    assert evidence(found, "share of undisturbed steps") == pytest.approx(0.4)


def test_a_wait_for_other_processes_is_not_called_python_that_could_run_less_often(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, start in enumerate(range(0, 4000, 1000)):
        builder.step(number, start, start + 1000).op("aten::mm", start, start + 300)
        builder.python("train.py(60): unroll", start + 300, start + 990)
        builder.python("multiprocessing/connection.py(429): _recv_bytes", start + 310, start + 910)
        builder.python("<built-in function read>", start + 320, start + 900)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert found.fix.summary == FOR_PROCESSES.summary
    assert found.rule.title == "The training waits for other processes"
    assert found.saving.certainty is Certainty.LIMIT
    assert [(each.line, each.function) for each in found.locations] == [(60, "unroll")]


def test_a_wait_for_a_lock_is_not_called_python_code(tmp_path: Path) -> None:
    found = finding(
        PythonOverhead(), _in_update("<built-in method acquire of _thread.lock object at 0x7f00>"), tmp_path
    )
    assert (found.rule.title, found.fix.summary) == ("The training waits for a lock", FOR_LOCK)


@pytest.mark.parametrize(
    ("around", "call", "title"),
    [
        ("threading.py(320): wait", "<built-in method acquire of _thread.lock object at 0x7f00>", "another thread"),
        ("/usr/lib/python3.11/subprocess.py(540): run", "<built-in function waitpid>", "a program that it starts"),
    ],
)
def test_a_wait_inside_pythons_own_library_is_for_what_that_waits_for(
    around: str, call: str, title: str, tmp_path: Path
) -> None:
    """Such as a queue that another thread fills: it waits by way of a lock that nobody holds for long."""
    found = finding(PythonOverhead(), _in_update(call, around), tmp_path)
    assert found.rule.title == f"The training waits for {title}"
    assert found.fix.summary.startswith("Call ")
    assert "ahead of the step" in found.fix.summary


def test_a_training_in_a_thread_of_its_own_does_not_wait_for_a_thread(tmp_path: Path) -> None:
    builder = _in_update("<built-in function sleep>").python("threading.py(982): run", 0, 4000)
    assert finding(PythonOverhead(), builder, tmp_path).rule.title == "The script sleeps during the step"


def test_a_wait_is_named_only_if_it_is_half_of_the_time_itself(tmp_path: Path) -> None:
    builder = _in_update("<built-in function sleep>")
    for start in range(0, 4000, 1000):
        builder.python("<built-in method acquire of _thread.lock object at 0x7f00>", start + 320, start + 630)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert found.rule.title == PythonOverhead.meta.title


def _in_update(call: str, around: str | None = None) -> TraceBuilder:
    """Steps of 1 ms; update runs for 690 us, of which 600 in a call, perhaps inside another one."""
    builder = TraceBuilder()
    for number, start in enumerate(range(0, 4000, 1000)):
        builder.step(number, start, start + 1000).op("aten::mm", start, start + 300)
        builder.python("train.py(60): update", start + 300, start + 990)
        if around:
            builder.python(around, start + 310, start + 930)
        builder.python(call, start + 320, start + 920)
    return builder


@pytest.mark.parametrize(("operators", "apart_us", "is_looped"), [(19, 30, False), (20, 30, True), (20, 2, False)])
def test_whole_tensors_replace_loops_only_where_these_take_the_time(
    operators: int, apart_us: int, tmp_path: Path, *, is_looped: bool
) -> None:
    builder = _in_update("<built-in function max>").op("aten::mm", 3999, 4000)
    for start in range(0, 4000, 1000):
        builder.python("nn.Module: Net_0", start, start + 300).optimizer(start + 991, start + 992)
        builder.op("MmBackward0", start + 993, start + 994, sequence=start, forward_thread=1)
        builder.op("aten::mm", start + 10, start + 290, sequence=start)
        for at in range(operators):
            builder.op("aten::select", start + 330 + apart_us * at, start + 331 + apart_us * at)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert (WHOLE_TENSORS in found.fix.summary) is is_looped
    assert found.rule.title == PythonOverhead.meta.title


OF_PLACES = (OF_NEEDED.format("Call max"), OF_LISTS.format("tensor"), OF_LISTS.format("asanyarray"))
"""Remedies of which the recording does not show whether they give the same."""


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        ("<built-in function max>", f"Call max less often than every step, or {KEPT}"),
        ("<built-in method index of list object at 0x7f00>", f"Call list.index less often than every step, or {KEPT}"),
        (
            "<built-in method max of type object at 0x7f00>",
            OF_PLACES[0],
        ),
        ("<built-in method tensor of type object at 0x7f00>", OF_PLACES[1]),
        ("<built-in function asanyarray>", OF_PLACES[2]),
        ("torch/serialization.py(900): save", "Call save less often than every step, or in another process"),
        ("<built-in function print>", "Call print less often than every step, or in another process"),
        ("torch/nn/modules/module.py(2900): train", "Call train less often than every step"),
    ],
)
def test_only_code_that_another_process_could_run_is_to_run_there(call: str, fix: str, tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _in_update(call), tmp_path)
    assert found.fix.summary == fix
    assert found.saving.is_of_place is (fix in OF_PLACES)


@pytest.mark.parametrize(
    ("call", "drawn"),
    [
        ("<built-in method random of Random object at 0x7f00>", "random.random"),
        ("<built-in method getrandbits of Random object at 0x7f00>", "random.getrandbits"),
        ("random.py(330): randrange", "random.randrange"),
        ("<built-in method randint of type object at 0x7f00>", None),
        ("<built-in method random of numpy.random._generator.Generator object at 0x7f00>", None),
        ("<built-in method uniform of numpy.random.mtrand.RandomState object at 0x7f00>", None),
    ],
)
def test_only_numbers_that_python_draws_one_by_one_are_to_be_drawn_with_one_call(
    call: str, drawn: str | None, tmp_path: Path
) -> None:
    summary = finding(PythonOverhead(), _in_update(call), tmp_path).fix.summary
    assert (summary == OF_DRAWS.format(drawn)) if drawn else not summary.startswith("Draw all")


def test_the_function_of_a_library_that_runs_the_training_is_not_to_be_called_less_often(tmp_path: Path) -> None:
    whole = _in_update("torch/nn/modules/module.py(2900): train")
    whole.python("lightning/pytorch/trainer/trainer.py(500): fit", 0, 10**6)
    assert "Call train" in finding(PythonOverhead(), whole, tmp_path).fix.summary
    builder = TraceBuilder()
    builder.python("train.py(80): main", 0, 10_000).python("lightning/pytorch/trainer/trainer.py(500): fit", 0, 10_000)
    for start in builder.steps(10, 1000):
        builder.op("aten::mm", start, start + 300).python(
            "lightning/pytorch/loops/loop.py(7): log", start + 400, start + 900
        )
    found = finding(PythonOverhead(), builder, tmp_path)
    assert found.fix.summary == OF_LOOP.format("fit")
    assert found.saving.is_of_place


def test_the_only_line_that_calls_what_keeps_the_interpreter_is_named_where_few_samples_name_the_call(
    tmp_path: Path,
) -> None:
    builder = _with_average()
    for start in range(0, 4000, 1000):
        builder.python("<built-in method tensor of type object at 0x7f00>", start + 500, start + 800)
    call = OnlyCall("train.py", "update", 60, 70, "tensor", 64)
    stack = (user("<module>", 80), user("update", 64))
    samples = Samples().add(2, *stack).add(1, *stack, SampledFrame("tensor")).build()
    captured = Captured(builder, tmp_path)
    found = captured.with_run(stacks=replace(samples, only_calls=(call,))).finding(PythonOverhead())
    assert [(each.line, each.kind, each.samples) for each in found.locations] == [(64, PlaceKind.ONLY_CALL, 3)]
    assert not any(each.is_line for each in captured.with_run(stacks=samples).finding(PythonOverhead()).locations)


def test_operators_may_update_the_model_if_no_step_of_an_optimizer_was_recorded(tmp_path: Path) -> None:
    assert not is_found(PythonOverhead(), _with_average(has_optimizer=False), tmp_path)


def test_samples_of_undisturbed_steps_decide_over_the_recording(tmp_path: Path) -> None:
    main, train = user("<module>", 80), user("train", 20)
    update = (main, train, user("update", 65))
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    tenth = Samples().add(20, *update).add(180, *rest).build()
    found = Captured(_with_average(), tmp_path).with_run(stacks=tenth).finding(PythonOverhead())
    assert found.saving.method is Method.MODEL
    assert evidence(found, "share of undisturbed steps") == pytest.approx(0.1)
    assert found.saving.expected_ns == pytest.approx(0.9 * 0.1 * 1_000_000)
    hardly = Samples().add(1, *update).add(399, *rest).build()
    assert "recording makes" in (
        Captured(_with_average(), tmp_path).with_run(stacks=hardly).clear(PythonOverhead()).remark or ""
    )


def test_code_with_one_call_is_named_by_the_line_that_can_run_less_often(tmp_path: Path) -> None:
    main, train = user("<module>", 80), user("train", 20)
    samples = Samples().add(30, main, user("train", 23), user("update", 65)).add(10, main, user("train", 23))
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    shared = Captured(_with_average(), tmp_path).with_run(stacks=samples.add(160, *rest).build())
    assert [each.line for each in shared.finding(PythonOverhead()).locations] == [65]  # its line does more
    alone = Samples().add(30, main, user("train", 23), user("update", 65)).add(170, *rest).build()
    (found,) = Captured(_with_average(), tmp_path).with_run(stacks=alone).finding(PythonOverhead()).locations
    assert (found.line, found.function, found.samples) == (23, "train", 30)
    assert found.owner == Frame("update", "train.py", 65)


@pytest.mark.parametrize(("count", "method"), [(10, Method.MODEL), (9, Method.BOUND)])
def test_few_samples_of_the_code_give_only_a_limit(count: int, method: Method, tmp_path: Path) -> None:
    main, train = user("<module>", 80), user("train", 20)
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(count, main, train, user("update", 65)).add(9 * count, *rest).build()
    saving = Captured(_with_average(), tmp_path).with_run(stacks=samples).finding(PythonOverhead()).saving
    assert saving.method is method
    assert saving.high_ns > 0.1 * 1_000_000


@pytest.mark.parametrize(("length_us", "found"), [(14, True), (15, False)])
def test_without_a_gpu_a_pass_of_small_operators_is_found(length_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100 * length_us):
        for start in range(at, at + 100 * length_us, length_us):
            builder.op("aten::mul", start, start + length_us - 1)
    assert is_found(PythonOverhead(), builder, tmp_path) is found


def _held_up(name: str, *, count: int = 250, usual_us: int = 12, held_up_us: int = 300) -> TraceBuilder:
    """Steps of many short operators, of which the busy machine holds up every tenth."""
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin = at
        for position in range(count):
            took = held_up_us if position % 10 == 9 else usual_us
            builder.op(name, at, at + took, stack=("train.py(17): forward", "train.py(31): train"))
            at += took + 1
        builder.step(number, begin, at)
    return builder


@pytest.mark.parametrize(("count", "usual_us", "found"), [(250, 12, True), (250, 35, False), (150, 12, False)])
def test_many_short_operators_are_found_however_long_a_busy_machine_holds_up_some(
    count: int, usual_us: int, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(PythonOverhead(), _held_up("aten::mul", count=count, usual_us=usual_us), tmp_path) is found


@pytest.mark.parametrize(
    ("name", "fix"), [("aten::lstm_cell", "torch.nn.LSTM"), ("aten::mul", "fewer, larger operators")]
)
def test_a_loop_over_cells_becomes_one_recurrent_layer(name: str, fix: str, tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _held_up(name), tmp_path)
    assert fix in found.fix.summary
    assert [(at.file, at.line) for at in found.locations] == [("train.py", 17)]


def _cells(*between: str) -> TraceBuilder:
    """Steps of 60 cells of 20 us, with operators of 6 us before each."""
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin = at
        for name in (*between, "aten::lstm_cell") * 60:
            took = 20 if name == "aten::lstm_cell" else 6
            builder.op(name, at, at + took, stack=("train.py(17): forward", "train.py(31): train"))
            at += took + 1
        builder.step(number, begin, at)
    return builder


@pytest.mark.parametrize(
    ("between", "found"),
    [
        (("aten::select", "aten::squeeze", "aten::add"), True),  # nothing that computes an input
        (("aten::linear", "aten::select", "aten::embedding"), True),  # an output layer, then the next known token
        (("aten::linear", "aten::cross_entropy_loss", "aten::add", "aten::select"), True),
        (("aten::linear", "aten::argmax", "aten::embedding"), False),  # the next token is drawn from the output
        (("aten::matmul", "aten::softmax", "aten::mul", "aten::sum", "aten::cat"), False),  # attention
        (("aten::select", "aten::bmm", "aten::softmax", "aten::bmm", "aten::squeeze"), False),
        (("aten::linear", "aten::relu", "aten::unsqueeze"), False),  # the output is the next input
    ],
)
def test_a_loop_over_cells_stays_if_what_is_between_them_makes_the_next_input(
    between: tuple[str, ...], tmp_path: Path, *, found: bool
) -> None:
    assert is_found(PythonOverhead(), _cells(*between), tmp_path) is found


def _calls_of_a_module(
    *between: str,
    before: str = "aten::index",
    makes: int = 4,
    needs_gradient: bool = True,
    has_shapes: bool = True,
    feeds: list[list[int]] | None = None,
    has_backward: bool = True,
    gap: int = 0,
) -> TraceBuilder:
    """Steps with 40 calls of a module with one product each, operators after each call, and the backward pass.

    ``feeds``: shapes of one more operator, right before the next call. ``gap``: Python before that, in microseconds.
    """
    builder, at = TraceBuilder(), 0
    shapes = [[32, 4], [makes, 4]] if has_shapes else []
    for number in range(4):
        begin, at = at, at + 8
        builder.op(before, begin, at)
        for call in range(100 * number, 100 * number + 40):
            builder.python("nn.Module: ODEFunc_0", at, at + 13).op("aten::linear", at + 1, at + 11, dims=shapes)
            builder.op("aten::mm", at + 2, at + 10, dims=shapes and [[32, 4], [4, makes]], sequence=call)
            for place, name in enumerate(between):
                builder.op(name, at + 14 + 7 * place, at + 20 + 7 * place)
            at += 14 + 7 * len(between)
            if gap:
                builder.python("env.py(20): step", at, at + gap)
                at += gap
            if feeds:
                builder.op("aten::cat", at, at + 5, dims=feeds)
                at += 6
        for call in reversed(range(100 * number, 100 * number + 40)) if has_backward else ():
            builder.op(f"{AUTOGRAD}: MmBackward0", at, at + 12, sequence=call, forward_thread=1)
            gradient = [[32, makes], [makes, 4]] if needs_gradient else [[4, 32], [32, makes]]
            builder.op("aten::mm", at + 1, at + 11, dims=gradient)
            at += 13
        builder.step(number, begin, at)
    return builder


@pytest.mark.parametrize(
    "builder",
    [
        _calls_of_a_module("aten::mul", "aten::add"),
        _calls_of_a_module("aten::mul", "aten::add", has_backward=False),
        _calls_of_a_module("aten::mul", makes=3, feeds=[[32, 3], [32, 1]]),  # the next input is made of the output
    ],
)
def test_calls_of_a_module_that_need_the_one_before_are_no_small_operators(
    builder: TraceBuilder, tmp_path: Path
) -> None:
    clear(PythonOverhead(), builder, tmp_path)


def test_python_between_calls_that_need_each_other_is_the_scripts_own(tmp_path: Path) -> None:
    """As where an environment makes the next observation: each step calls it 40 times."""
    builder = _calls_of_a_module("aten::mul", "aten::add", gap=200)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert found.claims.total_ns >= 4 * 40 * 200_000


def test_a_call_whose_input_is_drawn_from_the_output_before_needs_it(tmp_path: Path) -> None:
    clear(PythonOverhead(), _calls_of_a_module("aten::select", "aten::argmax", makes=9), tmp_path)


@pytest.mark.parametrize(
    "builder",
    [
        _calls_of_a_module("aten::mul", "aten::add", needs_gradient=False),  # the input is data
        _calls_of_a_module("aten::mul", "aten::add", makes=9),  # the output has another shape than the next input
        _calls_of_a_module("aten::mul", "aten::add", has_shapes=False),
        _calls_of_a_module("aten::add", "aten::select"),  # the input is a part of a tensor
        _calls_of_a_module(has_backward=False),  # as over a list of equal shapes
        _calls_of_a_module("aten::mul", makes=3, needs_gradient=False, feeds=[[32, 3], [32, 1]]),
        _calls_of_a_module("aten::mul", "aten::add", before="aten::unbind"),  # the loop is over parts of a tensor
    ],
)
def test_calls_of_a_module_are_small_operators_if_nothing_shows_that_they_need_each_other(
    builder: TraceBuilder, tmp_path: Path
) -> None:
    assert is_found(PythonOverhead(), builder, tmp_path)


def _recurrent_layer(name: str, *, called_inside: bool = False, inside: int = 60) -> TraceBuilder:
    """Steps of one operator that runs short others, and the backward pass through these."""
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin, first = at, 1000 * number
        if name:
            builder.op(name, begin, begin + 10 * inside + 2)
        for part in range(inside):
            at += 10
            builder.op("aten::mm", at - 8, at - 5, sequence=first + 2 * part)
            builder.op("aten::tanh", at - 5, at - 2, sequence=first + 2 * part + 1)
            if called_inside:
                builder.python("train.py(17): forward", at - 2, at - 1)
        at += 10
        for made in reversed(range(first, first + 2 * inside)):
            builder.op(f"{AUTOGRAD}: Node", at, at + 4, sequence=made, forward_thread=1)
            at += 5
        builder.step(number, begin, at)
    return builder


def test_parts_of_a_native_operator_are_no_small_operators_nor_is_their_backward_pass(tmp_path: Path) -> None:
    clear(PythonOverhead(), _recurrent_layer("aten::gru"), tmp_path)
    clear(PythonOverhead(), _recurrent_layer("aten::_transformer_encoder_layer_fwd"), tmp_path)


@pytest.mark.parametrize(
    "builder",
    [
        _recurrent_layer(""),  # the script calls them
        _recurrent_layer("aten::gru", called_inside=True),
        _recurrent_layer("MyFunction"),  # an autograd.Function is written in Python
    ],
)
def test_parts_of_an_operator_that_runs_python_are_small_operators(builder: TraceBuilder, tmp_path: Path) -> None:
    assert is_found(PythonOverhead(), builder, tmp_path)


def _without_gradients(*, has_backward: bool = False, work_us: int = 700, call: str = "randn") -> TraceBuilder:
    """Steps of 1 ms in which a function moves parameters, with 200 us of Python in one call or in its own lines."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.python("train.py(10): train", at, at + 1000)
        builder.python("train.py(48): perturb", at, at + 1000)
        if call:
            builder.python(f"<built-in function {call}>", at, at + 200 + 600 * (call == "randn"))
        builder.op("aten::randn", at + 200, at + 200 + work_us)
        if has_backward:
            builder.op(f"{AUTOGRAD}: MmBackward0", at + 960, at + 1000, sequence=number, forward_thread=1)
    return builder


@pytest.mark.parametrize(
    ("builder", "found"),
    [
        (_without_gradients(), False),
        (_without_gradients(call=""), False),
        (_without_gradients(call="", work_us=100), True),  # mostly Python
        (_without_gradients(call="dumps"), True),  # the call runs no operator
        (_without_gradients(has_backward=True), True),
    ],
)
def test_code_around_operators_that_no_backward_pass_tells_apart_is_the_training(
    builder: TraceBuilder, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(PythonOverhead(), builder, tmp_path) is found


def _with_loop(in_loop: int = 180, outside: int = 20) -> TraceBuilder:
    """Steps of 3 ms: many operators of 4 us in a function of the loss, and larger ones around it."""
    builder = TraceBuilder()
    for at in builder.steps(4, 3000):
        builder.python("train.py(12): forward", at, at + 2_900)
        builder.python("train.py(17): negatives", at, at + 5 * in_loop)
        for position in range(in_loop):
            builder.op("aten::fill_", at + 5 * position, at + 5 * position + 4)
        for position in range(outside):
            builder.op("aten::mm", at + 950 + 50 * position, at + 990 + 50 * position)
        builder.op("aten::mm", at + 2_000, at + 2_900)
    return builder


def test_small_operators_of_one_function_claim_no_time_of_the_rest(tmp_path: Path) -> None:
    # 0.9 of 3 ms are in the function, with 4 of 5 us in operators.
    found = finding(PythonOverhead(), _with_loop(), tmp_path)
    assert found.claims.total_ns == 4 * 900_000
    assert [(at.file, at.line, at.function) for at in found.locations] == [("train.py", 17, "negatives")]


def test_the_limit_of_small_operators_of_one_function_has_what_frees_their_results(tmp_path: Path) -> None:
    """In the 90 us after the function that no other function of the script takes; a metric beside it takes 60 us."""

    def most_ns(freeing_us: int, name: str) -> float:
        builder = TraceBuilder()
        for number in range(4):
            at = 2_000 * number
            builder.step(number, at, at + 1_100 + freeing_us).python("train.py(17): loss", at, at + 1_000)
            for place in range(200):
                builder.op("aten::mul", at + 5 * place, at + 5 * place + 4)
            builder.python("train.py(40): metric", at + 1_000, at + 1_060)
            builder.op("aten::mm", at + 1_060 + freeing_us, at + 1_100 + freeing_us)
        return finding(PythonOverhead(), builder, tmp_path / name).saving.high_ns

    assert most_ns(90, "with") - most_ns(0, "without") > 85_000


def test_small_operators_of_one_function_save_no_more_than_its_samples(tmp_path: Path) -> None:
    main, train = user("<module>", 80), user("train", 20)
    loop = (main, train, user("forward", 14), user("negatives", 18))
    rest = (main, train, user("forward", 15), library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(30, *loop).add(170, *rest).build()
    found = Captured(_with_loop(), tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    most = share_interval(0.15, 200)[1]
    assert evidence(found, "share of undisturbed steps in this function") == pytest.approx(most)
    assert found.saving.high_ns == pytest.approx(most * 3_000_000)


@pytest.mark.parametrize(("samples", "found"), [(80, True), (20, False)])
def test_small_operators_of_one_function_are_found_beside_large_ones_where_samples_show_it(
    samples: int, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 11000):
        builder.python("train.py(12): forward", at, at + 10_900)
        builder.python("train.py(17): negatives", at, at + 5_000)
        for position in range(250):
            builder.op("aten::fill_", at + 20 * position, at + 20 * position + 19)
        builder.op("aten::mm", at + 5_050, at + 10_900)
    main, train = user("<module>", 80), user("train", 20)
    loop = (main, train, user("forward", 14), user("negatives", 18))
    rest = (main, train, user("forward", 15), library("_call_impl", 1, "torch/nn/modules/module.py"))
    sampled = Samples().add(samples, *loop).add(200 - samples, *rest).build()
    captured = Captured(builder, tmp_path).with_run(stacks=sampled)
    if not found:
        captured.clear(PythonOverhead())
        return
    outcome = captured.finding(PythonOverhead())
    assert [at.function for at in outcome.locations] == ["negatives"]
    assert outcome.claims.total_ns == 4 * 5_000_000
    assert outcome.saving.high_ns <= share_interval(0.4, 200)[1] * 11_000_000


def test_samples_of_a_line_that_also_trains_save_no_more_than_its_own_code_took(tmp_path: Path) -> None:
    # The loop's own lines run Python for 260 of 1,000 us and operators of the loss for 600; samples show all as one.
    builder = TraceBuilder()
    for at in builder.steps(4, 1000):
        builder.python("train.py(18): train", at, at + 1000)
        builder.op("aten::mul", at + 10, at + 300, sequence=9 + at).op(
            "aten::sum", at + 301, at + 600, sequence=10 + at
        )
        builder.op("MulBackward0", at + 860, at + 990, sequence=9 + at, forward_thread=1, thread=AUTOGRAD)
    main, train = user("<module>", 80), user("train", 20)
    backward = (main, train, library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    samples = Samples().add(85, main, train).add(15, *backward).build()
    found = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    share = 0.85 * 260 / 1000
    assert evidence(found, "share of undisturbed steps") == pytest.approx(share)
    assert found.saving.expected_ns == pytest.approx(share * 1_000_000)


def test_calls_without_gradients_of_a_function_that_also_trains_are_needed(tmp_path: Path) -> None:
    builder = _with_average()
    for at in range(900, 4000, 1000):
        builder.python("train.py(60): update", at, at + 50).op("aten::mul", at + 1, at + 40, sequence=900 + at)
        builder.op("MulBackward0", at + 60, at + 90, sequence=900 + at, forward_thread=1, thread=AUTOGRAD)
    clear(PythonOverhead(), builder, tmp_path)


def test_operators_that_the_backward_pass_needs_make_work_there_too(tmp_path: Path) -> None:
    # The forward operators of one backward node of 190 us are in a module. Those of one of 1 us are in update.
    builder = _with_average()
    for at in range(800, 4000, 1000):
        builder.python("train.py(60): update", at, at + 1)
    main, train = user("<module>", 80), user("train", 20)
    backward = (main, train, library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    samples = Samples().add(20, main, train, user("update", 65)).add(80, *backward).build()
    found = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    assert evidence(found, "share of undisturbed steps") == pytest.approx(0.2 * 300 / 301 + 0.8 * 1 / 191)


def test_a_function_that_runs_the_backward_pass_does_not_own_it(tmp_path: Path) -> None:
    """train.py's loop calls the loss and backward(): the pass goes back through the model."""
    builder = _with_loss("train.py(40): loss")
    for at in range(0, 4000, 1000):
        builder.python("train.py(60): update", at + 299, at + 800)
    main, train = user("<module>", 80), user("train", 20)
    backward = (main, train, library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    samples = Samples().add(20, main, train, user("update", 65)).add(80, *backward).build()
    found = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    assert evidence(found, "share of undisturbed steps") == pytest.approx(0.2 * 300 / 302)


def test_the_backward_pass_of_these_lines_widens_no_range_up_to_the_step(tmp_path: Path) -> None:
    # The forward operators of half of the backward pass are in update, and samples show no other lines outside modules.
    builder = _with_loss("train.py(60): update", 800)
    main, train = user("<module>", 80), user("train", 20)
    backward = (main, train, library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(30, main, train, user("update", 65)).add(60, *backward).add(10, *rest).build()
    saving = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead()).saving
    share = 0.3 * 300 / 301 + 0.6 * 189 / 380
    low, high = share_interval(share, 100)
    assert saving.low_ns == pytest.approx(0.5 * low * 1_000_000, rel=0.01)
    assert saving.high_ns == pytest.approx(high * 1_000_000, rel=0.01)


def test_the_backward_pass_of_other_functions_is_not_that_of_these_lines(tmp_path: Path) -> None:
    builder = _with_loss("train.py(40): loss")
    main, train = user("<module>", 80), user("train", 20)
    backward = (main, train, library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(5, main, train, user("update", 65)).add(300, *backward).add(195, *rest).build()
    captured = Captured(builder, tmp_path).with_run(stacks=samples)
    assert captured.clear(PythonOverhead()).value == pytest.approx(0.01)


def _with_loss(function: str, start: int = 300) -> TraceBuilder:
    """The same steps; half of the backward pass goes back through operators of this function."""
    builder = _with_average()
    for at in range(0, 4000, 1000):
        made = at + start
        builder.python(function, made, made + 1).op("aten::mul", made, made + 1, sequence=1000 + at)
        builder.op("MulBackward0", made + 11, made + 200, sequence=1000 + at, forward_thread=1, thread=AUTOGRAD)
    return builder


def test_the_saving_of_a_checkpoint_in_some_steps_follows_from_samples(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.op("aten::mm", at, at + 400)
        if number % 4 == 3:
            builder.python("train.py(60): write", at + 400, at + 900)
            builder.python("<traceadvisor>(64): save", at + 410, at + 890)
            builder.python("torch/serialization.py(944): save", at + 420, at + 880)
    main, train = user("<module>", 80), user("train", 20)
    saving = (main, train, user("write", 61), library("save", 944, "torch/serialization.py"))
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(25, *saving).add(75, *rest).build()
    found = Captured(builder, tmp_path).with_run(stacks=samples).finding(PythonOverhead())
    assert evidence(found, "save, called by write (train.py:60)") == 120_000
    assert found.locations[0].line == 61
    assert found.saving.expected_ns == pytest.approx(0.9 * 0.25 * 1_000_000)


def test_a_function_is_not_named_beside_its_line(tmp_path: Path) -> None:
    facts = Captured(_with_average(), tmp_path).facts()
    whole = Location.of_function("train.py", 60, "update")
    line, other = Location("train.py", 65, "update", samples=20), Location.of_function("train.py", 10, "other")
    fix = Fix("do less", not_replayed="unknown")
    found = finding_of(facts, fix=fix, effort=Effort.LINE, evidence=(), locations=(whole, line, other))
    assert found.locations == (line, other)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_function_stays_before_a_recorded_line_of_it_that_costs_less(tmp_path: Path, *, is_first: bool) -> None:
    facts = Captured(_with_average(), tmp_path).facts()
    whole, line = Location.of_function("train.py", 60, "update"), Location("train.py", 65, "update")
    places = (whole, line) if is_first else (line, whole)
    fix = Fix("do less", not_replayed="unknown")
    found = finding_of(facts, fix=fix, effort=Effort.LINE, evidence=(), locations=places)
    assert found.locations == ((whole, line) if is_first else (line,))


def test_without_stacks_the_code_of_an_optimizer_is_that_of_pytorch(tmp_path: Path) -> None:
    steps = _steps(logging_us=500)
    for step in range(3):
        steps.optimizer(700 * step + 200, 700 * step + 690)
    assert clear(PythonOverhead(), steps, tmp_path).label == "idle time in long stretches of Python code"


def _walking(frame: str, *, computes: bool = False) -> TraceBuilder:
    """Steps of 1 ms on a GPU; in 600 us of each, a function of torch runs, called by the script."""
    builder = TraceBuilder()
    for start in builder.steps(4, 1000):
        builder.op("aten::mm", start, start + 20)
        builder.launch(start + 5, start + 10, kernel=(start + 20, start + 120)).sync(start + 20, start + 125)
        builder.python("finetune.py(61): epoch", start, start + 1000).python(frame, start + 150, start + 750)
        if computes:
            builder.op("aten::add", start + 440, start + 445)
        builder.op("aten::mm", start + 760, start + 780).launch(
            start + 765, start + 770, kernel=(start + 780, start + 990)
        )
    return builder


@pytest.mark.parametrize(
    "frame",
    [
        "torch/nn/modules/module.py(2900): train",
        "torch/nn/modules/module.py(2600): named_parameters",
        "torch/optim/lr_scheduler.py(240): step",
        "torch/utils/hooks.py(40): __exit__",
    ],
)
def test_walks_of_torch_over_modules_are_the_scripts_own(frame: str, tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _walking(frame), tmp_path)
    (location,) = found.locations
    assert (location.file, location.function) == ("finetune.py", "epoch")


@pytest.mark.parametrize(
    ("frame", "computes"),
    [
        ("torch/nn/utils/clip_grad.py(80): clip_grad_norm_", True),
        ("torch/nn/functional.py(2000): layer_norm", True),
        ("torch/autograd/__init__.py(300): backward", False),
        ("torch/optim/optimizer.py(500): zero_grad", False),
        ("torch/profiler/profiler.py(800): step", False),
        ("nn.Module: Decoder_3", False),
    ],
)
def test_what_computes_or_runs_the_passes_is_the_training(frame: str, tmp_path: Path, *, computes: bool) -> None:
    assert not is_found(PythonOverhead(), _walking(frame, computes=computes), tmp_path)


def test_a_metric_that_is_a_module_is_no_training(tmp_path: Path) -> None:
    builder = _with_average()
    for start in range(0, 4000, 1000):
        builder.python("nn.Module: MulticlassRecall_0", start + 500, start + 800)
        builder.python("torchmetrics/metric.py(290): forward", start + 501, start + 799)
        builder.python("torch/nn/functional.py(50): one_hot", start + 520, start + 780)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert evidence(found, "nn.Module: MulticlassRecall_0, called by update") == 300_000


def test_a_module_around_a_metric_is_the_training(tmp_path: Path) -> None:
    builder = _walking("nn.Module: Classifier_0")
    for start in range(0, 4000, 1000):
        builder.python("model.py(12): forward", start + 151, start + 749)
        builder.python("nn.Module: MeanMetric_0", start + 152, start + 160)
        builder.python("torchmetrics/metric.py(290): forward", start + 153, start + 159)
    trace = builder.trace(tmp_path)
    calls = trace.python_calls.name_id[metric_calls(trace)].tolist()
    assert {trace.names[name] for name in calls} == {"nn.Module: MeanMetric_0"}


def test_small_operators_are_named_where_most_of_their_time_is(tmp_path: Path) -> None:
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin = at
        for position in range(250):
            called = "train.py(12): encode" if position < 100 else "train.py(17): decode"
            builder.op("aten::mm", at, at + 12, stack=(called, "train.py(31): train"))
            at += 13
        builder.step(number, begin, at)
    found = finding(PythonOverhead(), builder, tmp_path)
    assert "encode" not in [place.function for place in found.locations]
    assert "decode" in [place.function for place in found.locations]
