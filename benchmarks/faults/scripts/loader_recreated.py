"""Training that makes a new loader, with new workers, for each short epoch."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv


def loader_of(data):
    return DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=FIXED)  # fault


def main():
    data = TensorDataset(torch.randn(160, 256), torch.randint(0, 5, (160,)))
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    kept = loader_of(data)
    ends = []
    for _ in range(10):
        loader = kept if FIXED else loader_of(data)  # fault
        for inputs, labels in loader:  # fault
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            ends.append(time.perf_counter())
    print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


if __name__ == "__main__":
    main()
