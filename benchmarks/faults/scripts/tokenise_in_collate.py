"""Text classifier that splits its texts into tokens while it collates."""

import re
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
WORKERS = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 0
WORDS = [f"word{number}" for number in range(2000)]
NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}


def tokenise(text):
    found = []
    for token in re.split(r"\W+", text.lower()):  # fault
        found.append(NUMBERS.get(token, 0))  # fault
    return found[:32]


def collate(samples):
    if FIXED:
        tokens = [tokens for _, tokens, _ in samples]
    else:
        tokens = [tokenise(text) for text, _, _ in samples]  # fault
    return torch.tensor(tokens), torch.tensor([label for _, _, label in samples])


samples = []
for number in range(1280):
    text = ", ".join(WORDS[(number * 31 + at * 17) % 2000] for at in range(3000))
    samples.append((text, tokenise(text), number % 4))
model = nn.Sequential(nn.EmbeddingBag(2001, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ends = []
for tokens, labels in DataLoader(samples, batch_size=16, collate_fn=collate, num_workers=WORKERS):
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))
