"""What the device does, by precedence."""

from pathlib import Path

import pytest

from tests.analysis.analysing import breakdown_us
from tests.build import TraceBuilder


def test_kernels_on_several_streams_count_once(tmp_path: Path) -> None:
    builder = (
        TraceBuilder()
        .step(0, 0, 100)
        .loader(99, 100)
        .launch(0, 1, kernel=(0, 60))
        .launch(1, 2, kernel=(40, 100), stream=8)
    )
    assert breakdown_us(builder, tmp_path) == {"kernel": 100}


def test_communication_counts_only_when_no_kernel_hides_it(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 100).loader(0, 1).launch(0, 1, kernel=(0, 60)).collective(1, 2, kernel=(40, 100))
    )
    assert breakdown_us(builder, tmp_path) == {"kernel": 60, "communication": 40}


def test_a_copy_to_the_device_counts_only_when_not_hidden(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).launch(0, 1, kernel=(0, 20)).collective(1, 2, kernel=(20, 40))
    builder.copy(2, 3, on_device=(10, 100), stream=9)
    assert breakdown_us(builder, tmp_path) == {"kernel": 20, "communication": 20, "h2d_copy": 60}


@pytest.mark.parametrize("direction", ["d2h", "d2d"])
def test_every_other_copy_comes_last(direction: str, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).copy(0, 1, on_device=(0, 50), stream=9)
    builder.copy(1, 2, on_device=(20, 100), direction=direction)
    assert breakdown_us(builder, tmp_path) == {"h2d_copy": 50, "other_copy": 50}


def test_a_memset_is_another_copy(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).memset(0, 1, on_device=(0, 100))
    assert breakdown_us(builder, tmp_path) == {"other_copy": 100}


def test_work_beyond_the_window_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 50).loader(0, 1).launch(0, 1, kernel=(0, 80)).step(1, 50, 100)
    builder.launch(50, 51, kernel=(80, 100))
    assert breakdown_us(builder, tmp_path, step=0) == {"kernel": 80}
    assert breakdown_us(builder, tmp_path, step=1) == {"kernel": 20}


def test_device_waits_and_mirrored_marks_are_not_work(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 1).launch(0, 1, kernel=(0, 60)).op("a", 60, 100)
    builder.device_annotation("ProfilerStep#0", 0, 100).device_wait(0, 100)
    assert breakdown_us(builder, tmp_path) == {"kernel": 60, "idle_launch": 40}
