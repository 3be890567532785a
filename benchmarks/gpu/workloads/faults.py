"""The training of ``traceadvisor demo``, in a form whose faults can be switched on and off between blocks."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.gpu.inside import Stripes, network
from benchmarks.gpu.workloads.workload import Workload


def loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As the demo's."""
    return nn.functional.cross_entropy(model(images), labels)


def optimizer(parameters: list[nn.Parameter], *, fused: bool) -> torch.optim.Optimizer:
    """As the demo's."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=fused or None)


def make(*, reduced: bool, batch_size: int | None = None) -> Workload:
    """The demo's data and network with its width on a GPU, reduced a narrow one."""
    size = batch_size or (8 if reduced else 32)
    model = network(8 if reduced else 256)
    return Workload(
        f"the demo's training, batch {size}", Stripes(10_000_000), size, model, loss, optimizer, has_images=True
    )
