from pathlib import Path
from typing import Any

import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library
from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Finding, Found, Method, Skipped
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.model.run import Run, RunSettings, StepState, TimedStep
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import nothing_recorded
from traceadvisor.rules.idle.idle007_debug_left_on import STOP, DebugLeftOn


def _step() -> TraceBuilder:
    """A step of 100 us in which the device waits 40 us for a launch."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 40)
    return builder.launch(38, 40, kernel=(40, 100))


def _blocking() -> TraceBuilder:
    """A step of 400 us with a kernel of 5 us in every 10, each launch returning with its kernel's end."""
    builder = TraceBuilder().step(0, 0, 400).op("aten::mm", 0, 400)
    for at in range(0, 400, 10):
        builder.launch(at, at + 10, kernel=(at + 5, at + 10))
    return builder


def _checking() -> TraceBuilder:
    """A forward pass of 1 us, then twenty nodes of 20 us on the host, 4 us of each spent on looking for NaN."""
    builder = TraceBuilder().step(0, 0, 401).op("aten::mm", 400, 401)
    for at in range(0, 400, 20):
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 20, thread=AUTOGRAD)
        builder.op("aten::isnan", at + 10, at + 14, thread=AUTOGRAD)
    return builder


def _keeping(*, with_stacks: bool) -> TraceBuilder:
    """A step of 500 us on the host: 100 us of forward pass, of which 70 keep a stack, and 80 us of NaN checks."""
    builder = TraceBuilder().step(0, 0, 500).op("aten::mm", 0, 100)
    if with_stacks:
        builder.python("torch/fx/traceback.py(497): format_stack", 10, 70)
        builder.python("traceback.py(217): extract_stack", 20, 60)
    for at in range(100, 500, 20):
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 20, thread=AUTOGRAD)
        builder.op("aten::isnan", at + 10, at + 14, thread=AUTOGRAD)
    return builder


def _timed(undisturbed_us: float) -> tuple[TimedStep, ...]:
    """Recorded steps of 500 us between shorter ones."""
    plain = [
        TimedStep(number, 10**18 + number, round(undisturbed_us * 1000), 0, 0, StepState.PLAIN) for number in range(41)
    ]
    recorded = [TimedStep(number, 10**18 + number, 500_000, 0, 0, StepState.RECORDED) for number in range(41, 46)]
    return (*plain, *recorded)


def _nothing(folder: Path) -> Trace:
    """What is read of a rank that recorded nothing."""
    return nothing_recorded(Origin(folder / "manifest.json", run="", worker="rank0", span=""))


def _left_on(found: Finding) -> list[float | int | str]:
    return [row.value for row in found.evidence if row.label == "enabled"]


def test_blocking_launches_are_found_in_any_recording(tmp_path: Path) -> None:
    found = finding(DebugLeftOn(), _blocking(), tmp_path)
    assert _left_on(found) == ["CUDA_LAUNCH_BLOCKING=1"]
    assert evidence(found, "share of launches that return after") == 1.0
    assert found.claims.total_ns == 40 * 5_000
    assert (found.saving.low_ns, found.saving.high_ns) == (0, 200_000)


def test_nan_checks_are_found_in_any_recording_with_their_time(tmp_path: Path) -> None:
    found = finding(DebugLeftOn(), _checking(), tmp_path)
    assert _left_on(found) == ["autograd anomaly detection"]
    assert (found.saving.low_ns, found.saving.expected_ns) == (80_000, 80_000)
    # The forward pass and some of the rest, too; recording may have made the rest of the step longer.
    assert 81_000 + 0.1 * 320_000 <= found.saving.high_ns < 1.5 * (81_000 + 0.1 * 320_000)
    assert found.saving.method is Method.MODEL


def test_the_line_that_turns_on_anomaly_detection_is_named(tmp_path: Path) -> None:
    place = Location("train.py", 12, "<module>", PlaceKind.CONSTRUCTED)
    on = Captured(_step(), tmp_path).with_settings(
        detect_anomaly=True, constructed=(Constructed(Role.ANOMALY, "set_detect_anomaly", place),)
    )
    assert on.finding(DebugLeftOn()).locations == (place,)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"detect_anomaly": True}, "autograd anomaly detection"),
        ({"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}, "CUDA_LAUNCH_BLOCKING=1"),
        ({"environment": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}, "PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
        ({"environment": {"TORCH_DISTRIBUTED_DEBUG": "detail"}}, "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ({"cuda_sync_debug_mode": 1}, "CUDA sync debug mode"),
        ({"own_profiler_share": 1.0}, "profiler active in most steps"),
        ({"python_profiler": "yappi", "python_profiler_share": 1.0}, "yappi active in most steps"),
    ],
)
def test_debugging_options_in_a_capture_are_found(settings: dict[str, Any], what: str, tmp_path: Path) -> None:
    assert _left_on(Captured(_step(), tmp_path).with_settings(**settings).finding(DebugLeftOn())) == [what]


def test_the_saving_is_at_most_the_gpu_wait_for_the_cpu(tmp_path: Path) -> None:
    found = Captured(_step(), tmp_path).with_settings(detect_anomaly=True).finding(DebugLeftOn())
    assert found.saving.high_ns == pytest.approx(40_000)


def test_several_options_are_one_finding(tmp_path: Path) -> None:
    settings = {"detect_anomaly": True, "cuda_sync_debug_mode": 2}
    found = Captured(_step(), tmp_path).with_settings(**settings).finding(DebugLeftOn())
    assert len(_left_on(found)) == 2
    assert found.saving.high_ns == pytest.approx(40_000)


def test_a_profiler_is_found_in_a_run_without_a_recording(tmp_path: Path) -> None:
    run = Run(("train.py",), "ran to its end", (), RunSettings(own_profiler_share=0.9), None)
    outcome = run_rule(DebugLeftOn(), Facts(_nothing(tmp_path), None, "run/rank0", run))
    assert isinstance(outcome, Found)
    assert _left_on(outcome.finding) == ["profiler active in most steps"]
    assert outcome.finding.saving.high_ns == 0


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"detect_anomaly": False, "cuda_sync_debug_mode": 0, "own_profiler_share": 0.1},
        {"environment": {"CUDA_LAUNCH_BLOCKING": "0", "TORCH_DISTRIBUTED_DEBUG": "INFO"}},
    ],
)
def test_with_everything_off_the_rule_is_clear(settings: dict[str, Any], tmp_path: Path) -> None:
    assert Captured(_step(), tmp_path).with_settings(**settings).clear(DebugLeftOn()).value == 0


def test_a_recording_without_signs_is_clear(tmp_path: Path) -> None:
    assert clear(DebugLeftOn(), _step(), tmp_path).value == 0


def test_without_steps_or_settings_the_rule_cannot_look(tmp_path: Path) -> None:
    outcome = run_rule(DebugLeftOn(), Facts(_nothing(tmp_path), None, "run/rank0"))
    assert isinstance(outcome, Skipped)
    assert "No complete step" in outcome.reason


@pytest.mark.parametrize(("blocking", "found"), [(35, False), (36, True)])
def test_launches_block_if_90_percent_return_after_their_kernel(blocking: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 400).op("aten::mm", 0, 400)
    for number in range(40):
        at = 10 * number
        builder.launch(at, at + (10 if number < blocking else 3), kernel=(at + 5, at + 10))
    assert is_found(DebugLeftOn(), builder, tmp_path) is found


@pytest.mark.parametrize(("checked", "found"), [(9, False), (10, True)])
def test_anomaly_detection_is_on_if_half_of_the_nodes_have_a_nan_check(
    checked: int, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 401).op("aten::mm", 400, 401)
    for number in range(20):
        at = 20 * number
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 20, thread=AUTOGRAD)
        if number < checked:
            builder.op("aten::isnan", at + 10, at + 14, thread=AUTOGRAD)
    assert is_found(DebugLeftOn(), builder, tmp_path) is found


@pytest.mark.parametrize(("share", "found"), [(0.49, False), (0.5, True)])
def test_a_profiler_is_left_on_if_it_runs_in_half_of_the_steps(share: float, tmp_path: Path, *, found: bool) -> None:
    captured = Captured(_step(), tmp_path).with_settings(own_profiler_share=share)
    assert captured.is_found(DebugLeftOn()) is found


def test_nodes_without_checks_show_that_anomaly_detection_is_off(tmp_path: Path) -> None:
    # Compiling turns it on while it traces a model; a capture then sees it on once.
    builder = TraceBuilder().step(0, 0, 400).op("aten::mm", 0, 1)
    for at in range(0, 400, 20):
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 20, thread=AUTOGRAD)
    captured = Captured(builder, tmp_path).with_settings(detect_anomaly=True)
    assert not captured.is_found(DebugLeftOn())


def test_samples_show_how_long_anomaly_detection_keeps_stacks(tmp_path: Path) -> None:
    # Of the backward pass of 400 us, 80 are spent on looking for NaN.
    kept, backward = library("extract", 1, "traceback.py"), library("backward", 1, "torch/autograd/graph.py")
    samples = Samples().add(60, MAIN, kept).add(30, MAIN, backward).add(10, MAIN, library("linear")).build()
    captured = Captured(_checking(), tmp_path).with_settings(detect_anomaly=True).with_run(stacks=samples)
    found = captured.finding(DebugLeftOn()).saving
    assert found.expected_ns == pytest.approx((0.6 + 0.2 * 0.3) * 401_000)
    assert found.low_ns < 0.6 * 401_000 / (1 + 13)  # of a stack of one frame in those of the capture
    assert 0.9 * 401_000 < found.high_ns <= 401_000


def test_samples_without_kept_stacks_show_nothing_of_it(tmp_path: Path) -> None:
    samples = Samples().add(60, MAIN, library("linear")).build()
    captured = Captured(_checking(), tmp_path).with_settings(detect_anomaly=True)
    plain = captured.finding(DebugLeftOn()).saving
    assert captured.with_run(stacks=samples).finding(DebugLeftOn()).saving == plain


@pytest.mark.parametrize(("with_stacks", "kept_us"), [(False, 100), (True, 70)])
def test_the_limit_of_distorted_steps_includes_the_stacks_that_are_kept(
    kept_us: float, tmp_path: Path, *, with_stacks: bool
) -> None:
    # The step is 2.5 times as long as undisturbed ones; the other time was at least 1/7.5 of what it is.
    captured = Captured(_keeping(with_stacks=with_stacks), tmp_path).with_run(steps=_timed(200))
    found = captured.with_settings(detect_anomaly=True).finding(DebugLeftOn()).saving
    most_us = min(80 + kept_us, 200 - (500 - 80 - kept_us) / 7.5)
    assert found.method is Method.BOUND
    assert found.high_ns == pytest.approx(1000 * (most_us + 0.1 * (200 - most_us)))


def test_a_range_starts_with_the_checks_without_all_that_recording_added(tmp_path: Path) -> None:
    captured = Captured(_keeping(with_stacks=True), tmp_path).with_run(steps=_timed(450))
    found = captured.with_settings(detect_anomaly=True).finding(DebugLeftOn()).saving
    assert (found.method, found.low_ns) == (Method.MODEL, 80_000 - 50_000)
    assert found.expected_ns == pytest.approx(150_000 * 450 / 500)
    assert found.high_ns == pytest.approx(150_000 + 0.1 * 300_000)


def test_kernels_of_nan_checks_are_part_of_the_limit(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 400).op("aten::mm", 0, 1)
    for at in range(0, 400, 20):
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 19, thread=AUTOGRAD)
        builder.op("aten::isnan", at + 2, at + 8, thread=AUTOGRAD)
        builder.launch(at, at + 1, kernel=(at + 1, at + 5), thread=AUTOGRAD)
        builder.launch(at + 3, at + 4, kernel=(at + 5, at + 12), name="ne", thread=AUTOGRAD)
    found = finding(DebugLeftOn(), builder, tmp_path)
    assert found.claims.total_ns == 20 * (20 - 4) * 1000  # all but the other kernels
    assert found.saving.high_ns == found.claims.total_ns


def test_blocking_launches_keep_copies_from_running_beside_kernels(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 410).op("aten::mm", 0, 410)
    for at in range(0, 400, 10):
        builder.launch(at, at + 10, kernel=(at + 5, at + 10))
    builder.copy(400, 401, on_device=(401, 409))
    found = finding(DebugLeftOn(), builder, tmp_path)
    assert found.saving.high_ns == found.claims.total_ns + 8_000


def test_an_allocator_without_a_cache_empties_the_queue_of_the_gpu(tmp_path: Path) -> None:
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90)
    builder.launch(8, 10, kernel=(10, 20)).launch(20, 60, call="cudaFree").launch(78, 80, kernel=(80, 100))
    found = Captured(builder, tmp_path).with_settings(environment=environment).finding(DebugLeftOn())
    assert found.claims
    assert found.saving.high_ns > found.claims.total_ns


def test_a_cpu_that_gets_ahead_of_the_gpu_hides_the_wait_for_batches(tmp_path: Path) -> None:
    builder = _step().step(1, 100, 200).loader(105, 145).op("aten::mm", 145, 160)
    builder.launch(158, 160, kernel=(160, 200))
    found = Captured(builder, tmp_path).with_settings(detect_anomaly=True).finding(DebugLeftOn())
    assert found.saving.high_ns * 2 == pytest.approx(100_000)  # of two steps: 40 us for a launch, 60 with the batch


@pytest.mark.parametrize(("undisturbed_us", "most_share"), [(450, (150 + 0.1 * 300) / 450), (600, 1.0)])
def test_samples_limit_the_saving_if_other_programs_slowed_down_undisturbed_steps(
    undisturbed_us: float, most_share: float, tmp_path: Path
) -> None:
    kept, backward = library("extract", 1, "traceback.py"), library("backward", 1, "torch/autograd/graph.py")
    samples = Samples().add(30, MAIN, kept).add(90, MAIN, backward).build()
    captured = Captured(_keeping(with_stacks=True), tmp_path).with_settings(detect_anomaly=True)
    captured = captured.with_run(steps=_timed(undisturbed_us), stacks=samples)
    assert captured.finding(DebugLeftOn()).saving.high_ns == pytest.approx(most_share * undisturbed_us * 1000)


@pytest.mark.parametrize(("share", "found"), [(0.49, False), (0.5, True)])
def test_python_code_is_watched_too_long_from_half_of_the_steps_on(
    share: float, tmp_path: Path, *, found: bool
) -> None:
    captured = Captured(_step(), tmp_path).with_settings(python_profiler="coverage", python_profiler_share=share)
    assert captured.is_found(DebugLeftOn()) is found


@pytest.mark.parametrize(
    ("tool", "stops"),
    [("cProfile", "profile.disable()"), ("sys.settrace", "sys.settrace(None)"), ("scalpl", "# train without scalpl")],
)
def test_what_watches_python_code_is_named_with_how_to_stop_it(tool: str, stops: str, tmp_path: Path) -> None:
    captured = Captured(_step(), tmp_path).with_settings(python_profiler=tool, python_profiler_share=0.5)
    found = captured.finding(DebugLeftOn())
    assert found.fix.summary == STOP
    assert stops in str(found.fix.change)
    assert found.saving.high_ns == pytest.approx(0.5 * 0.7 * 100_000)


@pytest.mark.parametrize(("share", "most_us"), [(0.6, 42), (0.5, 35)])
def test_a_profiler_left_on_may_cost_time(share: float, most_us: float, tmp_path: Path) -> None:
    found = Captured(_step(), tmp_path).with_settings(own_profiler_share=share).finding(DebugLeftOn())
    assert found.saving.high_ns == pytest.approx(most_us * 1000)
    assert "unknown" in str(found.saving.reason)
    assert "scheduled steps" in found.fix.summary
