from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import DEVICE
from traceadvisor.analysis.memory.device_memory import DeviceMemory, device_memory
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry_window import DeviceWindow


def _memory(
    folder: Path, *levels: tuple[int, int, int | None], sampled: DeviceWindow | None = None
) -> DeviceMemory | None:
    """Of a device of 1,000 bytes, by when so much was in use and so much reserved; the first 100 us count."""
    builder = TraceBuilder().device(0, totalGlobalMem=1000).step(0, 0, 100)
    for at, used, reserved in levels:
        builder.memory(at, 1, total_allocated=used)
        if reserved is not None:
            builder.events[-1]["args"]["Total Reserved"] = reserved
    return device_memory(builder.trace(folder), 0, SpanSet.of((0, 100_000)), sampled)


def test_peaks_are_of_the_windows(tmp_path: Path) -> None:
    memory = _memory(tmp_path, (10, 300, 500), (20, 100, 400), (150, 900, 950))
    assert memory == DeviceMemory(1000, 300, 100, 500.0, 500)
    assert memory.share == 0.5


def test_an_instant_without_what_was_reserved_is_passed_over(tmp_path: Path) -> None:
    memory = _memory(tmp_path, (10, 300, None), (20, 100, 400))
    assert memory is not None
    assert (memory.reserved_bytes, memory.allocated_bytes) == (400, 300)


def test_what_was_sampled_comes_before_what_was_reserved(tmp_path: Path) -> None:
    sampled = replace(DEVICE, peak_memory_bytes=800.0, peak_foreign_memory_bytes=100.0)
    memory = _memory(tmp_path, (10, 300, 500), sampled=sampled)
    assert memory == DeviceMemory(1000, 300, 300, 800.0, 500, 100.0)
    assert memory.own_bytes == 700


@pytest.mark.parametrize("sampled", [None, replace(DEVICE, peak_foreign_memory_bytes=100.0)])
def test_without_a_sample_of_the_whole_others_are_unknown(sampled: DeviceWindow | None, tmp_path: Path) -> None:
    memory = _memory(tmp_path, (10, 300, 500), sampled=sampled)
    assert memory is not None
    assert (memory.foreign_bytes, memory.own_bytes) == (None, 500)


def test_what_others_hold_beyond_the_peak_leaves_nothing_below_zero(tmp_path: Path) -> None:
    sampled = replace(DEVICE, peak_memory_bytes=100.0, peak_foreign_memory_bytes=150.0)
    memory = _memory(tmp_path, sampled=sampled)
    assert memory == DeviceMemory(1000, None, None, 100.0, None, 150.0)
    assert memory.own_bytes == 0


def test_without_any_figure_nothing_is_known(tmp_path: Path) -> None:
    assert _memory(tmp_path, (10, 300, None)) is None
    assert _memory(tmp_path, (10, 0, 0)) is None
