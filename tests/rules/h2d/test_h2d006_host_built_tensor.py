from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.rules.h2d.h2d006_host_built_tensor import HostBuiltTensor

STACK = ("torch/functional.py(40): ones", "train.py(27): train", "train.py(80): main")


def _steps(
    name: str = "aten::zeros", generation: Generation = Generation.CURRENT, count: int = 3, loading_us: int = 0
) -> TraceBuilder:
    """Build steps: the CPU creates a tensor in 20 us and copies it in 10 us (5 us on the GPU), then a kernel runs."""
    builder = TraceBuilder(generation)
    for at in builder.steps(count, 100):
        builder.loader(at, at + loading_us)
        builder.op(name, at, at + 20, stack=STACK).op("aten::fill_", at + 5, at + 19)
        builder.op("aten::to", at + 20, at + 30).op("aten::copy_", at + 21, at + 29)
        builder.copy(at + 22, at + 28, on_device=(at + 23, at + 28))
        builder.op("aten::mm", at + 32, at + 36).launch(at + 33, at + 35, kernel=(at + 37, at + 100))
    return builder


def _after_two_steps() -> TraceBuilder:
    """Build two steps with one kernel each, and the mark of a third step from 200 to 300."""
    builder = TraceBuilder().step(2, 200, 300)
    for at in builder.steps(2, 100):
        builder.op("aten::mm", at, at + 6).launch(at, at + 5, kernel=(at + 7, at + 100))
    return builder


@pytest.mark.parametrize("name", ["aten::zeros", "aten::randn", "aten::arange"])
def test_a_tensor_created_on_the_cpu_and_copied_is_found(name: str, tmp_path: Path) -> None:
    found = finding(HostBuiltTensor(), _steps(name), tmp_path)
    assert evidence(found, "tensors created on the CPU") == 1
    assert evidence(found, "CPU time to create them") == 20_000
    assert evidence(found, "CPU time to create and copy them") == 30_000
    assert evidence(found, "operators that create them") == name


def test_the_claim_is_gpu_idle_time_and_the_copy(tmp_path: Path) -> None:
    assert finding(HostBuiltTensor(), _steps(), tmp_path).claims.total_ns == 3 * 30_000


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(HostBuiltTensor(), _steps(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


def test_parameters_filled_in_place_do_not_count(tmp_path: Path) -> None:
    assert clear(HostBuiltTensor(), _steps("aten::uniform_"), tmp_path).value == 0


def test_tensors_created_in_the_data_loader_do_not_count(tmp_path: Path) -> None:
    assert clear(HostBuiltTensor(), _steps(loading_us=20), tmp_path).value == 0


def test_a_tensor_created_before_a_fetch_is_not_copied_after_it(tmp_path: Path) -> None:
    builder = _after_two_steps().op("aten::zeros", 200, 210).loader(210, 220).op("aten::to", 220, 230)
    builder.copy(222, 228, on_device=(223, 228)).launch(233, 235, kernel=(237, 300))
    assert clear(HostBuiltTensor(), builder, tmp_path).value == 0


def test_a_copy_larger_than_the_cpu_can_fill_does_not_count(tmp_path: Path) -> None:
    builder = _after_two_steps().op("aten::zeros", 200, 220).op("aten::to", 220, 230)
    builder.copy(222, 228, on_device=(223, 228), byte_count=2_000_001)
    assert clear(HostBuiltTensor(), builder.launch(233, 235, kernel=(237, 300)), tmp_path).value == 0


def test_a_tensor_created_on_the_gpu_is_clear(tmp_path: Path) -> None:
    builder = _after_two_steps().op("aten::zeros", 200, 220).launch(205, 208, kernel=(210, 212), name="fill")
    builder.op("aten::mm", 232, 236).launch(233, 235, kernel=(237, 300))
    assert clear(HostBuiltTensor(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("step_us", "found"), [(3001, False), (3000, True)])
def test_creating_tensors_counts_from_one_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, step_us):
        builder.op("aten::zeros", at, at + 20).op("aten::to", at + 20, at + 30)
        builder.copy(at + 22, at + 28, on_device=(at + 23, at + 28))
        builder.op("aten::mm", at + 32, at + 36).launch(at + 33, at + 35, kernel=(at + 37, at + step_us))
    assert is_found(HostBuiltTensor(), builder, tmp_path) is found


def test_a_copy_as_large_as_the_cpu_can_fill_is_found(tmp_path: Path) -> None:
    # 100 bytes per ns for 20,000 ns.
    builder = _after_two_steps().op("aten::zeros", 200, 220).op("aten::to", 220, 230)
    builder.copy(222, 228, on_device=(223, 228), byte_count=2_000_000)
    assert is_found(HostBuiltTensor(), builder.launch(233, 235, kernel=(237, 300)), tmp_path)


def test_at_most_five_lines_are_named(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for begin in builder.steps(3, 100):
        for line, at in enumerate(range(begin, begin + 90, 15)):
            builder.op("aten::zeros", at, at + 8, stack=(f"train.py({line}): train",)).op("aten::to", at + 8, at + 14)
            builder.copy(at + 9, at + 13, on_device=(at + 10, at + 12))
        builder.op("aten::mm", begin + 90, begin + 94).launch(begin + 91, begin + 93, kernel=(begin + 94, begin + 100))
    found = finding(HostBuiltTensor(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2, 3, 4]
