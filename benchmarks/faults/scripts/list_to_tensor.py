"""Policy training that turns lists of numbers into tensors in each step."""

import random
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
random.seed(0)
episodes = [[[random.random() for _ in range(128)] for _ in range(256)] for _ in range(8)]
ready = [torch.tensor(episode) for episode in episodes]
policy = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 6))
optimizer = torch.optim.Adam(policy.parameters(), fused=True)
ends = []
for step in range(80):
    if FIXED:
        states = ready[step % 8]
    else:
        states = torch.tensor(episodes[step % 8])  # fault
    optimizer.zero_grad()
    loss = policy(states).logsumexp(1).mean()
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
