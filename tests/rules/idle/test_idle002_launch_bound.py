from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Confidence, Found, Method, Skipped
from traceadvisor.replay.fixes.launches import AmortisedLaunches
from traceadvisor.rules.idle.idle002_launch_bound import LaunchBound


def _short_kernels(steps: int = 3) -> TraceBuilder:
    """Steps of ten operators of 10 us, each launching a kernel of 2 us."""
    builder = TraceBuilder()
    for number in range(steps):
        builder.step(number, 100 * number, 100 * number + 100)
    for start in range(0, 100 * steps, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    return builder


def test_many_kernels_shorter_than_their_launches_are_found_and_need_fewer_launches(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(), tmp_path)
    assert found.claims.total_ns == 3 * 80_000
    assert evidence(found, "share of kernels shorter than 10 µs") == 1.0
    assert evidence(found, "median kernel") == 2_000
    assert evidence(found, "share of this time in single operators") == 0
    assert found.fix.change is not None


def test_one_long_call_differs_from_many_short_ones(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 5000):
        builder.op("aten::conv2d", start, start + 4000)
        builder.launch(start + 3900, start + 3990, kernel=(start + 3995, start + 5000))
    found = finding(LaunchBound(), builder, tmp_path)
    assert evidence(found, "share of this time in single operators") == 1.0
    assert "long CPU calls" in found.fix.summary


def test_a_full_queue_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 100):
        builder.op("aten::mm", start, start + 6)
        builder.launch(start, start + 2, kernel=(start + 2, start + 50))
        builder.launch(start + 3, start + 5, kernel=(start + 50, start + 100))
    assert clear(LaunchBound(), builder, tmp_path).value < 0.05


@pytest.mark.parametrize(("steps", "words"), [(1, "One step was recorded"), (2, "Two steps were recorded")])
def test_one_or_two_steps_give_an_upper_limit_of_low_confidence(steps: int, words: str, tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(steps), tmp_path)
    assert found.claims.total_ns == steps * 80_000
    assert (found.saving.method, found.confidence) == (Method.BOUND, Confidence.LOW)
    assert found.saving.reason is not None
    assert f"{words}: other steps may differ." in found.caveats


@pytest.mark.parametrize(("kernels", "judged"), [(9, False), (10, True)])
def test_one_step_is_judged_from_ten_gpu_operations_on(kernels: int, tmp_path: Path, *, judged: bool) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for start in range(0, 10 * kernels, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    outcome = run_rule(LaunchBound(), facts_of(builder, tmp_path))
    assert isinstance(outcome, Found if judged else Skipped)


def test_the_first_launch_of_a_kernel_is_start_up(tmp_path: Path) -> None:
    # One step of 100 us and a launch of 10 ms that loads the kernel's code: only the short launches are claimed.
    builder = TraceBuilder().step(0, 0, 10_100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    builder.op("aten::mm", 100, 10_050).launch(100, 10_000, kernel=(10_010, 10_100), name="Cijk")
    facts = facts_of(builder, tmp_path)
    assert facts.start_up_share == pytest.approx(9_900 / 10_100)
    assert facts.claim(Category.IDLE_LAUNCH).total_ns == 80_000 + 10_000


@pytest.mark.parametrize(("step_us", "found"), [(1001, False), (1000, True)])
def test_waiting_for_launches_counts_from_five_percent_of_the_step(
    step_us: int, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, step_us):
        builder.op("aten::mm", at, at + 50)
        builder.launch(at + 10, at + 40, kernel=(at + 50, at + step_us))
    assert is_found(LaunchBound(), builder, tmp_path) is found


@pytest.mark.parametrize(("short_calls", "is_long"), [(49, True), (50, False)])
def test_a_few_long_calls_are_the_cause_from_half_of_the_time(
    short_calls: int, tmp_path: Path, *, is_long: bool
) -> None:
    # The device waits 1,000 us for one call and 20 us for each of the others.
    builder, length = TraceBuilder(), 1010 + 21 * short_calls
    for begin in builder.steps(3, length):
        builder.op("aten::conv2d", begin, begin + 1000)
        builder.launch(begin + 990, begin + 1000, kernel=(begin + 1000, begin + 1010))
        for at in range(begin + 1010, begin + length, 21):
            builder.op("aten::add", at, at + 20).launch(at + 10, at + 20, kernel=(at + 20, at + 21))
    found = finding(LaunchBound(), builder, tmp_path)
    assert ("long CPU calls" in found.fix.summary) is is_long
    assert (found.fix.what_if is None) is is_long


def _compiled(gap_us: int) -> TraceBuilder:
    """Steps of 3 ms in compiled code, which launches a kernel of 2 us after each pause of Python."""
    builder = TraceBuilder()
    for at in builder.steps(3, 3000):
        builder.op("Torch-Compiled Region: 0/0", at, at + 3000)
        for start in range(at, at + 3000, gap_us):
            builder.launch(start + gap_us - 10, start + gap_us - 5, kernel=(start + gap_us - 5, start + gap_us - 3))
    return builder


def test_compiled_code_with_many_small_gaps_needs_cuda_graphs(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _compiled(30), tmp_path)
    assert evidence(found, "share of this time in single operators") == 0
    assert "CUDA graphs" in found.fix.summary
    assert not found.fix.settings
    assert isinstance(found.fix.what_if, AmortisedLaunches)


def test_compiled_code_with_a_few_long_gaps_differs(tmp_path: Path) -> None:
    assert "long CPU calls" in finding(LaunchBound(), _compiled(1500), tmp_path).fix.summary


@pytest.mark.parametrize(("gap_us", "is_long"), [(504, False), (505, True)])
def test_a_gap_within_an_operator_is_long_from_half_a_millisecond(
    gap_us: int, tmp_path: Path, *, is_long: bool
) -> None:
    # From the end of a launch call to the next one: 5 us less.
    share = evidence(finding(LaunchBound(), _compiled(gap_us), tmp_path), "share of this time in single operators")
    assert (share != 0) is is_long


@pytest.mark.parametrize(("call_us", "share"), [(999, 0), (1000, 1)])
def test_a_call_is_long_from_one_millisecond(call_us: int, share: float, tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 2000):
        builder.op("aten::conv2d", at, at + call_us)
        builder.launch(at + call_us - 10, at + call_us, kernel=(at + call_us, at + 2000))
    assert evidence(finding(LaunchBound(), builder, tmp_path), "share of this time in single operators") == share


def test_a_kernel_of_ten_microseconds_outlasts_its_launch(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 100):
        builder.op("aten::add", at, at + 60)
        builder.launch(at + 10, at + 40, kernel=(at + 40, at + 49)).launch(at + 50, at + 60, kernel=(at + 60, at + 70))
    assert evidence(finding(LaunchBound(), builder, tmp_path), "share of kernels shorter than 10 µs") == 0.5


def test_only_operators_count_as_compiled(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 500):
        builder.op("aten::mm", at, at + 50).op("worker", at, at + 200, thread=9)
        builder.launch(at + 10, at + 40, kernel=(at + 50, at + 500))
    found = finding(LaunchBound(), builder, tmp_path)
    fix = found.fix.what_if
    assert isinstance(fix, AmortisedLaunches)
    assert fix.operators.total_ns == 3 * 50_000
    assert evidence(found, "median kernel") == 450_000


@pytest.mark.parametrize(
    ("call", "words"), [("cudaLaunchKernel", "turn on the CUDA graphs"), ("cudaGraphLaunch", "already")]
)
def test_a_serving_engine_that_replays_graphs_is_not_told_to_turn_them_on(
    call: str, words: str, tmp_path: Path
) -> None:
    builder = TraceBuilder()
    for number in range(5):
        at = 100 * number
        builder.annotation("step[DECODE bs=4 toks=4]", at, at + 100)
        for start in range(at, at + 100, 10):
            builder.op("aten::index_select", start, start + 10, sequence=-1)
            builder.launch(start + 2, start + 7, kernel=(start + 8, start + 10), call=call)
    assert words in finding(LaunchBound(), builder, tmp_path).fix.summary


def test_a_recording_without_steps_is_no_step(tmp_path: Path) -> None:
    assert "No marked step" in skipped(LaunchBound(), _unmarked(), tmp_path)


def _unmarked() -> TraceBuilder:
    """As above, all of it one window."""
    builder = _short_kernels()
    builder.events[:] = [event for event in builder.events if not event["name"].startswith("ProfilerStep#")]
    return builder
