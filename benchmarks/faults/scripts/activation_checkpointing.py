"""Network that recomputes each block in the backward pass although memory is free."""

import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)) for _ in range(6)
        )

    def forward(self, hidden):
        for block in self.blocks:
            if FIXED:
                hidden = hidden + block(hidden)
            else:
                hidden = hidden + checkpoint(block, hidden, use_reentrant=False)  # fault
        return hidden


def main():
    torch.manual_seed(0)
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(128, 512)
    ends = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


if __name__ == "__main__":
    main()
