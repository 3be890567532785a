"""Trains a small language model on a made-up language: which of 4096 words comes next.

python text.py --log-every 20 --fused
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

WORDS = 4096
LENGTH = 32  # words of a sentence


class Sentences(Dataset[torch.Tensor]):
    """Each word is followed by one of eight others."""

    def __init__(self, count: int) -> None:
        follow = torch.randint(WORDS, (WORDS, 8))
        choice = torch.randint(8, (count, LENGTH + 1))
        words = [torch.randint(WORDS, (count,))]
        for place in range(LENGTH):
            words.append(follow[words[-1], choice[:, place]])
        self.sentences = torch.stack(words, dim=1)

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sentences[index]


class Model(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.layers(self.embedding(words), mask=self.mask, is_causal=True))
        return scores


def log(file: Path, step: int, loss: torch.Tensor, model: nn.Module) -> None:
    """Append the loss, and for each parameter the size of its gradient and how its values are spread."""
    row: dict[str, object] = {"step": step, "loss": loss.item()}
    for name, parameter in model.named_parameters():
        row[f"{name}.gradient"] = None if parameter.grad is None else parameter.grad.norm().item()
        row[f"{name}.spread"] = torch.histc(parameter.detach(), bins=20).tolist()
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def save(file: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint beside the last one and put it in its place."""
    new = file.with_suffix(".new")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, new)
    new.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small language model.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--log-every", type=int, default=0, help="steps between lines of the log; 0 for none")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints; 0 for none")
    parser.add_argument("--fused", action="store_true", help="let the optimizer do all in one operator")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = DataLoader(Sentences(options.steps * options.batch_size), batch_size=options.batch_size)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=options.fused or None)
    loss_of, loss = nn.CrossEntropyLoss(), torch.tensor(0.0)
    for step, words in enumerate(loader, start=1):
        optimizer.zero_grad()
        scores = model(words[:, :-1])
        loss = loss_of(scores.flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if options.log_every and step % options.log_every == 0:
            with record_function("log"):
                log(Path("metrics.jsonl"), step, loss, model)
        if options.checkpoint_every and step % options.checkpoint_every == 0:
            with record_function("checkpoint"):
                save(Path("last.pt"), step, model, optimizer)
    print(f"loss {loss.item():.3f} after {options.steps} steps")


if __name__ == "__main__":
    main()
