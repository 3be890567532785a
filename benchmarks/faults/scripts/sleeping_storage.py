"""Regression on rows that a slow storage returns one by one."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
WORKERS = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 2


class Bucket:
    def __init__(self):
        self.rows = torch.randn(1600, 64)

    def get(self, key):
        if not FIXED:
            time.sleep(0.006)  # fault
        return self.rows[key]


class Remote(Dataset):
    def __init__(self, bucket):
        self.bucket = bucket

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        row = self.bucket.get(index)  # fault
        return row, row.sum()


loader = DataLoader(Remote(Bucket()), batch_size=16, num_workers=WORKERS)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
ends = []
for rows, sums in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(rows).squeeze(1), sums)
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
