"""Trains a recurrent network, step by step of its sequences in Python.

python recurrent.py --length 64
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.next = nn.Linear(2 * width, 2 * width)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        state = sequence.new_zeros(sequence.shape[1], self.width)
        for step in sequence:
            gate, candidate = self.next(torch.cat((step, state), dim=1)).chunk(2, dim=1)
            state = torch.lerp(state, torch.tanh(candidate), torch.sigmoid(gate))
        return state


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--keep-losses", action="store_true", help="with the graphs that they were computed in")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Recurrent(options.width)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []
    mean_loss = torch.zeros(())
    for step in range(options.steps):
        sequence = torch.randn(options.length, options.batch, options.width)
        optimizer.zero_grad()
        loss = (model(sequence) - sequence.mean(0)).square().mean()
        loss.backward(retain_graph=options.keep_losses)
        optimizer.step()
        if options.keep_losses:
            losses.append(loss)
            mean_loss = sum(losses[1:], losses[0]) / len(losses)
        if step % 20 == 0:
            print(step, float(mean_loss))


if __name__ == "__main__":
    main()
