"""Trains with DistributedDataParallel in the processes of a launcher: torchrun, Open MPI or Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from own_clock import clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mine = next((names for names in LAUNCHERS if names[0] in os.environ), None)
    rank, ranks = (int(os.environ[name]) for name in mine) if mine else (0, 1)
    dist.init_process_group("gloo", init_method=f"file://{Path.cwd()}/meeting", rank=rank, world_size=ranks)
    data = TensorDataset(torch.randn(160, 8))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, ranks, rank, shuffle=False))
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clock = clock_of_script()
    losses = []
    for _ in range(2):
        for (inputs,) in loader:
            clock.begin()
            clock.pause()
            loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.end()
            losses.append(loss.item())
    say(rank, losses)
    del model, optimizer  # DistributedDataParallel may hang when it outlives its process group
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        Path("meeting").unlink()


if __name__ == "__main__":
    main()
