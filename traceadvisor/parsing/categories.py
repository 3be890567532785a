"""What an event is, from its category and name, over every generation and vendor."""

from __future__ import annotations

import re

from traceadvisor.model.events import Kind

ANNOTATION_PREFIXES = ("ProfilerStep#", "enumerate(", "Optimizer.")
"""Names that are ranges even where an old generation files them under operators."""

_BY_CATEGORY = {
    "operator": Kind.OPERATOR,
    "cpu_op": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "memset": Kind.MEMSET,
    "gpu_memset": Kind.MEMSET,
    "memcpy": Kind.COPY_OTHER,
    "gpu_memcpy": Kind.COPY_OTHER,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
}

_HARMLESS = frozenset({"trace", "cpu_instant_event", "cuda_profiler_range", "collective_comm", ""})
"""Categories that are known and not needed."""

_COLLECTIVE = re.compile(r"nccl|rccl|msccl|oneccl", re.IGNORECASE)


def kind_of(category: str, name: str) -> Kind:
    """The kind of an event; OTHER for what no question needs."""
    kind = _BY_CATEGORY.get(category.lower(), Kind.OTHER)
    if kind is Kind.OPERATOR and name.startswith(ANNOTATION_PREFIXES):
        return Kind.ANNOTATION
    if kind is Kind.KERNEL and _COLLECTIVE.search(name):
        return Kind.COLLECTIVE
    if kind is Kind.COPY_OTHER:
        return _copy_kind(name)
    if category.lower() == "trace" and name.startswith("PyTorch Profiler"):
        return Kind.PROFILER_SPAN
    return kind


def is_known(category: str) -> bool:
    """Whether the category is one that some generation is known to write."""
    return category.lower() in _BY_CATEGORY or category.lower() in _HARMLESS


def _copy_kind(name: str) -> Kind:
    """The direction of a copy: CUDA writes ``Memcpy HtoD``, older ROCm ``CopyHostToDevice``."""
    if "HtoD" in name or "HostToDevice" in name:
        return Kind.COPY_H2D
    if "DtoH" in name or "DeviceToHost" in name:
        return Kind.COPY_D2H
    return Kind.COPY_OTHER
