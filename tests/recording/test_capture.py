"""Complete captures of training scripts in other processes."""

import gzip
import json
import re
import signal
from pathlib import Path

import pytest

from tests.children import PIPE, run
from tests.few import few
from tests.recording.running import CAPTURE, PYTHON, WORDS, capture, manifest, noticed, settings, steps, traces
from tests.warm import warm_started
from traceadvisor.api import load
from traceadvisor.bundle.layout import Ending
from traceadvisor.model.breakdown import Category
from traceadvisor.model.run import StepState

RANDOM = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
import hashlib, random, sys
import numpy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    random.seed(1); numpy.random.seed(2); torch.manual_seed(3)
    data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for inputs, targets in DataLoader(data, batch_size=4, shuffle=True, num_workers=2):
        loss = nn.functional.mse_loss(model(inputs + random.random() + numpy.random.rand()), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    state = repr((random.getstate(), numpy.random.get_state(), torch.get_rng_state().tolist()))
    print(hashlib.sha256(state.encode()).hexdigest(), torch.get_num_threads(), sorted(os.environ))
    if len(sys.argv) > 1:
        raise RuntimeError(sys.argv[1])

main()
"""


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.slow
def test_a_capture_changes_neither_output_nor_random_numbers_nor_traceback(tmp_path: Path) -> None:
    """The quote in the script's name breaks the JSON of torch's own export."""
    script = tmp_path / 'a "quoted" name.py'
    script.write_text(RANDOM)
    plain = run(*PYTHON, script.name, "as it was", cwd=tmp_path)
    captured = run(*CAPTURE, "-o", "bundle", "--", script.name, "as it was", cwd=tmp_path)
    assert (captured.stdout, captured.returncode) == (plain.stdout, 1)
    assert noticed(captured.stderr) == plain.stderr
    assert "traceadvisor: recorded 8 of 40 steps in bundle." in captured.stderr
    (trace,) = traces(tmp_path / "bundle")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {"cpu_op", "user_annotation", "python_function", "cpu_instant_event"} <= {e.get("cat") for e in events}
    assert any('"quoted"' in event["name"] for event in events)
    assert manifest(tmp_path / "bundle").notes == ()
    assert manifest(tmp_path / "bundle").endings[0].message == "RuntimeError: as it was"


WAITING = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.072)
        return torch.ones(4)

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Slow(), batch_size=1, num_workers=4):
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.003)
"""


@pytest.mark.nightly("traceadvisor/recording")
def test_a_wait_of_15_in_18_ms_on_four_workers_is_found(tmp_path: Path) -> None:
    """Each worker takes 72 ms for a batch, so a batch comes every 18 ms; the rest of a step takes 3."""
    (tmp_path / "waiting.py").write_text(WAITING)
    assert capture("-o", "bundle", "waiting.py", cwd=tmp_path).returncode == 0
    bundle = tmp_path / "bundle"
    recorded = [row for row in steps(bundle) if row.state is StepState.RECORDED]
    assert len(recorded) == 8
    waited_ms = sum(row.loader_ns for row in recorded) / len(recorded) / 1e6
    assert 5 < waited_ms < 40, "as the steps' own clock has it; on a quiet machine 14"

    (recording,) = load(*traces(bundle)).recordings
    shown = [row for row in recording.steps if row.step.index in {timed.index for timed in recorded}]
    assert len(shown) == 8
    per_step_ms = sum(row.breakdown.parts_ns[Category.DATA_WAIT] or 0 for row in shown) / len(shown) / 1e6
    assert per_step_ms == pytest.approx(waited_ms, abs=1), "as the recording has it"


EARLY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.ones(9, 4))):
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_that_ends_early_still_yields_times_and_settings(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    captured = capture("early.py", cwd=tmp_path)
    (bundle,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r".*-early-\d+", bundle.name)
    assert len(steps(bundle)) == 9
    assert settings(bundle).optimizer
    (note,) = manifest(bundle).notes
    assert "--skip-first 0 --wait 0" in note.message
    assert note.message in captured.stderr


@pytest.mark.nightly("traceadvisor/recording")
def test_the_scripts_own_modules_are_separated_from_installed_ones(tmp_path: Path) -> None:
    """Their names are those of torch's stacks: without the script's folder."""
    for file in ("src/datasets/coco.py", "src/unused.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    training = EARLY.replace("ones(9, 4)", "ones(40, 4)")
    (tmp_path / "src" / "loop.py").write_text(f"import collections, psutil, numpy, datasets.coco\n{training}")
    capture("-o", "bundle", "src/loop.py", cwd=tmp_path)
    bundle = tmp_path / "bundle"
    assert settings(bundle).own_code == frozenset({"datasets", "loop.py"})
    with gzip.open(traces(bundle)[0], "rt") as recording:
        assert '"loop.py(' in recording.read()


ENDLESS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
while True:
    for (batch,) in DataLoader(TensorDataset(torch.ones(9, 4))):
        model(batch).sum().backward()
        optimizer.step()
        steps += 1
        if steps == int(sys.argv[1]):
            print("ready", flush=True)
            time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "steps_before", "ending", "recordings"),
    few([(signal.SIGINT, 18, Ending.INTERRUPTED, 1), (signal.SIGKILL, 40, None, 1)], "traceadvisor/recording"),
)
def test_what_was_recorded_before_a_signal_is_saved(
    tmp_path: Path, number: signal.Signals, steps_before: int, ending: Ending | None, recordings: int
) -> None:
    """Ctrl-C within the window, and a kill after it."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = (*WORDS, "-o", "bundle", "endless.py", str(steps_before))
    with warm_started(*command, cwd=tmp_path, stdout=PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(timeout=20) in ((1, -number) if number == signal.SIGINT else (-number,)), "Python decides"
    bundle = tmp_path / "bundle"
    assert [entry.ending for entry in manifest(bundle).endings] == ([ending] if ending else [])
    assert len(traces(bundle)) == recordings
    assert load(*traces(bundle)).recordings
    assert all((bundle / file.path).is_file() for file in manifest(bundle).files)
