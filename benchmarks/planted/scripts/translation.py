"""Trains an encoder and a decoder on sentences of 8 to 40 tokens, padded to one length.

python translation.py --length 128
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, VOCABULARY = 0, 500


class Sentences(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(number)
        length = int(torch.randint(8, 40, (), generator=chance))
        return torch.randint(1, VOCABULARY, (length,), generator=chance)


class Translator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.layers = nn.Transformer(width, 4, 1, 1, 2 * width, batch_first=True)
        self.words = nn.Linear(width, VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        embedded = self.embedding(source), self.embedding(target)
        output: torch.Tensor = self.words(self.layers(*embedded, tgt_mask=later))
        return output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    options = parser.parse_args()

    def padded(sentences: list[torch.Tensor]) -> torch.Tensor:
        batch = torch.full((len(sentences), options.length), PAD)
        for row, sentence in zip(batch, sentences, strict=True):
            row[: len(sentence)] = sentence
        return batch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Translator(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(Sentences(options.steps * options.batch), options.batch, collate_fn=padded, num_workers=1)
    for batch in loader:
        words = model(batch, batch[:, :-1])
        loss = nn.functional.cross_entropy(words.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
