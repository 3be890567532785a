"""Other programs on the machine do not change which fix comes first."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.children import started
from tests.recording.running import capture
from traceadvisor.api import load

SLOW_LINE = """
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 60 * 16

    def __getitem__(self, index):
        numbers = [(index * one) % 997 for one in range(8_000)]
        numbers.sort()
        return torch.tensor(numbers[:64], dtype=torch.float32), index % 10


def main():
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for rows, classes in DataLoader(Rows(), batch_size=16):
        loss = torch.nn.functional.cross_entropy(model(rows), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def _busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy."""
    with ExitStack() as kept:
        for core in sorted(os.sched_getaffinity(0))[:cores]:
            kept.enter_context(started(sys.executable, "-c", BUSY, str(core)))
        yield


@pytest.mark.nightly(
    "traceadvisor/recording", "traceadvisor/rules/data", "traceadvisor/savings", "traceadvisor/analysis/data"
)
def test_the_first_finding_is_the_same_beside_busy_cores(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW_LINE)
    first: dict[int, str] = {}
    for cores in range(3):
        with _busy(cores):
            done = capture("--stop-after-window", "-o", f"beside-{cores}", "train.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        first[cores] = load(tmp_path / f"beside-{cores}").findings[0].finding.rule.id
    assert len(set(first.values())) == 1, first
