"""How many devices a run uses and what a sample takes of their power, as rules and reports are told."""

from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.rules.captured import SAMPLED_DEVICE, Captured
from traceadvisor.model.telemetry import Series, Telemetry


def _step(*devices: int) -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    for device in devices:
        builder.launch(2, 4, kernel=(5, 100), device=device)
    return builder


def _sampled(builder: TraceBuilder, folder: Path, *, watts: float | None) -> Captured:
    """Undisturbed steps of 100 ms with a batch of 32: 320 samples a second."""
    nothing = Series(np.empty(0, dtype=np.int64), {})
    telemetry = Telemetry("node7", (SAMPLED_DEVICE,), nothing, nothing, 8, None)
    captured = Captured(builder, folder).with_loader(batch_size=32).with_run(telemetry=telemetry)
    return captured.with_steps([0.0] * 5, step_us=100_000).with_device(mean_power_watts=watts)


def test_a_sample_takes_the_devices_power_for_its_time(tmp_path: Path) -> None:
    assert _sampled(_step(0), tmp_path, watts=640.0).facts().joules_per_sample == pytest.approx(2.0)


def test_without_a_sample_of_the_power_energy_is_not_known(tmp_path: Path) -> None:
    assert _sampled(_step(0), tmp_path, watts=None).facts().joules_per_sample is None


def test_without_the_rate_of_samples_energy_is_not_known(tmp_path: Path) -> None:
    captured = _sampled(_step(0), tmp_path, watts=640.0).with_loader(batch_size=None)
    assert captured.facts().joules_per_sample is None


def test_without_a_device_there_is_no_energy_of_one(tmp_path: Path) -> None:
    facts = _sampled(_step(), tmp_path, watts=640.0).facts()
    assert (facts.joules_per_sample, facts.trace.device_indices) == (None, ())


def test_the_devices_of_a_process_are_those_that_worked(tmp_path: Path) -> None:
    assert Captured(_step(0, 2), tmp_path).facts().trace.device_indices == (0, 2)


@pytest.mark.parametrize(("recorded", "launched", "ranks"), [(None, 1, 1), (8, 1, 8), (None, 4, 4)])
def test_ranks_are_those_of_the_process_group_or_of_the_launcher(
    recorded: int | None, launched: int, ranks: int, tmp_path: Path
) -> None:
    builder = _step(0)
    if recorded:
        builder.distributed(0, recorded)
    assert Captured(builder, tmp_path).with_run(world_size=launched).facts().run.rank_count == ranks
