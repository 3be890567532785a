"""Convolutional network that runs in double precision because its data do."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
values = np.random.default_rng(0).normal(size=(80 * 8, 3, 32, 32))
inputs = torch.from_numpy(values)
if FIXED:
    inputs = inputs.float()
model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 28 * 28, 10)
)
if not FIXED:
    model = model.double()  # fault
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
labels = torch.randint(0, 10, (len(inputs),))
ends = []
for images, kinds in DataLoader(TensorDataset(inputs, labels), batch_size=8):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), kinds)  # fault
    loss.backward()  # fault
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
