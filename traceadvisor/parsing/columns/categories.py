"""The kind of an event by its category and name, for every profiler generation and vendor."""

from __future__ import annotations

import re

from traceadvisor.model.events import Kind

ANNOTATION_PREFIXES = ("ProfilerStep#", "enumerate(", "Optimizer.")
"""Names of ranges, which old generations file under operators."""

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
"""Categories with a backend's name in them (``ActivityType.cpp`` of kineto and of its forks)."""

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
"""Known categories that are not needed."""

_LIBRARY = re.compile(r"nccl|rccl|msccl|oneccl|hccl", re.IGNORECASE)
_COLLECTIVE = re.compile(
    r"hcom_|nvshmem|rocshmem|deep_?ep::|userbuffers|quick_?reduce|multimem_"
    r"|cross_device_reduce|symm(?:etric)?_mem|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter",
    re.IGNORECASE,
)
"""Other communication kernels: of torch's symmetric memory (``multimem_all_reduce_kernel``,
``one_shot_all_reduce_kernel``), of vLLM and SGLang (``cross_device_reduce_1stage``), FlashInfer and TensorRT-LLM
(``allreduce_fusion_kernel_oneshot_lamport``), DeepEP and Transformer Engine. The names are those of their sources."""

_OF_A_BLOCK = re.compile(r"(?:warp|block|wave|cta|group|lane|quad|thread)_?all_?reduce", re.IGNORECASE)
"""A reduction inside one kernel, as a template argument or in a name: ``softmax<BlockAllReduce>``."""

_COMPUTES = re.compile(r"^triton_|gemm|matmul|_mm_|conv\dd|convolution|attention|attn", re.IGNORECASE)
"""Kernels that also compute. One that multiplies matrices and communicates keeps the device busy with both, and counts
as compute. Inductor names a fused elementwise kernel for all operators around it, collectives included."""


def kind_of(category: str, name: str) -> Kind:
    """Return the kind of an event; OTHER if no analysis needs it."""
    kind = _of_category(category.lower())
    if kind is Kind.OPERATOR and name.startswith(ANNOTATION_PREFIXES):
        return Kind.ANNOTATION
    if kind is Kind.KERNEL and _communicates(name):
        return Kind.COLLECTIVE
    if kind is Kind.COPY_OTHER:
        return _copy_kind(name)
    if category.lower() == "trace" and name.startswith("PyTorch Profiler"):
        return Kind.PROFILER_SPAN
    return kind


def _communicates(name: str) -> bool:
    """Whether a kernel communicates and does nothing else; libraries are recognised whatever else the name says."""
    if _LIBRARY.search(name):
        return True
    return bool(_COLLECTIVE.search(_OF_A_BLOCK.sub("", name))) and not _COMPUTES.search(name)


def is_known(category: str) -> bool:
    """Whether some generation is known to write the category."""
    return _of_category(category.lower()) is not Kind.OTHER or category.lower() in _HARMLESS


def _of_category(category: str) -> Kind:
    if of_a_vendor := _OF_A_VENDOR.fullmatch(category):
        return _BY_WHAT[of_a_vendor[1]]
    return _BY_CATEGORY.get(category, Kind.OTHER)


def _copy_kind(name: str) -> Kind:
    """Return the direction of a copy: CUDA writes ``Memcpy HtoD``, older ROCm ``CopyHostToDevice``."""
    if "HtoD" in name or "HostToDevice" in name:
        return Kind.COPY_H2D
    if "DtoH" in name or "DeviceToHost" in name:
        return Kind.COPY_D2H
    return Kind.COPY_OTHER
