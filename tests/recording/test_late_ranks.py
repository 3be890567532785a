"""One rank is late: which one, with what, and in which line. Real ranks under torchrun, on Gloo."""

import sys
from pathlib import Path

import pytest

from tests.children import added, run
from traceadvisor import load
from traceadvisor.model.job import LateCause
from traceadvisor.rendering.formats import FORMATS

pytestmark = pytest.mark.nightly(
    "traceadvisor/recording", "traceadvisor/analysis/communication", "tests/recording/test_late_ranks.py"
)

SCRIPT = """
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS, BATCH, DELAY_S = 150, 4, 0.04

dist.init_process_group("gloo")
delayed = sys.argv[1] if dist.get_rank() == dist.get_world_size() - 1 else ""


class Numbers(Dataset):
    def __len__(self):
        return STEPS * BATCH * dist.get_world_size()

    def __getitem__(self, index):
        if delayed == "loader":
            time.sleep(DELAY_S / BATCH)  # loader
        return torch.randn(64), torch.randn(1)


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(context, values):
        return values.view_as(values)

    @staticmethod
    def backward(context, gradients):
        if delayed == "backward":
            time.sleep(DELAY_S)  # backward
        return gradients


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, values):
        hidden = torch.relu(self.first(values))
        if delayed == "forward":
            time.sleep(DELAY_S)  # forward
        return self.last(Passed.apply(hidden))


def before_step(optimizer, arguments, named):
    if delayed == "optimizer":
        time.sleep(DELAY_S)  # optimizer


def log(loss):
    if delayed == "log":
        time.sleep(DELAY_S)  # log


model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.register_step_pre_hook(before_step)
data = Numbers()
for inputs, targets in DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data)):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    log(loss)
del model, optimizer  # DDP may hang when it outlives its process group
dist.destroy_process_group()
"""
"""A delay in one part of the last rank's step. Timers see no difference: all ranks wait inside ``backward()``."""

CAUSES = {
    "loader": ("data wait", LateCause.DATA),
    "forward": ("other CPU work", LateCause.HOST),
    "backward": ("backward pass", LateCause.COMPUTE),
    "optimizer": ("optimizer", LateCause.COMPUTE),
    "log": ("other CPU work", LateCause.HOST),
}
"""The category that each delay adds to, and the cause on the page. A sleep in the forward pass runs no operator."""


@pytest.mark.parametrize(
    ("part", "ranks"), [("loader", 2), ("forward", 3), ("backward", 4), ("optimizer", 2), ("log", 3)]
)
def test_the_late_rank_is_named_with_its_cause_and_line(part: str, ranks: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    command = (*launcher, "--no-python", sys.executable, "-m", "traceadvisor", "capture", "--", "train.py", part)
    done = run(*command, cwd=tmp_path, env=added(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "runs")
    (found,) = [row.finding for row in report.findings if row.finding.rule.id == "DIST005"]
    assert {one.label: one.value for one in found.evidence}["late rank"] == ranks - 1
    category, cause = CAUSES[part]
    assert found.fix.summary == f"Shorten what delays rank {ranks - 1}: {category}"
    lines = SCRIPT.splitlines()
    (place,) = found.locations
    assert (place.file, place.is_line, lines[place.line - 1].strip().split("  # ")[-1]) == ("train.py", True, part)
    (job,) = report.jobs
    late = job.stragglers[0]
    assert (late.rank, next(iter(late.causes)), late.location) == (ranks - 1, cause, place)
    assert late.is_persistent is not False
    page = FORMATS["html"].render(report).decode()
    assert f"Rank {ranks - 1} is late" in page
    assert f"The line with the most extra time is train.py:{place.line}" in page


@pytest.mark.parametrize("option", [(), ("--no-stacks",)])
def test_a_captured_launcher_names_the_line_also_from_samples(option: tuple[str, ...], tmp_path: Path) -> None:
    """``capture torchrun``: the ranks are child processes. Without recorded stacks, samples show the line."""
    (tmp_path / "train.py").write_text(SCRIPT)
    launcher = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
        "log",
    )
    command = (sys.executable, "-m", "traceadvisor", "capture", *option, *launcher)
    done = run(*command, cwd=tmp_path, env=added(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    (late, *_) = load(tmp_path / "runs").jobs[0].stragglers
    assert late.location is not None
    assert SCRIPT.splitlines()[late.location.line - 1].strip() == "time.sleep(DELAY_S)  # log"
