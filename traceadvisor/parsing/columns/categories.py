"""The kind of an event by its category and name, for every profiler generation and vendor."""

from __future__ import annotations

import re

from traceadvisor.hardware.accelerators import kinds_by_category, names
from traceadvisor.model.events import Kind

ANNOTATION_PREFIXES = ("ProfilerStep#", "enumerate(", "Optimizer.")
"""Names of ranges, which old generations file under operators."""

_BY_CATEGORY = kinds_by_category()
_LIBRARY = re.compile(names().communication_libraries, re.IGNORECASE)
_TO_DEVICE, _FROM_DEVICE = re.compile(names().to_device), re.compile(names().from_device)
_COLLECTIVE = re.compile(
    r"hcom_|nvshmem|rocshmem|(?:deep_?ep|\bdpsk::ep)::(?!layout|cuda::)|userbuffers|quick_?reduce|multimem_"
    r"|cross_device_reduce|symm(?:etric)?_mem|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter",
    re.IGNORECASE,
)
"""Other communication kernels: of torch's symmetric memory (``multimem_all_reduce_kernel``,
``one_shot_all_reduce_kernel``), of vLLM and SGLang (``cross_device_reduce_1stage``), FlashInfer and TensorRT-LLM
(``allreduce_fusion_kernel_oneshot_lamport``), DeepEP (``dpsk::ep`` in its authors' recordings; its layout kernels only
count) and Transformer Engine. The names are those of their sources."""

_OF_A_BLOCK = re.compile(r"(?:warp|block|wave|cta|group|lane|quad|thread)_?all_?reduce", re.IGNORECASE)
"""A reduction inside one kernel, as a template argument or in a name: ``softmax<BlockAllReduce>``."""

_COMPUTES = re.compile(r"^triton_|gemm|matmul|_mm_|conv\dd|convolution|attention|attn", re.IGNORECASE)
"""Kernels that also compute. One that multiplies matrices and communicates keeps the device busy with both, and counts
as compute. Inductor names a fused elementwise kernel for all operators around it, collectives included."""


def kind_of(category: str, name: str) -> Kind:
    """Return the kind of an event; OTHER if no analysis needs it."""
    kind = _BY_CATEGORY.get(category.lower(), Kind.OTHER)
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
    """Whether some profiler is known to write the category."""
    return category.lower() in _BY_CATEGORY


def _copy_kind(name: str) -> Kind:
    """Return the direction of a copy: CUDA writes ``Memcpy HtoD``, older ROCm ``CopyHostToDevice``, XPU ``H2D``."""
    if _TO_DEVICE.search(name):
        return Kind.COPY_H2D
    return Kind.COPY_D2H if _FROM_DEVICE.search(name) else Kind.COPY_OTHER
