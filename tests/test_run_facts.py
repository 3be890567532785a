from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rendering.captures import captured
from tests.rendering.samples import telemetry_with_devices
from tests.rules.captured import Captured
from traceadvisor.facts import Facts
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.run_facts import RunFacts


def _facts(folder: Path, *cuda_indices: int | None) -> RunFacts:
    """Of ``cuda:0``, on a machine whose sampled GPUs have these numbers in the training."""
    telemetry = telemetry_with_devices(len(cuda_indices))
    devices = (replace(one, cuda_index=number) for one, number in zip(telemetry.devices, cuda_indices, strict=True))
    run = captured().recordings[0].captured
    assert run
    run = replace(run, telemetry=replace(telemetry, devices=tuple(devices)))
    return RunFacts(TraceBuilder().step(0, 0, 100).trace(folder), 0, run)


def test_a_gpu_has_the_samples_of_its_own_number(tmp_path: Path) -> None:
    facts = _facts(tmp_path, 1, 0)
    assert facts.sampled_device
    assert facts.sampled_device.uuid == "GPU-1"


def test_the_only_sampled_gpu_may_be_another_one(tmp_path: Path) -> None:
    facts = _facts(tmp_path, None)
    assert facts.sampled_device is None
    assert facts.device_telemetry is None


@pytest.mark.parametrize(("undisturbed_us", "ran_ahead"), [(60, False), (30, True)])
def test_the_cpu_ran_ahead_if_it_takes_less_than_the_least_work_of_a_step(
    undisturbed_us: int, tmp_path: Path, *, ran_ahead: bool
) -> None:
    facts = _of_steps(tmp_path, (100, 70) * 5, undisturbed_us)
    assert (facts.timing.launch_ns is not None) == ran_ahead


def test_the_timing_of_a_run_does_not_depend_on_the_steps_that_a_rule_reads(tmp_path: Path) -> None:
    facts = _of_steps(tmp_path, (100,) * 9 + (30,), 60)
    assert facts.steps.typical != facts.steps.kept
    assert facts.of_all_steps.timing == facts.timing


def _of_steps(folder: Path, recorded_us: Sequence[int], undisturbed_us: int) -> Facts:
    """Recorded steps in which kernels run for all but 10 us, and 30 undisturbed ones."""
    builder, at = TraceBuilder(), 0
    for number, length in enumerate(recorded_us):
        builder.step(number, at, at + length).launch(at + 1, at + 2, kernel=(at + 5, at + length - 5))
        at += length
    steps = tuple(TimedStep(n, 0, undisturbed_us * 1000, 0, 1, StepState.PLAIN, 0) for n in range(30))
    return Captured(builder, folder).with_run(steps=steps).facts()
