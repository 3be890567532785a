"""Small trainings of the kinds that make runs slow, captured for real: the cause, its line, and steady ones as traps.

Written from a list of kinds, before the thresholds were looked at. Each line that is to be named ends with ``# HERE``.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recording.running import capture
from traceadvisor.api import load
from traceadvisor.frozen import frozen
from traceadvisor.model.location import Location
from traceadvisor.model.report import Recording
from traceadvisor.model.run_time import CauseTime, RunCause, RunPart

pytestmark = pytest.mark.nightly("traceadvisor/analysis/whole_run", "traceadvisor/analysis/steps")

HEAD = """
import gc, logging, random, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

class Rows(Dataset):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, index): return torch.ones(64)

def learn(batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""

LOOP = """
def main():
    for number, batch in enumerate(DataLoader(Rows({rows}), batch_size=64)):
        loss = learn(batch)
{inside}

main()
"""


def loop(inside: str, before: str = "", rows: int = 25_600) -> str:
    """A script with one loop of 400 steps; ``inside``: what it does after each."""
    indented = "\n".join(f"        {line}" for line in inside.splitlines())
    return HEAD + before + LOOP.format(rows=rows, inside=indented)


@frozen
class Kind:
    """A kind of run, and whether a report is right about it."""

    script: str
    is_right: Callable[[Recording, int], bool]
    """Gets the number of the line to be named, 0 without one."""


def cause_of(found: Recording, part: RunPart, cause: RunCause) -> CauseTime | None:
    """The time of a cause, if it takes at least 5% of the training loop."""
    whole = found.run_time
    rows = whole.causes if whole else ()
    own = next((one for one in rows if one.part is part and one.cause is cause), None)
    return own if whole and own and own.total_ns >= 0.05 * whole.loop_ns else None


def is_at(place: Location | None, line: int) -> bool:
    """Whether a place is that line of the script."""
    return place is not None and place.file.endswith("train.py") and place.line == line


def slow_by(cause: RunCause, *, has_line: bool = True) -> Callable[[Recording, int], bool]:
    """Whether slow steps have this cause, and its line."""

    def is_right(found: Recording, line: int) -> bool:
        own = cause_of(found, RunPart.SLOW, cause)
        return own is not None and (not has_line or is_at(own.line, line))

    return is_right


def takes(part: RunPart) -> Callable[[Recording, int], bool]:
    """Whether a part takes at least a tenth of the loop."""
    return lambda found, _: bool(
        found.run_time and found.run_time.parts_ns.get(part, 0) >= 0.1 * found.run_time.loop_ns
    )


def saves(found: Recording, line: int) -> bool:
    """Whether checkpoints take time, at this line."""
    own = cause_of(found, RunPart.CHECKPOINTS, RunCause.SAVING)
    return own is not None and is_at(own.line, line)


def grows(found: Recording, line: int) -> bool:
    """Whether its steps grow at this line."""
    return found.run_growth is not None and is_at(found.run_growth.line, line)


def is_subnormal(found: Recording, line: int) -> bool:
    """Whether its steps grow with subnormal numbers."""
    del line
    return found.run_growth is not None and found.run_growth.subnormal_share is not None


def is_steady(found: Recording, line: int) -> bool:
    """Whether nothing grows."""
    del line
    return found.run_growth is None


def creeps(found: Recording, line: int) -> bool:
    """Whether its memory rises, and not its steps."""
    known = [one.memory_bytes for one in found.run_time.stretches if one.memory_bytes] if found.run_time else []
    return is_steady(found, line) and len(known) > 3 and known[-1] - known[0] > 100e6


KINDS = {
    "recompiling": Kind(
        loop(
            "fused(torch.ones(number // 40 + 2, 64))  # HERE",
            "inner = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)])\n"
            "torch._dynamo.config.recompile_limit = 100\n"
            'fused = torch.compile(inner, backend="eager", dynamic=False)\n',
        ),
        slow_by(RunCause.COMPILATION),
    ),
    "growing list": Kind(
        loop("losses.extend([loss] * 24)\nmean = sum(float(one) for one in losses)  # HERE", "losses = []\n"),
        grows,
    ),
    "growing metric": Kind(
        loop(
            "seen.append(torch.rand(64, 8))\ntorch.cat(seen).sort(dim=0)  # HERE",
            "seen = []\n",
        ),
        grows,
    ),
    "subnormal numbers": Kind(
        HEAD
        + "weights = nn.Parameter(torch.full((512, 512), 1e-35))\n"
        + "optimizer = torch.optim.SGD([weights], lr=0.05, weight_decay=1.0)\n"
        + "inputs = torch.ones(64, 512)\n"
        + "def main():\n    for batch in DataLoader(Rows(25_600), batch_size=64):\n"
        + "        (inputs @ weights).sum().mul(0).backward()\n        optimizer.step()\n"
        + "        optimizer.zero_grad()\n"
        + "main()\n",
        is_subnormal,
    ),
    "periodic evaluation": Kind(
        loop(
            "if number % 25 == 24:\n    evaluate()",
            "@torch.no_grad()\ndef evaluate():\n    for _ in range(60):\n        model(torch.ones(64, 64))  # HERE\n",
        ),
        slow_by(RunCause.EVALUATION, has_line=False),
    ),
    "frequent checkpoints": Kind(
        loop(
            'if number % 4 == 3:\n    torch.save([torch.ones(1_000_000), model.state_dict()], "last.pt")  # HERE',
        ),
        saves,
    ),
    "slow start of epochs": Kind(
        HEAD
        + "class Slow(RandomSampler):\n    def __iter__(self):\n        time.sleep(0.15)\n"
        + "        return super().__iter__()\n"
        + "def main():\n    data = Rows(1_920)\n    loader = DataLoader(data, batch_size=64, sampler=Slow(data))\n"
        + "    for _ in range(12):\n        for batch in loader:\n            learn(batch)\nmain()\n",
        takes(RunPart.EPOCH_STARTS),
    ),
    "clock that warms up": Kind(
        loop("for _ in range(max(0, 12 - number // 8)):\n    model(batch)"),
        is_steady,
    ),
    "memory creep": Kind(
        loop("kept.append(torch.ones(200_000))", "kept = []\n"),
        creeps,
    ),
    "steady": Kind(loop("pass"), is_steady),
    "steady with uneven batches": Kind(
        loop("for _ in range(random.randrange(4)):\n    model(batch)", "random.seed(1)\n"), is_steady
    ),
    "logging": Kind(
        loop(
            'if number % 20 == 19:\n    log.warning("loss %s", loss)  # HERE',
            "class Slow(logging.Handler):\n    def emit(self, record):\n        time.sleep(0.1)\n"
            "log = logging.getLogger('own')\nlog.propagate = False\nlog.addHandler(Slow())\n",
        ),
        slow_by(RunCause.LOGGING),
    ),
    "collections": Kind(
        loop(
            "if number % 20 == 19:\n    gc.collect()",
            "held = [[index] for index in range(500_000)]\n",
        ),
        slow_by(RunCause.COLLECTION, has_line=False),
    ),
    "pauses of the loader": Kind(
        loop(
            "pass",
            "class Rows(Dataset):\n    def __init__(self, count): self.count = count\n"
            "    def __len__(self): return self.count\n"
            "    def __getitem__(self, index):\n        time.sleep(0.1 if index % 1280 == 0 else 0)\n"
            "        return torch.ones(64)\n",
        ),
        slow_by(RunCause.LOADER, has_line=False),
    ),
    "a slow line now and then": Kind(
        loop("if number % 20 == 19:\n    time.sleep(0.1)  # HERE"),
        slow_by(RunCause.OTHER),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_cause_and_the_line_of_each_kind_of_run_are_right(kind: str, tmp_path: Path) -> None:
    chosen = KINDS[kind]
    (tmp_path / "train.py").write_text(chosen.script)
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = load(tmp_path / "bundle").recordings
    lines = [at for at, line in enumerate(chosen.script.splitlines(), start=1) if line.endswith("# HERE")]
    causes = found.run_time.causes if found.run_time else ()
    assert chosen.is_right(found, lines[0] if lines else 0), (causes, found.run_growth)
