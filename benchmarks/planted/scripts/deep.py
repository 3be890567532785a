"""Trains a deep network of narrow layers; its options add one fault each.

python deep.py --fault optimizer
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from pathlib import Path

import torch
from torch import nn

FAULTS = ("optimizer", "threads", "collect", "garbage", "norms", "log", "checkpoint", "none")


class Record:
    """One of very many small objects, as a data set in Python has them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.neighbours = [number - 1, number + 1]
        self.more = {"name": str(number), "self": self}


def write_norms(model: nn.Module) -> None:
    """The size of each gradient, for the terminal."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        print(f"{name}: {parameter.grad.norm().item():.3e} {parameter.std().item():.3e}", flush=True)


def write_log(path: Path, step: int, loss: torch.Tensor, model: nn.Module) -> None:
    """Append a line that is on the disk before the training goes on."""
    weights = {name: parameter.detach().flatten()[:3000].tolist() for name, parameter in model.named_parameters()}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "loss": float(loss.detach()), "weights": weights}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def network(layers: int, width: int) -> nn.Sequential:
    blocks = []
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=5, help="steps from one checkpoint to the next")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    records = [Record(number) for number in range(60_000)] if options.fault in {"collect", "garbage"} else []
    model = network(options.layers, options.width)
    if options.fault == "optimizer":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    inputs, targets = torch.randn(options.batch, options.width), torch.randn(options.batch, 1)
    log = Path("log.jsonl")
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        match options.fault:
            case "collect":
                gc.collect()
            case "garbage":  # new objects in place of old ones, so that Python looks for garbage by itself
                first = (step * 2500) % len(records)
                records[first : first + 2500] = [Record(number) for number in range(2500)]
            case "norms":
                write_norms(model)
            case "log":
                write_log(log, step, loss, model)
            case "checkpoint" if step % options.every == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")


if __name__ == "__main__":
    main()
