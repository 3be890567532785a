"""Trains some steps, writes what each kind of memory takes as torch counts it, and then runs out of memory on purpose.

python exhausted.py OUT.json [--steps 30] [--stay]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

WIDTH, LAYERS, BATCH = 2048, 8, 256


def held(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of some tensors."""
    return sum(one.numel() * one.element_size() for one in tensors)


def main() -> None:
    """Train, count, and run out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--stay", action="store_true", help="do not run out of memory")
    options = parser.parse_args()
    torch.ones(1, device="cuda")
    time.sleep(0.1)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for _ in range(options.steps):
        begin_s = time.perf_counter()
        optimizer.zero_grad()
        model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin_s)
    weights = list(model.parameters())
    counted = {
        "parameters": held(weights),
        "gradients": held([one.grad for one in weights if one.grad is not None]),
        "optimizer_state": held(
            [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        ),
        "peak_bytes": torch.cuda.memory_stats()["requested_bytes.all.peak"],
        "step_s": sorted(times[5:])[len(times[5:]) // 2],
    }
    options.out.write_text(json.dumps(counted), encoding="utf-8")
    if options.stay:
        return
    kept = []
    try:
        while True:
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(f"ran out after {len(kept)} GiB")


if __name__ == "__main__":
    main()
