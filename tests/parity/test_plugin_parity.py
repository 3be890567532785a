"""Where the plugin is right, the report gives the same figures within 1%."""

from pathlib import Path

import pytest

from tests.parity.conftest import ReadRecording, ReadWithPlugin
from tests.shared import FOUR_WORKERS, LOGS
from traceadvisor.integrations.old_plugin import PluginDevice, PluginReading
from traceadvisor.model.report import Recording, Work

COPIES = (Work.H2D_COPY, Work.D2H_COPY, Work.D2D_COPY)

NIGHTLY = pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis/steps", "tests/parity")

Both = tuple[PluginReading, Recording]


@pytest.fixture(params=[name if name == FOUR_WORKERS else pytest.param(name, marks=NIGHTLY) for name in LOGS])
def both(request: pytest.FixtureRequest, shared_traces: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording) -> Both:
    path = shared_traces / str(request.param)
    return by_plugin(path), by_us(path)


def within_a_percent(ours: float | None, plugins: float | None) -> bool:
    assert ours is not None
    assert plugins is not None
    return ours == pytest.approx(plugins, rel=0.01)


def exposed_us(recording: Recording, *works: Work) -> float:
    overlaps = [recording.overlaps[work] for work in works]
    assert None not in overlaps
    return sum(overlap.exposed_ns / 1000 for overlap in overlaps if overlap)


def only_device(reading: PluginReading) -> PluginDevice:
    (device,) = reading.devices.values()
    return device


@NIGHTLY
def test_the_same_steps_are_found(both: Both) -> None:
    plugin, ours = both
    assert [str(row.step.index) for row in ours.steps] == [step.name for step in plugin.steps]


def test_mean_times_and_shares_are_the_same(both: Both) -> None:
    plugin, ours = both
    assert ours.mean_step_ns is not None
    assert within_a_percent(ours.mean_step_ns / 1000, plugin.mean.total_us)
    assert within_a_percent(exposed_us(ours, Work.KERNEL), plugin.mean.kernel_us)
    assert within_a_percent(exposed_us(ours, *COPIES), plugin.mean.memcpy_us)
    assert within_a_percent(exposed_us(ours, Work.MEMSET), plugin.mean.memset_us)
    assert within_a_percent(exposed_us(ours, Work.DATA_LOADING), plugin.mean.data_loader_us)
    assert ours.mean_breakdown is not None
    assert ours.mean_breakdown.totals.data_wait_ns == pytest.approx(exposed_us(ours, Work.DATA_LOADING) * 1000)
    assert within_a_percent(ours.figures.busy_share, only_device(plugin).busy_share)
    assert within_a_percent(ours.figures.sm_efficiency_share, only_device(plugin).sm_efficiency_share)
    assert within_a_percent(ours.figures.achieved_occupancy_share, only_device(plugin).achieved_occupancy_share)


def test_each_step_is_the_same(both: Both) -> None:
    plugin, ours = both
    durations_us = [row.step.duration_ns / 1000 for row in ours.steps]
    assert durations_us == pytest.approx([step.costs.total_us for step in plugin.steps], rel=0.01)


def test_the_longest_kernels_are_the_same(both: Both) -> None:
    plugin, ours = both
    plugins = [(name, kernel.count, kernel.total_us) for name, kernel in list(plugin.kernels.items())[:10]]
    steps = len(ours.steps)
    found = [(row.name, row.calls_per_step * steps, row.total_ns_per_step * steps / 1000) for row in ours.kernels[:10]]
    assert [name for name, *_ in found] == [name for name, *_ in plugins]
    assert [count for _, count, _ in found] == pytest.approx([count for _, count, _ in plugins])
    assert [total for *_, total in found] == pytest.approx([total for *_, total in plugins], rel=0.01)
