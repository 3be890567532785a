"""A training whose settings can be switched between steps."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.gpu.settings import Settings
from benchmarks.gpu.workloads.workload import Batch, Workload

TRUTH = "TRACEADVISOR_GPU_KIT_TRUTH"
"""Environment variable with the file that a script writes its own times to; the recorded command does not hold it."""


class Training:
    """Runs one step after another. All settings share the model's weights.

    Loaders, optimizers and compiled models are made once per setting and kept until :meth:`close`.
    """

    def __init__(self, workload: Workload, device: str, *, backend: str = "inductor") -> None:
        self._workload, self._device, self._backend = workload, torch.device(device), backend
        self.model = workload.model.to(self._device)
        self._loaders: dict[tuple[int, bool], Iterator[Batch]] = {}
        self._optimizers: dict[tuple[bool, bool], torch.optim.Optimizer] = {}
        self._compiled: dict[tuple[bool, bool], Any] = {}
        self._settings = Settings()
        self._step = 0
        self._total = torch.zeros((), device=self._device)
        self._last_batch: torch.Tensor | None = None
        self.truth: StepTruth | None = None
        """Times the steps by itself where it is set."""

        self.switch(self._settings)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def switch(self, settings: Settings) -> None:
        """Run the next steps with other settings."""
        if settings.channels_last != self._settings.channels_last and self._workload.has_images:
            self.model.to(memory_format=_memory_format(settings))  # type: ignore[call-overload]  # misses in its stubs
            self.model.zero_grad(set_to_none=True)
        self._settings = settings
        torch.set_float32_matmul_precision("high" if settings.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = settings.tf32
        self._total.zero_()

    def step(self) -> None:
        """Load a batch and train on it."""
        settings, truth = self._settings, self.truth
        if truth:
            truth.begin()
        images, labels = next(self._batches())
        self._last_batch = images
        if truth:
            truth.loaded()
        inputs, targets = (part.to(self._device, non_blocking=settings.pinned) for part in (images, labels))
        if settings.channels_last and self._workload.has_images:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if truth:
            truth.copied()
        optimizer = self._optimizer()
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=settings.amp):
            loss = self._workload.loss(self._callable(), inputs, targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        self._total += loss.detach()
        self._step += 1
        if self._step % settings.log_every == 0:
            self._total.item()
        if truth:
            truth.end()

    def synchronise(self) -> None:
        """Wait until the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def reset_peak(self) -> None:
        """Begin to measure peak memory anew."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    @property
    def peak_bytes(self) -> int | None:
        """Most bytes that tensors held since the last reset; None without a GPU."""
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def void_reason(self) -> str | None:
        """Why the settings cannot count as in force; None where there is evidence that they are."""
        settings, batch = self._settings, self._last_batch
        iterator: Any = self._loaders.get(self._loader_key)
        alive = sum(worker.is_alive() for worker in getattr(iterator, "_workers", ()))
        if alive != settings.workers:
            return f"{alive} loader workers run, {settings.workers} were asked for"
        if self._device.type == "cuda" and batch is not None and batch.is_pinned() != settings.pinned:
            return f"batches are {'' if batch.is_pinned() else 'not '}pinned"
        if not math.isfinite(float(self._total.item())):
            return "the loss is not finite"
        weight = next((weight for weight in self.model.parameters() if weight.dim() == 4 and weight.shape[1] > 1), None)
        if weight is not None and weight.shape[-1] > 1:
            is_last = weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
            if is_last != settings.channels_last:
                return f"weights are {'' if is_last else 'not '}channels_last"
        return None

    def close(self) -> None:
        """End loader workers."""
        self._loaders.clear()
        self._compiled.clear()

    @property
    def _loader_key(self) -> tuple[int, bool]:
        return self._settings.workers, self._settings.pinned and self._device.type == "cuda"

    def _batches(self) -> Iterator[Batch]:
        workers, pinned = self._loader_key
        if (workers, pinned) not in self._loaders:
            loader = DataLoader(
                self._workload.dataset, batch_size=self._workload.batch_size, num_workers=workers, pin_memory=pinned
            )
            self._loaders[workers, pinned] = iter(loader)
        return self._loaders[workers, pinned]

    def _optimizer(self) -> torch.optim.Optimizer:
        """One for each layout of weights too: its state has theirs."""
        key = (self._settings.fused, self._settings.channels_last)
        if key not in self._optimizers:
            self._optimizers[key] = self._workload.optimizer(list(self.model.parameters()), fused=key[0])
        return self._optimizers[key]

    def _callable(self) -> nn.Module:
        if not self._settings.compiled:
            return self.model
        key = (self._settings.amp, self._settings.channels_last)
        if key not in self._compiled:
            self._compiled[key] = torch.compile(self.model, backend=self._backend)
        compiled: nn.Module = self._compiled[key]
        return compiled


class StepTruth:
    """Times each step with the script's own clock and, on a GPU, with CUDA events."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._starts_ns: list[int] = []
        self._ended_ns: int | None = None
        self._events: list[list[torch.cuda.Event]] = []

    def begin(self) -> None:
        """A step begins: nothing of it was launched yet."""
        self._starts_ns.append(time.perf_counter_ns())
        self._events.append([])

    def loaded(self) -> None:
        """The batch is there and not copied."""
        self._mark()

    def copied(self) -> None:
        """The batch's copy was launched."""
        self._mark()

    def end(self) -> None:
        """All work of the step was launched."""
        self._mark()

    def drop_last(self) -> None:
        """The step that was begun last did not come."""
        self._ended_ns = self._starts_ns.pop()
        self._events.pop()

    def document(self) -> dict[str, Any]:
        """Step times in ns, from one beginning to the next; times between device marks in ms; memory in bytes."""
        ends_ns = [*self._starts_ns[1:], self._ended_ns or time.perf_counter_ns()]
        if self._on_gpu:
            torch.cuda.synchronize()
        return {
            "step_ns": [end - start for start, end in zip(self._starts_ns, ends_ns, strict=True)],
            "copy_ms": [marks[0].elapsed_time(marks[1]) for marks in self._events] if self._on_gpu else None,
            "compute_ms": [marks[1].elapsed_time(marks[2]) for marks in self._events] if self._on_gpu else None,
            "peak_bytes": torch.cuda.max_memory_allocated() if self._on_gpu else None,
            "reserved_bytes": torch.cuda.max_memory_reserved() if self._on_gpu else None,
        }

    def write(self, **facts: int) -> None:
        """Write the document, with more facts, where the environment asks for it."""
        if path := os.environ.get(TRUTH):
            Path(path).write_text(json.dumps(self.document() | facts), encoding="utf-8")

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events[-1].append(event)


def _memory_format(settings: Settings) -> torch.memory_format:
    return torch.channels_last if settings.channels_last else torch.contiguous_format
