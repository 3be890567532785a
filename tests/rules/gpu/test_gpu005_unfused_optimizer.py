from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library, user
from tests.build import Generation, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.model.findings import Clear, Found, Method, Skipped
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.rules.gpu.gpu005_unfused_optimizer import UnfusedOptimizer
from traceadvisor.rules.gpu.optimizer_on_cpu import THREADS_WAIT

STACK = ("torch/optim/optimizer.py(280): wrapper", "train.py(31): train", "train.py(80): main")


def _step(count: int = 60, *, name: str = "SGD", generation: Generation = Generation.CURRENT) -> TraceBuilder:
    """A matmul of 100 us, then an optimizer with 10 us and a kernel of 3 us per parameter."""
    end = 100 + 10 * count
    builder = TraceBuilder(generation).step(0, 0, end + 10).op("aten::mm", 0, 5).launch(1, 3, kernel=(4, 104))
    builder.optimizer(100, end, name=f"{name}.step")
    for start in range(100, end, 10):
        builder.op("aten::add_", start, start + 9, stack=STACK)
        builder.launch(start + 2, start + 5, kernel=(start + 6, start + 9), name="add")
    return builder


def test_many_short_kernels_in_the_optimizer_are_found(tmp_path: Path) -> None:
    found = finding(UnfusedOptimizer(), _step(), tmp_path)
    assert evidence(found, "optimizer kernels") == 60
    assert evidence(found, "median optimizer kernel") == 3_000
    assert evidence(found, "kernel time of the optimizer") == 180_000
    assert evidence(found, "CPU time in the optimizer") == 600_000


def test_optimizer_kernels_and_the_idle_time_before_them_are_claimed(tmp_path: Path) -> None:
    # From 104 to 700, except for the microsecond after each operator, in which the CPU runs no operator.
    assert finding(UnfusedOptimizer(), _step(), tmp_path).claims.total_ns == 536_000


def test_few_kernels_are_clear(tmp_path: Path) -> None:
    assert clear(UnfusedOptimizer(), _step(10), tmp_path).value == 10


def test_long_kernels_are_clear(tmp_path: Path) -> None:
    assert clear(UnfusedOptimizer(short_kernel_us=2.0), _step(), tmp_path).value == 0


def test_an_optimizer_that_takes_little_time_is_clear(tmp_path: Path) -> None:
    builder = _step().step(1, 800, 100_000).op("aten::mm", 800, 805).launch(801, 803, kernel=(804, 99_000))
    assert clear(UnfusedOptimizer(fewest_kernels=20), builder, tmp_path).value == pytest.approx(0.006, abs=0.001)


@pytest.mark.parametrize(
    ("name", "version", "setting"),
    [
        ("AdamW", None, "fused=True"),
        ("RMSprop", None, "foreach=True"),
        ("SGD", None, "fused=True"),
        ("SGD", "2.2.0", "foreach=True"),
        ("SGD", "2.3.0", "fused=True"),
        ("AdamW", "1.13.1", "foreach=True"),
        ("Adagrad", None, "foreach=True"),  # fused Adagrad only runs on CPUs before 2.13
        ("Adagrad", "2.12.0", "foreach=True"),
        ("Adagrad", "2.13.0", "fused=True"),
    ],
)
def test_the_proposed_setting_is_one_that_the_optimizer_supports(
    name: str, version: str | None, setting: str, tmp_path: Path
) -> None:
    captured = Captured(_step(name=name), tmp_path).with_settings(torch_version=version)
    found = captured.finding(UnfusedOptimizer())
    assert found.fix.change == (
        f"optimizer = torch.optim.{name}(model.parameters(), lr=lr, {setting})  # keep your other arguments"
    )
    assert any("foreach=True needs memory" in caveat for caveat in found.caveats) is (setting == "foreach=True")


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "MyOptimizer"])
def test_no_setting_is_proposed_for_an_optimizer_without_one(name: str, tmp_path: Path) -> None:
    assert finding(UnfusedOptimizer(), _step(name=name), tmp_path).fix.change is None


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_and_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(UnfusedOptimizer(), _step(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 31)


def test_without_an_optimizer_step_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(1, 3, kernel=(4, 90))
    assert "No Optimizer.step" in skipped(UnfusedOptimizer(), builder, tmp_path)


@pytest.mark.parametrize(
    ("name", "captured"),
    [("AdamW", {"optimizer_fused": True}), ("RMSprop", {"optimizer_foreach": True})],
)
def test_an_optimizer_with_its_fastest_setting_is_clear(name: str, captured: dict[str, bool], tmp_path: Path) -> None:
    found = Captured(_step(name=name), tmp_path).with_settings(optimizer=name, **captured).clear(UnfusedOptimizer())
    assert (found.value, found.limit) == (60, 50)
    assert found.remark
    assert found.remark.startswith(f"{name} already uses ")


@pytest.mark.parametrize(
    ("captured", "flags"),
    [
        ("AdamW", {"optimizer_foreach": True}),  # fused is faster
        ("AdamW", {"optimizer_fused": False}),
        ("SGD", {"optimizer_fused": True}),  # another optimizer
    ],
)
def test_a_faster_setting_is_proposed(captured: str, flags: dict[str, bool], tmp_path: Path) -> None:
    run = Captured(_step(name="AdamW"), tmp_path).with_settings(optimizer=captured, **flags)
    assert run.finding(UnfusedOptimizer()).fix.change == (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # keep your other arguments"
    )


@pytest.mark.parametrize(("step_us", "found"), [(30_001, False), (30_000, True)])
def test_the_optimizer_counts_from_two_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # It takes 600 us of CPU time.
    builder = _step()
    builder.events[0]["dur"] = step_us
    assert is_found(UnfusedOptimizer(), builder, tmp_path) is found


@pytest.mark.parametrize(("count", "found"), [(49, False), (50, True)])
def test_short_kernels_count_from_fifty_per_step(count: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(UnfusedOptimizer(), _step(count), tmp_path) is found


@pytest.mark.parametrize(("kernel_us", "found"), [(10, False), (9.9, True)])
def test_a_kernel_is_short_below_ten_microseconds(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1200).optimizer(0, 1200)
    for start in range(0, 1200, 20):
        builder.op("aten::add_", start, start + 9)
        builder.launch(start + 2, start + 5, kernel=(start + 6, start + 6 + kernel_us), name="add")
    assert is_found(UnfusedOptimizer(), builder, tmp_path) is found


def test_figures_are_per_step(tmp_path: Path) -> None:
    builder = twice(_step(), 1000)
    found = finding(UnfusedOptimizer(), builder, tmp_path)
    assert evidence(found, "optimizer kernels") == 60
    assert evidence(found, "kernel time of the optimizer") == 180_000
    assert evidence(found, "CPU time in the optimizer") == 600_000


def _on_host(count: int = 60, *, name: str = "Adam", operator_us: float = 5, rest_us: float = 100) -> TraceBuilder:
    """Three steps without a GPU: a matmul, then an optimizer with an operator per 10 us."""
    builder, at = TraceBuilder(), 0.0
    for number in range(3):
        begin = at
        builder.op("aten::mm", at, at + rest_us)
        at += rest_us
        builder.optimizer(at, at + 10 * count, name=f"{name}.step")
        for position in range(count):
            builder.op("aten::mul_", at + 10 * position, at + 10 * position + operator_us)
        at += 10 * count
        builder.step(number, begin, at)
    return builder


def test_without_a_gpu_many_short_operators_in_the_optimizer_are_found(tmp_path: Path) -> None:
    found = finding(UnfusedOptimizer(), _on_host(), tmp_path)
    assert evidence(found, "short optimizer operators") == 60
    assert evidence(found, "median optimizer operator") == 5_000
    assert found.fix.change is not None
    assert "torch.optim.Adam(model.parameters(), lr=lr, fused=True)" in found.fix.change
    assert found.saving.method is Method.BOUND
    assert 520_000 <= found.saving.high_ns < 0.87 * 900_000  # 0.87 of 600 us; recording may have made the rest longer


def test_without_a_gpu_long_operators_are_clear(tmp_path: Path) -> None:
    assert clear(UnfusedOptimizer(), _on_host(operator_us=10), tmp_path).value == 0


@pytest.mark.parametrize(("rest_us", "found"), [(5400, True), (5401, False)])
def test_without_a_gpu_the_optimizer_counts_from_a_tenth_of_the_step(
    rest_us: float, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(UnfusedOptimizer(), _on_host(rest_us=rest_us), tmp_path) is found


def test_without_a_gpu_an_optimizer_without_a_fused_version_is_skipped(tmp_path: Path) -> None:
    assert "no fused version" in skipped(UnfusedOptimizer(), _on_host(name="RMSprop"), tmp_path)


@pytest.mark.parametrize(("version", "found"), [("2.3.1", False), ("2.4.0+cpu", True), (None, True)])
def test_fused_optimizers_run_on_the_cpu_from_torch_2_4(version: str | None, tmp_path: Path, *, found: bool) -> None:
    outcome = Captured(_on_host(), tmp_path).with_settings(torch_version=version).outcome(UnfusedOptimizer())
    assert isinstance(outcome, Found if found else Skipped)


def test_without_a_gpu_the_limit_is_all_time_in_the_optimizer_with_long_operators(tmp_path: Path) -> None:
    builder, count = TraceBuilder(), 60
    for number in range(3):
        begin = number * 1000.0
        builder.op("aten::mm", begin, begin + 300).optimizer(begin + 300, begin + 1000, name="Adam.step")
        for position in range(count):
            builder.op("aten::mul_", begin + 300 + 10 * position, begin + 305 + 10 * position)
        builder.op("aten::addcdiv_", begin + 900, begin + 1000).step(number, begin, begin + 1000)
    assert 600_000 <= finding(UnfusedOptimizer(), builder, tmp_path).saving.high_ns < 870_000


def test_without_a_gpu_a_fused_update_keeps_more_of_sgd_than_of_adam(tmp_path: Path) -> None:
    limits = [finding(UnfusedOptimizer(), _on_host(name=name), tmp_path).saving.high_ns for name in ("SGD", "Adam")]
    assert limits[0] / limits[1] == pytest.approx(0.85 / 0.87)


def test_the_limit_is_at_most_the_optimizers_share_of_undisturbed_steps(tmp_path: Path) -> None:
    # It has 600 of 700 us of recorded steps; without the profiler, they take 350 us.
    captured = Captured(_on_host(), tmp_path).with_steps([0] * 20, step_us=350)
    assert captured.finding(UnfusedOptimizer()).saving.high_ns <= 0.87 * 300_000


@pytest.mark.parametrize(
    ("threads", "others_cores", "found"), [(2, 1.5, False), (1, 1.5, True), (None, 1.5, True), (2, 0.0, True)]
)
def test_no_fused_update_is_proposed_for_several_threads_on_busy_cores(
    threads: int | None, others_cores: float, tmp_path: Path, *, found: bool
) -> None:
    captured = Captured(_on_host(), tmp_path).with_settings(cpu_count=2, torch_threads=threads)
    captured = captured.with_processes(mean_cpu_cores=0.5).with_node(mean_cpu_share=(0.5 + others_cores) / 2)
    outcome = captured.outcome(UnfusedOptimizer())
    assert isinstance(outcome, Found) is found
    assert found or (isinstance(outcome, Skipped) and outcome.reason == THREADS_WAIT)


@pytest.mark.parametrize(("second", "is_named"), [("Adam", True), ("SGD", False)])
def test_all_lines_that_construct_such_optimizers_are_named(second: str, tmp_path: Path, *, is_named: bool) -> None:
    places = (Location("gan.py", line, "<module>", PlaceKind.CONSTRUCTED) for line in (115, 116))
    made = tuple(Constructed(Role.OPTIMIZER, *one) for one in zip(("Adam", second), places, strict=True))
    found = Captured(_on_host(), tmp_path).with_settings(constructed=made).finding(UnfusedOptimizer())
    assert ("in each optimizer: gan.py:115 and gan.py:116" in found.fix.summary) is is_named


def test_samples_show_the_lines_that_call_optimizers_if_no_stack_does(tmp_path: Path) -> None:
    calls = [(MAIN, user("train", line), library("step", 300, "torch/optim/adam.py")) for line in (20, 30)]
    reset = (MAIN, user("train", 40), library("zero_grad", 9, "torch/optim/optimizer.py"))
    samples = Samples().add(10, *calls[0]).add(20, *calls[1]).add(30, *reset).add(40, MAIN, user("train", 50)).build()
    found = Captured(_on_host(), tmp_path).with_run(stacks=samples).finding(UnfusedOptimizer())
    assert [(one.line, one.samples) for one in found.locations] == [(30, 20), (20, 10)]


@pytest.mark.parametrize(("groups", "is_merged"), [(1, False), (2, False), (15, False), (16, True), (60, True)])
def test_many_parameter_groups_are_merged_before_the_optimizer_is_fused(
    groups: int, tmp_path: Path, *, is_merged: bool
) -> None:
    captured = Captured(_on_host(), tmp_path).with_settings(
        optimizer="Adam", optimizer_groups=groups, optimizer_tensors=60
    )
    found = captured.finding(UnfusedOptimizer())
    assert evidence(found, "parameter groups") == groups
    assert ("into one group" in found.fix.summary) is is_merged
    assert dict(found.fix.settings) == ({} if is_merged else {"fused": True})  # the flag alone would save nothing


@pytest.mark.parametrize(("groups", "found"), [(1, False), (60, True)])
def test_a_fused_optimizer_on_the_cpu_is_found_only_with_many_groups(
    groups: int, tmp_path: Path, *, found: bool
) -> None:
    captured = Captured(_on_host(), tmp_path).with_settings(
        optimizer="Adam", optimizer_fused=True, optimizer_groups=groups, optimizer_tensors=60
    )
    assert isinstance(captured.outcome(UnfusedOptimizer()), Found if found else Clear)


def test_a_passed_check_of_many_short_operators_says_that_the_optimizer_is_fused(tmp_path: Path) -> None:
    captured = Captured(_on_host(), tmp_path).with_settings(optimizer="Adam", optimizer_fused=True)
    clear = captured.clear(UnfusedOptimizer())
    assert clear.value > clear.limit
    assert clear.remark == "the optimizer is fused"


def test_one_group_of_few_tensors_needs_no_merging(tmp_path: Path) -> None:
    captured = Captured(_on_host(), tmp_path).with_settings(optimizer="Adam", optimizer_groups=1, optimizer_tensors=3)
    assert dict(captured.finding(UnfusedOptimizer()).fix.settings) == {"fused": True}
