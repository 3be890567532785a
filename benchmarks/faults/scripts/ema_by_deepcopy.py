"""Average of the weights by a deep copy of the model in each step."""

import copy
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv


def averaged(average, model, decay=0.99):
    if FIXED:
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        return average
    new = copy.deepcopy(model)  # fault
    for mine, old in zip(new.parameters(), average.parameters()):
        mine.data = decay * old.data + (1 - decay) * mine.data  # fault
    return new


model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU())])
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(16, 128)
ends = []
for _ in range(100):
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    average = averaged(average, model)  # fault
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
