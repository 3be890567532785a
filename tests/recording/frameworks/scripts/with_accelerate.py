"""Trains with Accelerate. python with_accelerate.py VARIANT"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from own_clock import clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

VARIANT = sys.argv[1]
BATCHES, EPOCHS = 17, 6 if VARIANT == "accumulating" else 3


class Stream(IterableDataset[list[torch.Tensor]]):
    def __init__(self, batches: int) -> None:
        self.rows = torch.randn(batches * 4, 8)

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        for row in self.rows:
            yield [row]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accumulated = 3 if VARIANT == "accumulating" else 1
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=accumulated,
        dataloader_config=DataLoaderConfiguration(dispatch_batches=VARIANT == "dispatching"),
    )
    batches = BATCHES * accelerator.num_processes
    data = Stream(batches) if VARIANT == "dispatching" else TensorDataset(torch.randn(batches * 4, 8))
    loader: DataLoader[Any] = DataLoader(data, batch_size=4, num_workers=2 if VARIANT == "plain" else 0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    validation = DataLoader(TensorDataset(torch.randn(20, 8)), batch_size=4)
    model, optimizer, loader, validation = accelerator.prepare(model, optimizer, loader, validation)
    clock = clock_of_script()
    step_begins = True
    for epoch in range(EPOCHS):
        left = skip_first_batches(loader, 4) if VARIANT == "skipping" and epoch == 0 else loader
        for (inputs,) in left:
            if step_begins:
                clock.begin()
                clock.pause()
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), inputs)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            say(epoch, loss.item())
            clock.end()
            step_begins = accelerator.sync_gradients
        model.eval()
        with torch.no_grad():
            say("validation", sum(model(inputs).sum().item() for (inputs,) in validation))
        model.train()
        accelerator.save_state(f"checkpoints/{epoch}")
    say(sum(parameter.sum().item() for parameter in model.parameters()))
    accelerator.end_training()


if __name__ == "__main__":
    main()
