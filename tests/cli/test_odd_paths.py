"""Paths that are no UTF-8, in each position of each command."""

import sys
from pathlib import Path

import pytest

from tests.children import run
from tests.warm import warm
from traceadvisor.system.processes import understood, written

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

ODD = b"odd\xff".decode(errors="surrogateescape")
TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(320, 4), torch.randn(320, 1))
for epoch in range(EPOCHS):
    for inputs, targets in DataLoader(data, batch_size=8):
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "odd.pt")
print("the end")
"""
TOOL = ("-m", "traceadvisor")


def _script(path: Path, epochs: int = 1) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(TRAIN.replace("EPOCHS", str(epochs)))


def test_messages_keep_paths_that_are_no_utf_8() -> None:
    assert understood(written((ODD, 1)), tuple[str, int]) == (ODD, 1)


@NIGHTLY
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (ODD, ("-o", "out", "--", "train.py")),
        pytest.param(ODD, ("-o", "out", "--", sys.executable, "train.py"), marks=NIGHTLY),
        pytest.param("even", ("-o", "out", "--", f"{ODD}.py"), marks=NIGHTLY),
        ("even", ("-o", ODD, "--keep-arguments", "--", "train.py", ODD)),
    ],
)
def test_a_capture_runs_the_script_and_its_recording_is_reported(
    tmp_path: Path, folder: str, words: tuple[str, ...]
) -> None:
    cwd = tmp_path / folder
    for name in ("train.py", f"{ODD}.py"):
        _script(cwd / name)
    done = warm(*TOOL, "capture", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the end\n"
    assert "recorded 8 of 40 steps" in done.stderr
    reported = warm(*TOOL, "report", words[1], "-o", f"{ODD} report", "--format", "html,md,json", cwd=cwd)
    assert reported.returncode == 0, reported.stderr
    assert (cwd / f"{ODD} report" / "report.json").exists()
    assert warm(*TOOL, "scrub", words[1], "-o", f"{ODD} copy", cwd=cwd).returncode == 0


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize(
    "words",
    [
        ("report", ODD),
        ("report", ODD, "--base", ODD),
        ("compare", ODD, ODD),
        ("scrub", ODD, "-o", f"{ODD} copy"),
        ("rules", "explain", ODD),
        ("capture", ODD),
        ("capture", f"{ODD}.py"),
        ("capture", "-m", ODD),
        ("sweep", ODD),
        ("sweep", "--set", f"{ODD}=1", "--", "train.py"),
        ("try", ODD, "--", "train.py"),
        ("report", "--format", ODD),
        ("report", "--fail-on", ODD),
        (ODD,),
    ],
)
def test_what_is_missing_is_a_clear_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "train.py").touch()
    done = run(sys.executable, *TOOL, *words, cwd=tmp_path)
    assert done.returncode in {2, 3}, done.stderr
    assert "Traceback" not in done.stderr


@NIGHTLY
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (ODD, ("-o", "out", "--", "train.py")),
        ("even", ("-o", ODD, "--", f"{ODD}.py", ODD)),
    ],
)
def test_a_sweep_measures(tmp_path: Path, folder: str, words: tuple[str, ...]) -> None:
    cwd = tmp_path / folder
    for name in ("train.py", f"{ODD}.py"):
        _script(cwd / name, 1000)
    done = run(sys.executable, *TOOL, "sweep", "--set", "foreach=true", "--minutes", "1", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert (cwd / words[1] / "experiment.html").exists()
    assert not (cwd / "odd.pt").exists()
