from pathlib import Path

import pytest

from tests.experiments.building import plan_in
from traceadvisor.experiments.journal import Begin
from traceadvisor.experiments.plan import Axis
from traceadvisor.experiments.run import measure

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments")

JOINS = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://{folder}/store", world_size={size}, rank=0)
print("joined")
"""

LIGHTNING = """
import torch
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = pl.Trainer(
    accelerator="cpu", devices=2, max_steps=50, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4))
"""


def _problem(folder: Path, source: str) -> str:
    out = folder / "out"
    out.mkdir()
    script = folder / "train.py"
    script.write_text(source)
    plan = plan_in(out, script=(str(script),), switches=(Axis("fused", (True,)),))
    outcome = measure(plan, lambda rows: None)
    assert not [row for row in outcome.rows if isinstance(row, Begin)]
    return f"{outcome.problem} {(out / 'output.log').read_text()}"


@NIGHTLY
def test_a_script_that_joins_other_processes_is_refused_before_it_waits_for_them(tmp_path: Path) -> None:
    problem = _problem(tmp_path, JOINS.format(folder=tmp_path, size=2))
    assert "it trains in 2 processes, and only one process can be measured" in problem
    assert "CUDA_VISIBLE_DEVICES=0" in problem


@NIGHTLY
def test_a_group_of_one_process_is_none(tmp_path: Path) -> None:
    problem = _problem(tmp_path, JOINS.format(folder=tmp_path, size=1))
    assert "joined" in problem
    assert "cannot be measured:" not in problem


@NIGHTLY
def test_lightning_with_several_devices_is_refused_before_it_launches_processes(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    problem = _problem(tmp_path, LIGHTNING)
    assert "it trains in 2 processes" in problem
    assert "CUDA_VISIBLE_DEVICES=0" in problem
