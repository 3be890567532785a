"""Two ranks under torchrun, on Gloo."""

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.children import Done, added, run
from tests.recording.running import manifest, settings, steps, traces
from traceadvisor import load
from traceadvisor.bundle.layout import Ending, FileKind

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly("traceadvisor/recording", "traceadvisor/analysis/communication")

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.randn(200, 8), torch.randn(200, 1))
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
for inputs, targets in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    if rank == 1 and "--late" in sys.argv:
        time.sleep(0.02)
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    steps += 1
    if steps == 40 and "--die" in sys.argv:
        if rank == 1:
            os.kill(os.getpid(), 9)
        time.sleep(60)
del model, optimizer  # DDP may hang when it outlives its process group
dist.destroy_process_group()
"""


def torchrun(path: Path, *arguments: str) -> Done:
    (path / "train.py").write_text(SCRIPT)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
    command = (*launcher, sys.executable, "-m", "traceadvisor", "capture", "--", "train.py", *arguments)
    return run(*command, cwd=path, env=added(OMP_NUM_THREADS="1"))


@NIGHTLY
def test_two_ranks_make_one_bundle(tmp_path: Path) -> None:
    done = torchrun(tmp_path)
    assert done.returncode == 0, done.stderr
    (bundle,) = (tmp_path / "runs").iterdir()
    found = manifest(bundle)
    assert found.world_size == 2
    assert [(one.rank, one.ending, one.steps) for one in found.endings] == [
        (0, Ending.COMPLETED, 50),
        (1, Ending.COMPLETED, 50),
    ]
    kinds = [file.kind for file in found.files]
    assert [kinds.count(kind) for kind in (FileKind.TRACE, FileKind.STEPS, FileKind.TELEMETRY)] == [2, 2, 1]
    assert len(traces(bundle)) == 2
    assert len(steps(bundle, 0)) == len(steps(bundle, 1)) == 50
    assert settings(bundle, 1).loader
    assert done.stderr.count("traceadvisor: report ready: ") == 1
    assert done.stderr.count("traceadvisor: ") == 2


@NIGHTLY
def test_a_rank_that_is_killed_leaves_the_part_of_the_other(tmp_path: Path) -> None:
    started = time.monotonic()
    done = torchrun(tmp_path, "--die")
    assert done.returncode == 1
    assert time.monotonic() - started < 60, "SIGTERM is not swallowed"
    assert f"Signal {int(signal.SIGKILL)}" in done.stderr
    (bundle,) = (path for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    found = manifest(bundle)
    assert [(one.rank, one.ending) for one in found.endings] == [(0, Ending.TERMINATED)]
    assert len(traces(bundle)) == 2, "both were saved when the window was over"
    assert len(steps(bundle, 0)) == 40


@NIGHTLY
def test_the_rank_that_is_late_is_named_with_its_cause(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "--late")
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in load(tmp_path / "runs").findings if row.finding.rule.id == "DIST005"]
    evidence = [(one.label, one.value) for one in row.finding.evidence]
    assert ("late rank", 1) in evidence
    assert "extra time on this rank: other CPU work" in dict(evidence)
