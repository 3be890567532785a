"""Trains with Lightning; a callback writes the weights after every batch.

python with_lightning.py --callback
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 256))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:  # noqa: ARG002
        (inputs,) = batch
        loss = nn.functional.mse_loss(self.network(inputs), inputs)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class WriteWeights(lightning.Callback):  # type: ignore[misc]
    """Writes all weights as text, to look at them later."""

    def on_train_batch_end(self, _: lightning.Trainer, pl_module: lightning.LightningModule, *__: Any) -> None:
        with Path("weights.txt").open("w", encoding="ascii") as file:
            for parameter in pl_module.parameters():
                file.write("\n".join([f"{value:.6f}" for value in parameter.detach().flatten()[:8000].tolist()]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--callback", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(options.steps * 64, 256)), batch_size=64)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[WriteWeights()] if options.callback else [],
    )
    trainer.fit(Autoencoder(), loader)


if __name__ == "__main__":
    main()
