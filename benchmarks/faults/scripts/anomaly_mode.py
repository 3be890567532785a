"""Recurrent network with anomaly detection left on."""

import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)

if "--fixed" not in sys.argv:
    torch.autograd.set_detect_anomaly(True)  # fault


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(32, 64)
        self.out = nn.Linear(64, 8)

    def forward(self, inputs):
        state = torch.zeros(inputs.shape[1], 64)
        found = []
        for one in inputs:
            state = self.cell(one, state)
            found.append(self.out(state))
        return torch.stack(found)


def main():
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = torch.randn(6, 16, 32), torch.randint(0, 8, (6, 16))
    ends = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


main()
