from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.host_built_tensor import HostBuiltTensor

STACK = ("torch/functional.py(40): ones", "train.py(27): train", "train.py(80): main")


def _step(name: str = "aten::zeros", generation: Generation = Generation.CURRENT) -> TraceBuilder:
    """The host makes a tensor for 20 us and copies it for 10 us, of which the device copies for 5; then a kernel."""
    builder = TraceBuilder(generation).step(0, 0, 100).op(name, 0, 20, stack=STACK).op("aten::fill_", 5, 19)
    builder.op("aten::to", 20, 30).op("aten::copy_", 21, 29).copy(22, 28, on_device=(23, 28))
    return builder.op("aten::mm", 32, 36).launch(33, 35, kernel=(37, 100))


@pytest.mark.parametrize("name", ["aten::zeros", "aten::randn", "aten::arange"])
def test_a_tensor_that_is_made_and_copied_is_found(name: str, tmp_path: Path) -> None:
    found = finding(HostBuiltTensor(), _step(name), tmp_path)
    assert evidence(found, "tensors made on the host") == 1
    assert evidence(found, "the host's time to make them") == 20_000
    assert evidence(found, "the host's time to make and copy them") == 30_000
    assert evidence(found, "made by") == name


def test_the_device_s_idle_time_and_the_copy_are_claimed(tmp_path: Path) -> None:
    assert finding(HostBuiltTensor(), _step(), tmp_path).claims.total_ns == 30_000


@pytest.mark.parametrize("generation", Generation)
def test_the_line_is_the_users_never_torchs(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(HostBuiltTensor(), _step(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


def test_parameters_that_are_filled_in_place_are_no_such_tensors(tmp_path: Path) -> None:
    assert clear(HostBuiltTensor(), _step("aten::uniform_"), tmp_path).value == 0


def test_what_the_loader_makes_is_not_the_steps(tmp_path: Path) -> None:
    assert clear(HostBuiltTensor(), _step().loader(0, 20), tmp_path).value == 0


def test_what_is_made_before_a_fetch_is_not_what_is_copied_after_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::zeros", 0, 10).loader(10, 20).op("aten::to", 20, 30)
    builder.copy(22, 28, on_device=(23, 28)).launch(33, 35, kernel=(37, 100))
    assert clear(HostBuiltTensor(), builder, tmp_path).value == 0


def test_a_copy_larger_than_the_host_could_have_filled_is_of_something_else(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::zeros", 0, 20).op("aten::to", 20, 30)
    builder.copy(22, 28, on_device=(23, 28), byte_count=2_000_001)
    assert clear(HostBuiltTensor(), builder.launch(33, 35, kernel=(37, 100)), tmp_path).value == 0


def test_a_tensor_made_on_the_device_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::zeros", 0, 20).launch(5, 8, kernel=(10, 12), name="fill")
    builder.op("aten::mm", 32, 36).launch(33, 35, kernel=(37, 100))
    assert clear(HostBuiltTensor(), builder, tmp_path).value == 0


def test_without_a_device_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 9).op("aten::zeros", 0, 5)
    assert "No kernels were recorded" in skipped(HostBuiltTensor(), builder, tmp_path)
