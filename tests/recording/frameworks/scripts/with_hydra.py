"""Trains in the function that Hydra calls, with Hydra's configuration and working directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import hydra
import torch
from hydra.core.config_store import ConfigStore
from own_clock import clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Numbers:
    batches: int = 40
    epochs: int = 2


@dataclass
class Config:
    training: Numbers = field(default_factory=Numbers)


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def main(config: Config) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(4 * config.training.batches, 8)), batch_size=4)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(config.training.epochs):
        for (inputs,) in loader:
            CLOCK.begin()
            CLOCK.pause()
            loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            CLOCK.end()
            losses.append(loss.item())
    say(Path.cwd().name, losses)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    CLOCK = clock_of_script()
    main()
