from __future__ import annotations

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
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import nothing_recorded
from traceadvisor.rules.idle.idle007_debug_left_on import DebugLeftOn


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
    assert (found.saving.high_ns, found.saving.method) == (81_000, Method.MODEL)  # and the forward pass


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
    assert found.low_ns < 0.6 * 401_000
    assert 0.9 * 401_000 < found.high_ns <= 401_000


def test_samples_without_kept_stacks_show_nothing_of_it(tmp_path: Path) -> None:
    samples = Samples().add(60, MAIN, library("linear")).build()
    captured = Captured(_checking(), tmp_path).with_settings(detect_anomaly=True)
    plain = captured.finding(DebugLeftOn()).saving
    assert captured.with_run(stacks=samples).finding(DebugLeftOn()).saving == plain
