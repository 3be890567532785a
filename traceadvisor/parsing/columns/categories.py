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
    "hpu_op": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "memset": Kind.MEMSET,
    "memcpy": Kind.COPY_OTHER,
    "cuda_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
}

_OF_A_VENDOR = re.compile(
    r"(?:cuda|gpu|hip|xpu|mtia|npu|mlu|gcu|musa|privateuse1)_(kernel|memcpy|memset|runtime|driver|user_annotation)"
)
"""What each backend has under a name of its own (``ActivityType.cpp`` of kineto and of its forks)."""

_BY_WHAT = {
    "kernel": Kind.KERNEL,
    "memcpy": Kind.COPY_OTHER,
    "memset": Kind.MEMSET,
    "runtime": Kind.RUNTIME,
    "driver": Kind.RUNTIME,
    "user_annotation": Kind.DEVICE_ANNOTATION,
}

_HARMLESS = frozenset(
    {
        "trace",
        "cpu_instant_event",
        "cuda_event",
        "cuda_profiler_range",
        "collective_comm",
        "external_correlation",
        "glow_runtime",
        "gpu_pm_counter",
        "mtia_ccp_events",
        "mtia_counters",
        "mtia_insight",
    }
)
"""Categories that are known and not needed."""

_COLLECTIVE = re.compile(r"nccl|rccl|msccl|oneccl", re.IGNORECASE)


def kind_of(category: str, name: str) -> Kind:
    """The kind of an event; OTHER for what no question needs."""
    kind = _of_category(category.lower())
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
    return _of_category(category.lower()) is not Kind.OTHER or category.lower() in _HARMLESS


def _of_category(category: str) -> Kind:
    if of_a_vendor := _OF_A_VENDOR.fullmatch(category):
        return _BY_WHAT[of_a_vendor[1]]
    return _BY_CATEGORY.get(category, Kind.OTHER)


def _copy_kind(name: str) -> Kind:
    """The direction of a copy: CUDA writes ``Memcpy HtoD``, older ROCm ``CopyHostToDevice``."""
    if "HtoD" in name or "HostToDevice" in name:
        return Kind.COPY_H2D
    if "DtoH" in name or "DeviceToHost" in name:
        return Kind.COPY_D2H
    return Kind.COPY_OTHER
