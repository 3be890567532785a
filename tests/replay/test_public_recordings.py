"""The replay on recordings that others made: it gives the steps again, and foresees a change that was made."""

from pathlib import Path

import pytest

from tests.recordings.test_table import facts_of
from tests.shared import FOUR_WORKERS, LOGS, NO_WORKERS, NO_WORKERS_LATER, RECORDINGS
from traceadvisor.facts import Facts
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario

WITH_SEVERAL_STEPS = (
    *LOGS,
    "formats/array-form-v100.pt.trace.json.gz",
    "formats/nccl-rank0of2-a100.pt.trace.json.gz",
    "formats/ns-timestamps-v100.pt.trace.json.gz",
    "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz",
)

PACED_BY_THE_DEVICE = (
    "formats/ns-timestamps-v100.pt.trace.json.gz",
    "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz",
)
"""The others keep their device idle for a good part of every step, and the host alone comes within 2%."""


def _replay(facts: Facts) -> Replay:
    assert facts.replay is not None
    return facts.replay


@pytest.mark.parametrize("name", WITH_SEVERAL_STEPS)
def test_the_unchanged_step_comes_out_as_recorded(name: str, shared_traces: Path) -> None:
    gate = _replay(facts_of(shared_traces / name)).gate
    assert gate.doubt is None
    assert abs(gate.error_share) < 0.01
    assert gate.unexplained_share < 0.01


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_of_fewer_steps_is_not_trusted(name: str, shared_traces: Path) -> None:
    if name not in WITH_SEVERAL_STEPS:
        assert _replay(facts_of(shared_traces / name)).gate.doubt == Reason(Doubt.ONE_STEP)


@pytest.mark.parametrize("name", WITH_SEVERAL_STEPS)
def test_the_device_model_is_validated_if_the_device_sets_the_pace(name: str, shared_traces: Path) -> None:
    is_put_to_the_test = _replay(facts_of(shared_traces / name)).gate.device_doubt is None
    assert is_put_to_the_test is (name in PACED_BY_THE_DEVICE)


@pytest.mark.parametrize("name", [NO_WORKERS, NO_WORKERS_LATER])
@pytest.mark.parametrize("edit", [NoDataWait(), LoaderWorkers(4)])
def test_the_step_with_four_workers_is_foreseen(name: str, edit: Edit, shared_traces: Path) -> None:
    # The same training was recorded with four workers: 126.7 ms, median of the steps in the middle. Without workers it
    # took 177.2 and 149.7 ms, and the data wait alone, taken away, would leave 118.3 and 114.2.
    facts, truth_ns = facts_of(shared_traces / name), facts_of(shared_traces / FOUR_WORKERS).step_ns
    assert facts.step_ns is not None
    assert truth_ns is not None
    low, expected, high = ((1 - _replay(facts).saving_share([edit], scenario)) * facts.step_ns for scenario in Scenario)
    assert expected == pytest.approx(truth_ns, rel=0.05)
    assert high < truth_ns < low
