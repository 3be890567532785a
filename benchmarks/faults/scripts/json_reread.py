"""Data set that reads its whole index from a JSON file for each item."""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
WORKERS = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 0


class Items(Dataset):
    def __init__(self, path):
        self.path = path
        self.index = json.loads(path.read_text()) if FIXED else None

    def __len__(self):
        return 640

    def __getitem__(self, number):
        index = self.index
        if index is None:
            with open(self.path) as file:
                index = json.load(file)  # fault
        entry = index["items"][number]
        values = torch.tensor(entry["values"])
        return values, entry["label"]


folder = tempfile.TemporaryDirectory()
path = Path(folder.name, "index.json")
path.write_text(json.dumps({"items": [{"values": [at / 7 for at in range(32)], "label": at % 3} for at in range(640)]}))
model = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 3))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
ends = []
for values, labels in DataLoader(Items(path), batch_size=8, num_workers=WORKERS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
folder.cleanup()
