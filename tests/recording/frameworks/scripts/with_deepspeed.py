"""Trains with DeepSpeed's engine, which accumulates gradients, in the processes of its launcher."""

from __future__ import annotations

import deepspeed
import torch
from own_clock import clock_of_script, say
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATED = 2


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise it compiles an extension for a minute
    deepspeed.init_distributed(dist_backend="gloo")
    model = nn.Linear(8, 8)
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": ACCUMULATED}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    clock = clock_of_script()
    losses = []
    for _ in range(2):
        for number, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=4)):
            if number % ACCUMULATED == 0:
                clock.begin()
                clock.pause()
            loss = nn.functional.mse_loss(engine(inputs), inputs)
            engine.backward(loss)
            engine.step()
            clock.end()
            losses.append(loss.item())
    say(torch.distributed.get_rank(), losses)
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
