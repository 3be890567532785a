"""A GPU for tests without one: replaces functions of ``torch.cuda`` by others of the same signatures."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch

GPU = torch.device("cuda", 1)
"""The device of the training; the current device is another."""


class FakeCuda:
    """Notes each call with its device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.stats = {"num_ooms": 0, "num_alloc_retries": 0}
        self.free, self.total = 6 << 30, 10 << 30
        self.allocated, self.peak, self.reserved = 1 << 30, 3 << 30, 4 << 30
        for name in (
            *("synchronize", "empty_cache", "reset_peak_memory_stats", "max_memory_reserved", "max_memory_allocated"),
            *("memory_allocated", "memory_reserved", "memory_stats", "mem_get_info"),
            *("get_device_properties", "get_device_name", "get_device_capability"),
        ):
            fake, real = getattr(self, name), getattr(torch.cuda, name)
            assert list(inspect.signature(fake).parameters) == list(inspect.signature(real).parameters)
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr("traceadvisor.experiments.inside.blocks.devices_of", lambda _: [GPU])

    def synchronize(self, device: Any = None) -> None:
        self.calls.append(("synchronize", device))

    def empty_cache(self) -> None:
        self.calls.append(("empty_cache", None))

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.calls.append(("reset_peak_memory_stats", device))

    def max_memory_reserved(self, device: Any = None) -> int:
        return self._asked(device, self.reserved)

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._asked(device, self.peak)

    def memory_allocated(self, device: Any = None) -> int:
        return self._asked(device, self.allocated)

    def memory_reserved(self, device: Any = None) -> int:
        return self._asked(device, self.reserved)

    def memory_stats(self, device: Any = None) -> dict[str, Any]:
        assert device == GPU
        return dict(self.stats)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        assert device == GPU
        return self.free, self.total

    def get_device_properties(self, device: Any = None) -> Any:
        assert device == GPU
        return SimpleNamespace(total_memory=self.total, uuid="12", pci_domain_id=0, pci_bus_id=1, pci_device_id=0)

    def get_device_name(self, device: Any = None) -> str:
        assert device == GPU
        return "Second GPU"

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        assert device == GPU
        return 8, 0

    @staticmethod
    def _asked(device: Any, value: int) -> int:
        assert device == GPU
        return value
