"""A training that writes the norm of each parameter in every step; ``--fixed`` writes them in every hundredth."""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn

WARM_UP = 15


def arguments() -> argparse.Namespace:
    """The command line of all trainings of this form."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--small", action="store_true")
    return parser.parse_args()


def norms(model: nn.Module) -> list[float]:
    """The fault: one wait for the device per norm."""
    return [float(parameter.norm()) for parameter in model.parameters() for _ in range(20)]


def main() -> None:
    """Train, and print the mean step."""
    options = arguments()
    width = 64 if options.small else 1024
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begun, loss = 0.0, torch.zeros(())
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = model(torch.randn(32, width, device=options.device)).square().mean()
        loss.backward()
        optimizer.step()
        if not options.fixed or step % 100 == 0:
            norms(model)
        if step == WARM_UP - 1:
            _wait(options.device)
            begun = time.perf_counter()
    _wait(options.device)
    overall_ms = 1000 * (time.perf_counter() - begun) / (options.steps - WARM_UP)
    print(json.dumps({"name": "norms_each_step", "overall_ms": overall_ms, "loss": float(loss)}))


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
