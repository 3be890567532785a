from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.host_sync import HostSync

STACK = ("torch/_tensor.py(40): item", "train.py(27): train_one_epoch", "train.py(80): main")


def _step(generation: Generation, stack: tuple[str, ...] = STACK) -> TraceBuilder:
    """A kernel, ``loss.item()`` that waits for it, then 10 us in which the host launches the next one."""
    builder = TraceBuilder(generation).step(0, 0, 100)
    builder.op("aten::mm", 0, 5).launch(0, 4, kernel=(5, 40))
    builder.item(10, 44, copy=(40, 42), stack=stack)
    return builder.op("aten::mm", 44, 55).launch(45, 52, kernel=(52, 100))


@pytest.mark.parametrize("generation", Generation)
def test_the_line_of_an_item_call_is_the_users_never_torchs(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(HostSync(), _step(generation), tmp_path).locations
    assert (location.file, location.line, location.function) == ("train.py", 27, "train_one_epoch")


def test_the_drain_is_the_idle_time_from_the_wait_to_the_next_kernel(tmp_path: Path) -> None:
    found = finding(HostSync(), _step(Generation.CURRENT), tmp_path)
    assert found.claims.total_ns == 10_000  # from 42 to 52
    assert evidence(found, "idle after aten::item at train.py:27") == 10_000


def test_the_costliest_of_two_lines_comes_first(tmp_path: Path) -> None:
    builder = _step(Generation.CURRENT).step(1, 100, 300)
    builder.item(100, 150, copy=(110, 148), stack=("eval.py(5): check", "train.py(80): main"))
    builder.op("aten::mm", 150, 200).launch(150, 198, kernel=(199, 300))
    first, second = finding(HostSync(), builder, tmp_path).locations
    assert (first.file, second.file) == ("eval.py", "train.py")


def test_without_stacks_the_operator_is_named_and_the_way_to_get_the_line(tmp_path: Path) -> None:
    found = finding(HostSync(), _step(Generation.CURRENT, stack=()), tmp_path)
    assert found.locations == ()
    assert evidence(found, "idle after aten::item") == 10_000
    assert any("with_stack=True" in caveat for caveat in found.caveats)


def test_a_wait_that_belongs_to_a_copy_to_the_device_is_another_rules(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::copy_", 0, 22)
    builder.copy(0, 5, on_device=(5, 20)).sync(5, 22)
    builder.op("aten::mm", 22, 40).launch(30, 40, kernel=(41, 100))
    assert clear(HostSync(), builder, tmp_path).value == 0


def test_a_step_without_waits_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 4, kernel=(5, 100))
    assert clear(HostSync(), builder, tmp_path).value == 0


def test_the_profilers_own_wait_at_the_end_is_not_the_users(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 4, kernel=(5, 60))
    builder.sync(50, 100, name="cudaDeviceSynchronize")
    assert clear(HostSync(), builder, tmp_path).value == 0


def test_without_a_device_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 9).op("aten::mm", 0, 5)
    assert "No kernels were recorded" in skipped(HostSync(), builder, tmp_path)
