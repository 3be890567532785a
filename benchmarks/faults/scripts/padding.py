"""Encoder whose short texts are padded to the longest text of all."""

import random
import sys
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
random.seed(0)
texts = [torch.randint(1, 500, (random.choice((12, 16, 20, 24)) if number % 97 else 128,)) for number in range(640)]


def collate(batch):
    if FIXED:
        return pad_sequence(batch, batch_first=True)
    padded = torch.zeros(len(batch), 128, dtype=torch.long)
    for row, text in zip(padded, batch):
        row[: len(text)] = text
    return padded  # fault


model = nn.Sequential(
    nn.Embedding(500, 64, padding_idx=0), nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), nn.Linear(64, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ends = []
for tokens in DataLoader(texts, batch_size=8, collate_fn=collate):  # fault
    optimizer.zero_grad()
    loss = model(tokens).logsumexp(-1).mean()  # fault
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
