from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, facts_of, finding, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.model.run import Pause, PauseKind, StepState, TimedStep
from traceadvisor.rules.idle.idle004_python_overhead import PythonOverhead
from traceadvisor.rules.idle.idle005_gc_pause import GcPause


def _steps(*, pause_us: float) -> TraceBuilder:
    """Three steps: a kernel from 20 to 100 us, and from 50 on the script collects garbage until so long after it."""
    builder = TraceBuilder()
    length = 100 + pause_us
    for at in builder.steps(3, length):
        builder.op("aten::mm", at, at + 20)
        builder.launch(at + 5, at + 10, kernel=(at + 20, at + 100))
        builder.python("train.py(12): learn", at + 50, at + length)
        builder.python("<built-in function collect>", at + 50, at + length)
    return builder


def test_collections_inside_the_step_count_while_the_gpu_is_idle(tmp_path: Path) -> None:
    found = finding(GcPause(), _steps(pause_us=300), tmp_path)
    assert evidence(found, "time in gc.collect") == 300_000
    assert found.saving.high_ns == pytest.approx(300_000)
    (location,) = found.locations
    assert (location.file, location.function) == ("train.py", "learn")
    assert found.fix.summary == "Remove gc.collect() from the loop"


def test_it_refines_the_finding_on_python_code(tmp_path: Path) -> None:
    (row,) = judge(facts_of(_steps(pause_us=300), tmp_path), (GcPause(), PythonOverhead())).findings
    assert (row.finding.rule.id, row.also) == ("IDLE005", ("IDLE004",))


def test_short_collections_are_clear(tmp_path: Path) -> None:
    assert clear(GcPause(), _steps(pause_us=2), tmp_path).value == pytest.approx(2 / 102)


@pytest.mark.nightly("traceadvisor/rules/idle", "traceadvisor/recording")
def test_a_captured_run_shows_automatic_collections(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    captured = Captured(builder, tmp_path).with_settings(gc_share=0.1, gc_longest_ns=50_000_000)
    found = captured.finding(GcPause())
    assert found.saving.high_ns == pytest.approx(10_000)
    assert evidence(found, "share of the run in garbage collection") == 0.1
    assert evidence(found, "longest") == 50_000_000
    assert found.fix.change is not None and "gc.freeze()" in found.fix.change  # noqa: PT018  # one thought


def test_a_captured_run_with_few_collections_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    assert Captured(builder, tmp_path).with_settings(gc_share=0.004, gc_longest_ns=9).clear(GcPause()).value == 0.004


def test_without_stacks_and_capture_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "with_stack=True" in skipped(GcPause(), TraceBuilder().step(0, 0, 9).op("aten::mm", 0, 5), tmp_path)


@pytest.mark.parametrize(("share", "found"), [(0.0299, False), (0.03, True)])
def test_collections_count_from_three_percent_of_the_time(share: float, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    captured = Captured(builder, tmp_path).with_settings(gc_share=share, gc_longest_ns=9)
    assert captured.is_found(GcPause()) is found


def test_other_calls_of_python_are_no_collections(tmp_path: Path) -> None:
    builder = _steps(pause_us=300)
    for event in builder.events:
        event["name"] = event["name"].replace("built-in function collect", "built-in function sleep")
    assert clear(GcPause(), builder, tmp_path).value == 0


def test_collections_on_other_threads_do_not_stop_the_training(tmp_path: Path) -> None:
    builder = _steps(pause_us=300)
    for event in builder.events:
        event["tid"] = 9 if event["name"] == "<built-in function collect>" else event["tid"]
    assert clear(GcPause(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("count", "found"), [(1, False), (2, False), (3, True)])
def test_one_or_two_collections_of_a_run_are_no_cost_of_every_step(count: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    captured = Captured(builder, tmp_path).with_settings(
        gc_share=0.21, gc_longest_ns=300_000_000, gc_long_count=count, gc_long_share=0.2, gc_long_steps=(6,)
    )
    if found:
        assert evidence(captured.finding(GcPause()), "collections of 10 ms") == count
    else:
        assert captured.clear(GcPause()).value == pytest.approx(0.01)


def test_many_short_collections_count_beside_a_long_one(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    captured = Captured(builder, tmp_path).with_settings(
        gc_share=0.2, gc_longest_ns=90_000_000, gc_long_count=1, gc_long_share=0.05
    )
    assert captured.finding(GcPause()).saving.high_ns == pytest.approx(20_000)


@pytest.mark.parametrize("in_loader", [True, False])
def test_collections_while_batches_are_loaded_go_with_the_loading(tmp_path: Path, *, in_loader: bool) -> None:
    # Each step of 1 ms loads its batch for 600 us; it collects for 200 us in that, or in the rest.
    builder, steps, pauses = TraceBuilder(), [], []
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.loader(at, at + 600).op("aten::mm", at + 600, at + 1000)
        steps.append(TimedStep(number, 0, 1_000_000, 600_000, 1, StepState.PLAIN, clock_ns=1000 * at))
        pauses.append(Pause(PauseKind.COLLECTION, 1000 * (at + (100 if in_loader else 700)), 200_000))
    captured = Captured(builder, tmp_path).with_settings(gc_share=0.2, gc_longest_ns=200_000, pauses=tuple(pauses))
    found = captured.with_run(steps=tuple(steps)).finding(GcPause())
    assert found.saving.high_ns == pytest.approx(200_000)
    assert found.claims.total_ns == (4 * 600_000 if in_loader else 0)
