"""Trains with skorch, which splits off a part for validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from own_clock import clock_of_script, say
from skorch import NeuralNetRegressor
from torch import nn

BATCHES, EPOCHS = 20, 2


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = np.random.default_rng(0).normal(size=(5 * BATCHES, 8)).astype("float32")
    clock = clock_of_script()

    class Net(NeuralNetRegressor):
        def train_step(self, batch: Any, **parameters: Any) -> Any:
            clock.begin()
            clock.pause()
            result = super().train_step(batch, **parameters)
            clock.end()
            return result

    net = Net(nn.Linear(8, 8), max_epochs=EPOCHS, lr=0.01, batch_size=4, verbose=0)
    net.fit(rows, rows)
    say(net.history[:, "train_loss"])


if __name__ == "__main__":
    main()
