"""Deep network that logs norms of all parameters and gradients in each step."""

import sys
import time

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(192, 192), nn.LayerNorm(192), nn.ReLU())])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(8, 192)
history = []
ends = []
for step in range(90):
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    if not FIXED or step % 50 == 0:
        norms = {}
        for name, parameter in model.named_parameters():
            norms[f"{name}.weight"] = parameter.detach().norm().item()  # fault
            norms[f"{name}.std"] = parameter.detach().std().item()  # fault
            norms[f"{name}.grad"] = parameter.grad.norm().item()  # fault
        history.append(norms)
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
