"""The Python stack of a captured run, from the script to the report."""

from pathlib import Path

import pytest

from tests.once import Once
from tests.recording.running import capture, manifest
from tests.rendering.formatted import summary
from tests.warm import warm
from traceadvisor.api import load
from traceadvisor.bundle.layout import FileKind
from traceadvisor.bundle.stacks import read_stacks
from traceadvisor.model.samples import StackSamples
from traceadvisor.rendering.formats import FORMATS

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

SCRIPT = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        time.sleep(0.01)  # line 11
        return torch.ones(4), torch.ones(1)

def pause(number):
    if number % 10 == 9:
        time.sleep(0.5)  # line 16

def train():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number, (inputs, targets) in enumerate(DataLoader(Data(), batch_size=4)):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pause(number)  # line 26

time.sleep(0.5)
train()
"""


def samples(bundle: Path) -> StackSamples:
    found, notes = read_stacks(bundle / "stacks.0.jsonl")
    assert notes == ()
    assert found
    return found


@pytest.fixture(scope="module")
def bundle(once: Once) -> Path:
    def make(folder: Path) -> None:
        (folder / "train.py").write_text(SCRIPT)
        done = capture("-o", "bundle", "--", "train.py", cwd=folder)
        assert done.returncode == 0, done.stderr

    return once("sampled", make) / "bundle"


@pytest.mark.slow
def test_the_file_is_part_of_the_capture(bundle: Path) -> None:
    (file,) = (file for file in manifest(bundle).files if file.kind is FileKind.STACKS)
    assert (file.path, file.rank) == ("stacks.0.jsonl", 0)


@pytest.mark.slow
def test_a_rare_call_in_a_helper_is_named_with_the_line_of_the_loop(bundle: Path) -> None:
    (recording,) = load(bundle).recordings
    assert recording.run_lines
    rows = recording.run_lines.rows
    row = next(row for row in rows if row.inner and row.inner.line == 16 and row.owner)
    assert row.line
    assert (row.line.file, row.line.line, row.inner and row.inner.function) == ("train.py", 26, "pause")
    assert row.owner
    assert row.owner.function == "sleep"
    assert row.time.step_ns > 0


@pytest.mark.slow
def test_loading_in_the_training_process_is_time_of_the_fetch(bundle: Path) -> None:
    (recording,) = load(bundle).recordings
    assert recording.run_lines
    fetched_ns = [row.time.fetch_ns for row in recording.run_lines.rows if row.inner and row.inner.line == 11]
    assert sum(fetched_ns) > 0


@pytest.mark.slow
def test_the_script_begins_the_stack_and_this_package_has_no_lines(bundle: Path) -> None:
    found = samples(bundle)
    outermost = {found.frames[stack.frames[0]].file for stack in found.stacks if stack.frames}
    assert "train.py" in outermost
    assert not [frame for frame in found.frames if "traceadvisor" in (frame.file or "")]


@pytest.mark.slow
def test_the_samples_cover_the_run(bundle: Path) -> None:
    assert samples(bundle).time_ns > 6e9  # 240 waits of 10 ms, six of 0.5 s and one before, and what torch takes
    assert samples(bundle).cpu_ns < 0.05 * samples(bundle).time_ns


@NIGHTLY
def test_every_format_shows_the_lines(bundle: Path) -> None:
    report = load(bundle)
    for name in ("html", "md", "json"):
        assert b"train.py" in FORMATS[name].render(report)
    assert b"Time of the training thread by line" in FORMATS["html"].render(report)
    assert b"Line with the most time" in FORMATS["md"].render(report)
    assert any(line.text.startswith("Line with the most time") for line in summary(report))


BLOCK = """
import sys, threading, time
import torch
import traceadvisor

def train():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with traceadvisor.capture(sys.argv[1], skip_first=0, wait=0):
        for _ in range(40):
            parameter.sum().backward()
            optimizer.step()
            time.sleep(0.05)

thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


@NIGHTLY
def test_a_block_in_another_thread_is_sampled(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BLOCK)
    done = warm("train.py", "bundle", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = samples(tmp_path / "bundle")
    assert {"train", "sleep"} <= {frame.function for frame in found.frames}


TYPED = """
import sys
import traceadvisor

source = '''
import time
import torch
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], 0.1)
for _ in range(40):
    parameter.sum().backward()
    optimizer.step()
    time.sleep(0.05)
'''
with traceadvisor.capture("bundle", skip_first=0, wait=0):
    exec(compile(source, sys.argv[1], "exec"), {})
"""


@NIGHTLY
@pytest.mark.parametrize("file", ["<ipython-input-3-0a1b>", "<stdin>"])
def test_code_that_was_typed_in_has_lines(file: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TYPED)
    done = warm("train.py", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {(frame.file, frame.line) for frame in samples(tmp_path / "bundle").frames if frame.is_user}
    assert (file, 9) in lines
