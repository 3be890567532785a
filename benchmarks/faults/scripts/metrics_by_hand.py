"""Classifier that computes precision and recall in Python in each step."""

import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv


def scores(predicted, labels, count):
    result = {}
    for kind in range(count):
        hits = sum(1 for one, other in zip(predicted, labels) if one == other == kind)  # fault
        named = sum(1 for one in predicted if one == kind)  # fault
        there = sum(1 for one in labels if one == kind)  # fault
        result[kind] = (hits / max(named, 1), hits / max(there, 1))
    return result


samples, classes = torch.randn(400 * 256, 64), torch.randint(0, 20, (400 * 256,))
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 20))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
ends = []
for step, chosen in enumerate(torch.randperm(len(samples)).split(256)):
    inputs, labels = samples[chosen], classes[chosen]
    optimizer.zero_grad()
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    if not FIXED or step % 50 == 0:
        report = scores(logits.argmax(1).tolist(), labels.tolist(), 20)  # fault
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
