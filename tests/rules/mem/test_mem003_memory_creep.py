from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Clear, Confidence, Skipped
from traceadvisor.model.run import StepState
from traceadvisor.model.telemetry import Series, Telemetry
from traceadvisor.rules.mem.mem003_memory_creep import MemoryCreep

MIB = 1 << 20
GIB = 1 << 30


def _steps(*ends_mib: float) -> TraceBuilder:
    """Build steps on a GPU with 1 GiB from the memory held at their ends."""
    builder = TraceBuilder().device(0, totalGlobalMem=GIB)
    for number, held in enumerate(ends_mib):
        at = 100 * number
        builder.step(number, at, at + 100).op("aten::mm", at, at + 5).launch(at, at + 2, kernel=(at + 2, at + 90))
        builder.memory(at + 50, 1, total_allocated=int(held * MIB))
    return builder


def test_memory_that_grows_in_every_step_is_found_with_the_remaining_steps(tmp_path: Path) -> None:
    found = finding(MemoryCreep(), _steps(100, 102, 104, 106, 108), tmp_path)
    assert evidence(found, "memory growth") == 2 * MIB
    assert evidence(found, "steps until GPU memory is full") == (1024 - 108) / 2
    assert found.saving.high_ns == 0


def test_constant_memory_is_clear(tmp_path: Path) -> None:
    assert clear(MemoryCreep(), _steps(100, 100, 100, 100, 100), tmp_path).value == 0


def test_memory_that_varies_with_the_batch_is_clear(tmp_path: Path) -> None:
    assert clear(MemoryCreep(), _steps(100, 130, 90, 150, 160, 120), tmp_path).value == pytest.approx(0.6)


def test_a_list_of_losses_is_clear(tmp_path: Path) -> None:
    outcome = clear(MemoryCreep(), _steps(*(100 + number / 2048 for number in range(8))), tmp_path)
    assert outcome.value == 512


def _sampled(folder: Path, *held_gib: float) -> Captured:
    """Build undisturbed steps with one sample each, on a GPU with 10 GiB and without allocator events."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    captured = Captured(builder, folder).with_steps([0.0] * (len(held_gib) + 1))
    at_ns = np.array([10**18 + 100_000 * (number + 1) for number in range(len(held_gib))], dtype=np.int64)
    series = Series(at_ns, {"memory_used_bytes": np.array(held_gib) * GIB})
    return captured.with_sampled_device(memory_bytes=10 * GIB, series=series)


def test_without_allocator_events_growth_over_the_run_is_found_with_low_confidence(tmp_path: Path) -> None:
    captured = _sampled(tmp_path, 2, 3, 4, 5).with_settings(allocator_retries=7)
    found = captured.finding(MemoryCreep())
    assert evidence(found, "memory growth, share of GPU memory") == pytest.approx(0.3)
    assert evidence(found, "times that torch freed its cache to allocate again") == 7
    assert found.confidence is Confidence.LOW


@pytest.mark.parametrize("held", [(2, 2, 5, 5), (2, 2.1, 2.2, 2.3), (5, 4, 3, 2)])
def test_a_run_that_jumps_once_or_grows_little_is_clear(held: tuple[float, ...], tmp_path: Path) -> None:
    assert _sampled(tmp_path, *held).clear(MemoryCreep()).label == "steady memory growth over the run"


def test_without_events_or_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    assert "profile_memory=True" in skipped(MemoryCreep(), builder, tmp_path)


def test_with_few_steps_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "over enough steps" in skipped(MemoryCreep(), _steps(100, 102, 104, 106), tmp_path)


@pytest.mark.parametrize(("byte_count", "found"), [(65_535, False), (65_536, True)])
def test_growth_counts_from_64_kibibytes_per_step(byte_count: int, tmp_path: Path, *, found: bool) -> None:
    builder = _steps(*(100 + number * byte_count / MIB for number in range(5)))
    assert is_found(MemoryCreep(), builder, tmp_path) is found


@pytest.mark.parametrize(("falls", "found"), [(2, False), (1, True)])
def test_memory_grows_if_nine_of_ten_steps_hold_more(falls: int, tmp_path: Path, *, found: bool) -> None:
    rises = [2] * (10 - falls) + [-1] * falls
    assert is_found(MemoryCreep(), _steps(*(100 + sum(rises[:number]) for number in range(11))), tmp_path) is found


@pytest.mark.parametrize(("last", "found"), [(2.49, False), (2.5, True)])
def test_growth_over_the_run_counts_from_five_percent_of_the_memory(
    last: float, tmp_path: Path, *, found: bool
) -> None:
    assert _sampled(tmp_path, 2, 2.1, 2.3, last).is_found(MemoryCreep()) is found


def _process(
    folder: Path, *held_mib: float, counts: Sequence[float] | None = None, recorded: int | None = None
) -> Captured:
    """Undisturbed steps without a GPU, with one sample of the process in each."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90)
    captured = Captured(builder, folder).with_steps([0.0] * (len(held_mib) + 1))
    at_ns = np.array([10**18 + 100_000 * (number + 1) for number in range(len(held_mib))], dtype=np.int64)
    figures = {"rss_bytes": np.array(held_mib) * MIB, "process_count": np.array(counts or [1.0] * len(held_mib))}
    telemetry = Telemetry("host", (), Series(at_ns, {}), Series(at_ns, figures), None, None)
    steps = captured.facts().run.steps
    steps = tuple(replace(one, state=StepState.RECORDED) if one.index == recorded else one for one in steps)
    return captured.with_run(telemetry=telemetry, steps=steps)


def test_without_a_gpu_a_process_that_grows_steadily_is_found(tmp_path: Path) -> None:
    found = _process(tmp_path, *(300 + 20 * number for number in range(12))).finding(MemoryCreep())
    assert found.confidence is Confidence.LOW
    assert found.saving.high_ns == 0
    # 180 MiB from the first quarter to the last, which are three quarters of thirteen steps apart.
    assert evidence(found, "memory growth") == pytest.approx(180 * MIB / 9.75)


@pytest.mark.parametrize(
    "held_mib",
    [
        [300.0] * 12,
        [300, 400, 450, 455, 456, 457, 458, 459, 460, 461, 462, 463],  # levels off
        [300, 350, 300, 350, 300, 350, 300, 350, 300, 350, 300, 350],
        [300 + 5 * number for number in range(12)],  # by 15%
        [360, 364, 368, 399, 403, 407, 434, 438, 442, 454, 458, 462],  # a store that fills: less and less
    ],
)
def test_without_a_gpu_memory_that_levels_off_or_varies_is_clear(held_mib: list[float], tmp_path: Path) -> None:
    assert isinstance(_process(tmp_path, *held_mib).outcome(MemoryCreep()), Clear)


@pytest.mark.parametrize(("recorded", "found"), [(None, True), (7, False)])
def test_without_a_gpu_memory_that_recording_took_is_no_growth(
    recorded: int | None, tmp_path: Path, *, found: bool
) -> None:
    captured = _process(tmp_path, 523, 534, 536, 538, 539, 540, 640, 645, 650, 700, 705, 710, recorded=recorded)
    assert captured.is_found(MemoryCreep()) is found


def test_without_a_gpu_seven_samples_are_too_few(tmp_path: Path) -> None:
    outcome = _process(tmp_path, *(300 + 50 * number for number in range(7))).outcome(MemoryCreep())
    assert isinstance(outcome, Skipped)


def test_memory_of_a_changing_number_of_processes_is_not_compared(tmp_path: Path) -> None:
    captured = _process(tmp_path, *(300 + 50 * number for number in range(8)), counts=[1, 1, 1, 1, 3, 3, 3, 3])
    outcome = captured.outcome(MemoryCreep())
    assert isinstance(outcome, Skipped)
    assert "number of processes" in outcome.reason
