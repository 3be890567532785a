"""Trains with Ignite's Engine, and evaluates after each epoch."""

from __future__ import annotations

import torch
from ignite.engine import Engine, Events
from own_clock import clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES, EPOCHS = 20, 2


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = TensorDataset(torch.randn(4 * BATCHES, 8))
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clock = clock_of_script()
    losses = []

    def train(_engine: Engine, batch: list[torch.Tensor]) -> None:
        clock.begin()
        clock.pause()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[0]), batch[0])
        loss.backward()
        optimizer.step()
        clock.end()
        losses.append(loss.item())

    def evaluate(_engine: Engine, batch: list[torch.Tensor]) -> None:
        with torch.no_grad():
            losses.append(model(batch[0]).sum().item())

    trainer, evaluator = Engine(train), Engine(evaluate)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(DataLoader(rows, batch_size=16)))
    trainer.run(DataLoader(rows, batch_size=4), max_epochs=EPOCHS)
    say(losses)


if __name__ == "__main__":
    main()
