"""Trains a small transformer on sentences; its options add one fault each.

python language.py --fault collate
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader

WORDS = 500
LENGTH = 48
BATCH = 8
FAULTS = ("collate", "tokenise", "lists", "anomaly", "none")

VALUE = {letter: place for place, letter in enumerate("0123456789abcdefghijklmnopqrstuvwxyz")}


def sentences(count: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(f"word{chance.randrange(WORDS)}" for _ in range(LENGTH)) for _ in range(count)]


def numbered(sentence: str) -> list[int]:
    """One number per word, from 0 to ``WORDS``: a hash of all groups of three letters."""
    found = []
    for word in sentence.split():
        number = 0
        for letter in word:
            for other in word:
                for third in word:
                    number = (31 * number + 7 * VALUE[letter] + 3 * VALUE[other] + VALUE[third]) % WORDS
        found += [number]
    return found


def padded(batch: Sequence[str]) -> torch.Tensor:
    """Number the words of a batch, and fill the lines up to the longest."""
    lines = [numbered(sentence) for sentence in batch]
    longest = max(map(len, lines))
    return torch.tensor([line + [0] * (longest - len(line)) for line in lines])


class Model(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(WORDS, width)
        self.before = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.next = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.words(words)
        parts = self.query_key_value(self.before(hidden)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + seen.transpose(1, 2).flatten(2)
        result: torch.Tensor = self.next(hidden + self.narrow(torch.relu(self.wide(hidden))))
        return result


def relative_positions() -> torch.Tensor:
    """The squared distance of each pair of places, as a matrix."""
    rows = [[(one - other) ** 2 / 2.0 for other in range(6 * LENGTH)] for one in range(6 * LENGTH)]
    return torch.tensor(rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(options.fault == "anomaly")
    texts = sentences(options.steps * BATCH)
    loader: DataLoader[torch.Tensor] | list[list[str]] | list[torch.Tensor]
    if options.fault == "collate":
        loader = DataLoader(texts, batch_size=BATCH, collate_fn=padded)  # type: ignore[arg-type]
    elif options.fault == "tokenise":
        loader = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    else:
        loader = [padded(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for batch in loader:
        words = batch if isinstance(batch, torch.Tensor) else padded(batch)
        optimizer.zero_grad()
        guessed = model(words[:, :-1])
        if options.fault == "lists":
            near = relative_positions()[: LENGTH - 1, : LENGTH - 1]
            guessed = guessed - near.mean() * 1e-6
        loss = nn.functional.cross_entropy(guessed.flatten(0, 1), words[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
