"""Trains a network on two ranks that share one device, or the CPU.

torchrun --nproc-per-node 2 ranks.py --kind ddp --backend nccl
"""

from __future__ import annotations

import argparse

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 32


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train on two ranks that share a device.")
    parser.add_argument("--kind", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.manual_seed(1)
    if options.device == "cuda":
        torch.cuda.set_device(0)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(options.backend)
    train(options.kind, options.device, options.steps)  # a DDP model that outlives its process group may hang
    distributed.destroy_process_group()


def train(kind: str, device: str, steps: int) -> None:
    """Train for some steps; every tensor is gone at the end."""
    on_gpu = device == "cuda"
    width, layers = (2048, 8) if on_gpu else (128, 4)
    stack = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(device)
    if kind == "ddp":
        model: nn.Module = DistributedDataParallel(stack)
    else:
        mesh = distributed.device_mesh.init_device_mesh(device, (distributed.get_world_size(),))
        for layer in stack:
            fully_shard(layer, mesh=mesh)
        fully_shard(stack, mesh=mesh)
        model = stack
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = TensorDataset(torch.randn(2 * steps * BATCH, width))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(samples)
    for (batch,) in DataLoader(samples, batch_size=BATCH, sampler=sampler, pin_memory=on_gpu):
        optimizer.zero_grad()
        loss = model(batch.to(device, non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
    if on_gpu:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
