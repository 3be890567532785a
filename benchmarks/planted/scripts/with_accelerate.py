"""Trains with Accelerate, and saves the whole state every few steps.

python with_accelerate.py --save-every 1
"""

from __future__ import annotations

import argparse
import warnings

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    rows = TensorDataset(torch.randn(options.steps * 32, 128), torch.randint(10, (options.steps * 32,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(rows, batch_size=32)
    )
    for step, (inputs, classes) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), classes)
        accelerator.backward(loss)
        optimizer.step()
        if step % options.save_every == 0:
            accelerator.save_state("state")


if __name__ == "__main__":
    main()
