"""Network with many small layers and an optimizer that updates them one by one."""

import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)

SETTINGS = {"fused": True} if "--fixed" in sys.argv else {"foreach": False}
model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.LayerNorm(64))])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **SETTINGS)  # fault
inputs = torch.randn(4, 64)
ends = []
for _ in range(100):
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()  # fault
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
