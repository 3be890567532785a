"""Regression that writes a checkpoint every other step."""

import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)

EVERY = 50 if "--fixed" in sys.argv else 2


class Trainer:
    def __init__(self, folder):
        self.model = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self.folder = folder

    def save(self, step):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": step}
        torch.save(state, self.folder / "last.pt")  # fault

    def step(self, inputs):
        self.optimizer.zero_grad()
        loss = self.model(inputs).pow(2).mean()
        loss.backward()
        self.optimizer.step()

    def fit(self, steps):
        ends = []
        for step in range(steps):
            self.step(torch.randn(32, 256))
            if step % EVERY == 0:
                self.save(step)  # fault
            ends.append(time.perf_counter())
        print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        Trainer(Path(place)).fit(100)
