"""The time of a run by its parts beside what the script itself measures, on the same clock.

What the script measures within a part is no longer than the part, and what it measures around it is no shorter: this
holds on a machine of any speed.
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import TypedDict

import pytest

from tests.recording.running import capture, manifest, steps
from traceadvisor.api import load
from traceadvisor.model.report import Recording
from traceadvisor.model.run import StepState
from traceadvisor.model.run_time import RunPart
from traceadvisor.recording.script.launch import start_of_this_process

SCRIPT = """
import json, time
began = time.perf_counter_ns()
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Slow:
    def __getstate__(self):
        time.sleep(0.05)
        return {}

torch.set_num_threads(1)
data = TensorDataset(torch.randn(120, 64), torch.randn(120, 1))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training, validation = DataLoader(data, batch_size=4), DataLoader(data, batch_size=40)
clock = time.perf_counter_ns
rows, inside, around, saved = [], [], [], []
ended = None
for epoch in range(2):
    batches = iter(training)
    while True:
        before = clock()
        batch = next(batches, None)
        after = clock()
        if ended is not None:
            around.append(after - ended)
            ended = None
        if batch is None:
            break
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.002)
        rows.append((before, after, clock()))
    ended = rows[-1][2]
    fetched = None
    with torch.no_grad():
        for inputs, targets in validation:
            fetched = fetched or clock()
            model(inputs)
            time.sleep(0.02)
    inside.append(clock() - fetched)
    begin = clock()
    torch.save({"weights": model.state_dict(), "slow": Slow()}, "checkpoint.pt")
    saved.append(clock() - begin)
around.append(clock() - ended)
last = clock()
json.dump(dict(total=last - began, rows=rows, inside=inside, around=around, saved=saved), open("own.json", "w"))
time.sleep(0.1)
"""


class Own(TypedDict):
    """What the script measured, in nanoseconds."""

    total: int
    rows: list[tuple[int, int, int]]
    """Of each step: before its fetch, after it, and at the end of its work."""

    inside: list[int]
    """Each validation, from its first batch on."""

    around: list[int]
    """From the last step of each epoch to the first fetch of the next."""

    saved: list[int]


Run = tuple[Path, Own, int]
"""The bundle, what the script measured, and how long the whole command took."""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(SCRIPT)
    begin = time.perf_counter_ns()
    done = capture("-o", "bundle", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bundle", json.loads((folder / "own.json").read_text()), time.perf_counter_ns() - begin


@pytest.fixture(scope="module")
def recording(captured: Run) -> Recording:
    (found,) = load(captured[0]).recordings
    return found


def test_the_whole_run_is_what_the_script_and_the_command_enclose(captured: Run, recording: Recording) -> None:
    _, own, command_ns = captured
    found = recording.run_time
    assert found is not None
    assert found.is_whole
    assert own["total"] + 100_000_000 <= found.total_ns <= command_ns
    assert sum(found.parts_ns.values()) == found.total_ns
    assert found.parts_ns[RunPart.AFTER] >= 100_000_000


def test_validation_and_checkpoints_are_what_the_script_measures(captured: Run, recording: Recording) -> None:
    _, own, _ = captured
    assert recording.run_time is not None
    parts = recording.run_time.parts_ns
    assert 2 * 50_000_000 <= parts[RunPart.CHECKPOINTS] <= sum(own["saved"])
    assert sum(own["inside"]) <= parts[RunPart.VALIDATION] + 2 * 1_000_000
    # The extra wait for the first batch of an epoch counts as its start, wherever it passes.
    assert parts[RunPart.VALIDATION] + parts[RunPart.CHECKPOINTS] <= sum(own["around"]) + own["rows"][0][0]


def test_the_undisturbed_step_is_what_the_script_measures(captured: Run, recording: Recording) -> None:
    bundle, own, _ = captured
    training = [step for step in steps(bundle) if step.state is not StepState.OTHER]
    rows, median_ns = own["rows"], recording.undisturbed_median_step_ns
    assert median_ns is not None
    assert len(training) == len(rows) == 60
    plain = [at for at, step in enumerate(training) if step.state is StepState.PLAIN and step.index > 0]
    within = [rows[at][2] - rows[at][1] for at in plain if at + 1 < len(rows)]
    around = [rows[at + 1][1] - rows[at][0] for at in plain if at + 1 < len(rows)]
    assert min(within) <= median_ns <= max(around)
    for at in plain[:-1]:
        assert rows[at][2] - rows[at][1] <= training[at].duration_ns <= rows[at + 1][1] - rows[at][0]
    assert median(within) * 0.5 <= median_ns <= median(around) * 2


def test_both_clocks_of_start_steps_and_end_are_in_the_bundle(captured: Run) -> None:
    bundle, _, _ = captured
    held = manifest(bundle)
    (start,), (ending,) = held.starts, held.endings
    rows = steps(bundle)
    clocks = [start.clock_ns, *(step.clock_ns for step in rows), ending.clock_ns]
    known = [clock for clock in clocks if clock is not None]
    assert known == sorted(known)
    assert len(known) == len(clocks)
    assert all(step.checkpoint_ns is not None for step in rows)


def test_the_start_of_a_process_is_before_now_and_not_long_ago() -> None:
    wall_ns, clock_ns = start_of_this_process()
    now_ns = time.perf_counter_ns()
    assert 0 < now_ns - clock_ns < 24 * 3600 * 10**9
    assert abs((time.time_ns() - wall_ns) - (now_ns - clock_ns)) < 10**9
