"""Peak memory of a block: of the GPU's tensors, or of this process where no GPU is used."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch

from traceadvisor.frozen import frozen
from traceadvisor.system.control_groups import control_groups

_RESET_PEAK = "5"
"""Written to ``/proc/self/clear_refs``, it sets the peak of resident memory to what is used now; see proc(5)."""


@frozen
class MemoryUse:
    """Memory of a GPU, in bytes."""

    state: int
    """In use between two steps: weights, gradients, state of the optimizer."""

    peak: int
    available: int
    """The memory that this process holds, and free memory: other processes may have a part of the rest."""


class PeakMemory:
    """Measures the most memory in use since :meth:`reset`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._is_gpu = device, device.type == "cuda"

    def reset(self) -> None:
        """Begin anew."""
        if self._is_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)

    def peak_bytes(self) -> int | None:
        """The most bytes since the reset; None if the system does not tell.

        Of a GPU, what tensors take. Torch's cache would count other arms: a gradient that lies in a large segment of an
        arm with larger batches keeps all of it.
        """
        if self._is_gpu:
            return int(torch.cuda.max_memory_allocated(self._device))
        with suppress(OSError, ValueError, StopIteration):
            lines = Path("/proc/self/status").read_text().splitlines()
            return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
        return None

    def failures(self) -> int:
        """Number of allocations on the GPU that failed so far, whoever caught the error."""
        return int(self._stats().get("num_ooms", 0))

    def retries(self) -> int:
        """Number of times that torch freed its cache to allocate again, which takes time."""
        return int(self._stats().get("num_alloc_retries", 0))

    def _stats(self) -> dict[str, int]:
        return torch.cuda.memory_stats(self._device) if self._is_gpu else {}

    def use(self) -> MemoryUse | None:
        """The memory of the steps since the reset; None without a GPU."""
        if not self._is_gpu:
            return None
        cuda, device = torch.cuda, self._device
        available = cuda.memory_reserved(device) + cuda.mem_get_info(device)[0]
        return MemoryUse(cuda.memory_allocated(device), cuda.max_memory_allocated(device), available)

    def total_bytes(self) -> int | None:
        """The memory of the GPU, or what this process may use of the machine's."""
        if self._is_gpu:
            return int(torch.cuda.get_device_properties(self._device).total_memory)
        with suppress(OSError, ValueError):
            machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            names = {1: "memory.limit_in_bytes", 2: "memory.max"}
            limits = (group.number(names[group.version]) for group in control_groups("memory"))
            return min([machine, *(limit for limit in limits if limit is not None)])
        return None

    def free_cached(self) -> None:
        """Give memory that no tensor uses back, so that one arm does not count that of another.

        The next steps are slower: they allocate it anew.
        """
        if self._is_gpu:
            torch.cuda.empty_cache()

    def free_pinned(self) -> None:
        """Give pinned memory that no batch uses back. Torch keeps it for batches of the same size, without a limit."""
        if self._is_gpu and hasattr(torch._C, "_host_emptyCache"):  # torch with CUDA or ROCm
            torch._C._host_emptyCache()
