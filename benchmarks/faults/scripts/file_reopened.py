"""Embedding training whose data set loads a whole archive for each item."""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
WORKERS = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 1


class Archive(Dataset):
    def __init__(self, path):
        self.path = path
        self.rows = np.load(path)["rows"] if FIXED else None

    def __len__(self):
        return 800

    def __getitem__(self, index):
        if self.rows is not None:
            row = self.rows[index]
        else:
            row = np.load(self.path)["rows"][index]  # fault
        return torch.from_numpy(row), index % 7


def train(path):
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Archive(path), batch_size=8, num_workers=WORKERS, persistent_workers=WORKERS > 0)
    ends = []
    for rows, kinds in loader:
        loss = nn.functional.cross_entropy(model(rows), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.npz")
        np.savez_compressed(file, rows=np.random.default_rng(0).normal(size=(800, 128)).astype(np.float32))
        train(file)
