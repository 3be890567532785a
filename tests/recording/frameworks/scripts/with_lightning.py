"""Trains with Lightning. python with_lightning.py VARIANT"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from own_clock import OwnClock, clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

VARIANT = sys.argv[1]
BATCHES, EPOCHS = 16, 6 if VARIANT == "accumulating" else 3


class Stream(IterableDataset[torch.Tensor]):
    """Has no length, so Lightning fetches one batch ahead."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.ones(BATCHES * 4, 8)


class Automatic(lightning.LightningModule):
    """Lightning steps the optimizer with a closure that computes the gradients."""

    def __init__(self, clock: OwnClock) -> None:
        super().__init__()
        self.model, self.clock = nn.Linear(8, 8), clock

    def loss(self, batch: Any) -> torch.Tensor:
        (inputs,) = batch if isinstance(batch, list) else (batch,)
        return nn.functional.mse_loss(self.model(inputs), inputs)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Manual(lightning.LightningModule):
    """Steps two optimizers itself, the second in every third batch."""

    def __init__(self, clock: OwnClock) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic, self.clock = nn.Linear(8, 8), nn.Linear(8, 1), clock

    def training_step(self, batch: Any, number: int) -> None:
        (inputs,) = batch
        generators, critics = self.optimizers()
        critics.zero_grad()
        self.manual_backward(self.critic(self.generator(inputs).detach()).square().mean())
        critics.step()
        if number % 3 == 2:
            generators.zero_grad()
            self.manual_backward(self.critic(self.generator(inputs)).square().mean())
            generators.step()

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validation", self.critic(batch[0]).mean())

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(self.generator.parameters()), torch.optim.Adam(self.critic.parameters())]


class Marks(lightning.Callback):
    """Marks the steps, and prints each loss."""

    def __init__(self, clock: OwnClock, accumulated: int) -> None:
        self.clock, self.accumulated = clock, accumulated

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, number: int) -> None:
        if number % self.accumulated == 0:
            self.clock.begin()
            self.clock.pause()

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.clock.end()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
        say(number, outputs)

    def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
        say("validation", trainer.callback_metrics.get("validation"))


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clock = clock_of_script()
    workers = 2 if VARIANT == "automatic" else 0
    data: Dataset[Any] = Stream() if VARIANT == "stream" else TensorDataset(torch.randn(BATCHES * 4, 8))
    train = DataLoader(data, batch_size=4, num_workers=workers)
    validation = DataLoader(TensorDataset(torch.randn(20, 8)), batch_size=4)
    module = Manual(clock) if VARIANT == "manual" else Automatic(clock)
    accumulated = 3 if VARIANT == "accumulating" else 1
    ranks = {"strategy": "ddp", "devices": 2} if VARIANT == "ddp" else {"devices": 1}
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulated,
        callbacks=[Marks(clock, accumulated), ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=5)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        profiler="advanced" if VARIANT == "profiled" else None,
        **ranks,
    )
    trainer.fit(module, train, validation)
    say(trainer.global_step, sum(parameter.sum().item() for parameter in module.parameters()))


if __name__ == "__main__":
    main()
