"""The parts of a training that differ from one model to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

ENDLESS = 10_000_000
"""Samples of a dataset whose epoch never ends here; indices repeat a few distinct ones."""

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with its data."""

    title: str
    dataset: Dataset[Any]
    batch_size: int
    model: nn.Module
    loss: Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]
    """Takes parameters and ``fused``."""

    has_images: bool
    """Whether inputs have a memory format to choose."""


def imported(name: str) -> ModuleType | None:
    """A library that may be missing or broken here; the caller falls back to a model of its own."""
    try:
        return import_module(name)
    except Exception:  # noqa: BLE001  # a binary built for another torch fails in its own ways
        return None
