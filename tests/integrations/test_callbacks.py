"""The callbacks in trainings with the real libraries, each in a process of its own."""

import sys
from pathlib import Path

import pytest

from tests.children import run
from tests.recording.running import manifest, steps
from traceadvisor.bundle.layout import Ending
from traceadvisor.model.run import StepState

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly("traceadvisor/integrations", "traceadvisor/recording")

LIGHTNING = """
import sys
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from traceadvisor.integrations.lightning import TraceAdvisorCallback

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, number):
        if sys.argv[1] == "fails" and number == 30:
            raise ValueError("on purpose")
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

callback = TraceAdvisorCallback("capture")
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[callback],
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(240, 8)), batch_size=4))
print(callback.block.captured.recorded_steps)
"""

TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from traceadvisor.integrations.transformers import TraceAdvisorCallback

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, number):
        return {"inputs": torch.randn(8)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        if sys.argv[1] == "fails" and self.calls == 30:
            raise ValueError("on purpose")
        return {"loss": self.layer(inputs).square().mean()}

callback = TraceAdvisorCallback("capture")
arguments = TrainingArguments(
    "out",
    use_cpu=True,
    per_device_train_batch_size=4,
    num_train_epochs=1,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
Trainer(Model(), arguments, train_dataset=Rows(), callbacks=[callback]).train()
print(callback.block.captured.recorded_steps)
"""


@NIGHTLY
@pytest.mark.parametrize("script", ["lightning", "transformers"])
def test_a_training_with_the_callback_is_captured(script: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(script)
    content = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}[script]

    done = run(sys.executable, "-c", content, "ends", cwd=tmp_path, check=True, limit_s=600)

    trained = [row for row in steps(tmp_path / "capture") if row.state is not StepState.OTHER]
    assert 59 <= len(trained) <= 61
    assert int(done.stdout.split()[-1]) >= 8
    assert manifest(tmp_path / "capture").endings[0].ending is Ending.COMPLETED


@NIGHTLY
@pytest.mark.parametrize("script", ["lightning", "transformers"])
def test_a_training_that_fails_leaves_what_was_captured(
    script: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(script)
    content = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}[script]

    done = run(sys.executable, "-c", content, "fails", cwd=tmp_path, limit_s=600)

    assert "ValueError: on purpose" in done.stderr
    assert done.returncode == 1
    assert manifest(tmp_path / "capture").endings[0].ending is Ending.EXCEPTION
    assert len(steps(tmp_path / "capture")) >= 25
