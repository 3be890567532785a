"""What is trained: data, model and loss, under a name. Weights are random and data are made on the spot."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gpu.workloads import faults, pictures, text
from benchmarks.gpu.workloads.workload import Workload

WORKLOADS: dict[str, Callable[..., Workload]] = {
    "pictures": pictures.make,
    "text": text.make,
    "faults": faults.make,
}
"""Each takes ``reduced`` and ``batch_size`` (None for its own)."""
