"""Trains with fastai's Learner, its data loaders and its own Adam. python with_fastai.py VARIANT"""

from __future__ import annotations

import sys

import torch
from fastai.basics import Adam, Callback, DataLoader, DataLoaders, Learner, MSELossFlat
from fastai.callback.training import GradientAccumulation
from own_clock import clock_of_script, say
from torch import nn

BATCHES = 20
VARIANT = sys.argv[1]
EPOCHS = 2 if VARIANT == "plain" else 3


class Clock(Callback):
    """Reads the clock of a step, of which ``accumulated`` batches are one."""

    order = -100

    def __init__(self, accumulated: int) -> None:
        super().__init__()
        self.accumulated, self.batches = accumulated, 0

    def before_fit(self) -> None:
        self.clock = clock_of_script()

    def before_batch(self) -> None:
        if not self.training:
            return
        if self.batches % self.accumulated == 0:
            self.clock.begin()
            self.clock.pause()
        self.batches += 1

    def after_backward(self) -> None:
        if self.batches % self.accumulated == 0:
            self.clock.end()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = list(torch.randn(4 * BATCHES, 8))
    workers = 2 if VARIANT == "workers" else 0
    train, valid = (DataLoader([(row, row) for row in rows], bs=4, num_workers=workers) for _ in range(2))
    accumulated = 2 if VARIANT == "accumulating" else 1
    callbacks = [Clock(accumulated), *([GradientAccumulation(8)] if accumulated > 1 else [])]
    learner = Learner(
        DataLoaders(train, valid, device="cpu"), nn.Linear(8, 8), MSELossFlat(), Adam, cbs=callbacks, lr=0.01
    )
    with learner.no_bar(), learner.no_logging():
        learner.fit(EPOCHS)
    say([float(one) for one in learner.recorder.losses])


if __name__ == "__main__":
    main()
