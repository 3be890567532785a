"""Trains without an optimizer of torch. python by_hand.py VARIANT"""

from __future__ import annotations

import sys

import torch
from own_clock import clock_of_script, say
from torch.utils.data import DataLoader, TensorDataset

VARIANT = sys.argv[1]
BATCHES, EPOCHS = 20, 3 if VARIANT == "workers" else 2


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = torch.randn(4 * BATCHES, 8)
    weights = torch.zeros(8, 8, requires_grad=True)
    loader = DataLoader(TensorDataset(rows), batch_size=4, num_workers=2 if VARIANT == "workers" else 0)
    clock = clock_of_script()
    losses = []
    for _ in range(EPOCHS):
        for (inputs,) in loader:
            clock.begin()
            clock.pause()
            loss = (inputs @ weights - inputs).pow(2).mean()
            if VARIANT == "functional":
                (gradient,) = torch.autograd.grad(loss, weights)
                weights = (weights - 0.1 * gradient).detach().requires_grad_()
            else:
                loss.backward()
                assert weights.grad is not None
                with torch.no_grad():
                    weights -= 0.1 * weights.grad
                weights.grad = None
            clock.end()
            losses.append(loss.item())
        with torch.no_grad():
            losses.extend((inputs @ weights).sum().item() for (inputs,) in DataLoader(TensorDataset(rows), 16))
    say(losses)


if __name__ == "__main__":
    main()
