"""The kind of an event by its category and name, for every profiler generation and vendor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from traceadvisor.hardware.profiler_names import TASK, category_of_track, kinds_by_category, names
from traceadvisor.model.arrays import Int32, Mask
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.trace import Thread
from traceadvisor.parsing.json.events import TimedEvent

ANNOTATION_PREFIXES = ("ProfilerStep#", "enumerate(", "Optimizer.")
"""Names of ranges, which old generations file under operators."""

_BY_CATEGORY = kinds_by_category()
_LIBRARY = re.compile(names().communication_libraries, re.IGNORECASE)
_TO_DEVICE, _FROM_DEVICE = re.compile(names().to_device), re.compile(names().from_device)
_COLLECTIVE = re.compile(
    r"hcom_|nvshmem|rocshmem|(?:deep_?ep|\bdpsk::ep)::(?!layout|cuda::)|userbuffers|quick_?reduce|multimem_"
    r"|hybrid_?ep::(?:\w{0,40}_)?(?:dispatch|combine|sync)\w{0,40}_kernel|\bEp(?:Dispatch|Combine)[A-Z]\w{0,80}"
    r"|moeA2A[A-Z]\w{0,40}Kernel|\ba2a_(?:dispatch|combine)_"
    r"|cross_device_reduce|symm(?:etric)?_mem|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter",
    re.IGNORECASE,
)
"""Other communication kernels: of torch's symmetric memory (``multimem_all_reduce_kernel``,
``one_shot_all_reduce_kernel``), of vLLM and SGLang (``cross_device_reduce_1stage``), FlashInfer and TensorRT-LLM
(``allreduce_fusion_kernel_oneshot_lamport``), DeepEP (``dpsk::ep`` in its authors' recordings; its layout kernels only
count), HybridEP (``hybrid_ep::dispatch_kernel``; its scan only counts), MORI (``EpDispatchIntraNodeKernel``),
pplx-garden (``a2a_dispatch_send_kernel``), Transformer Engine, and of experts in FlashInfer and TensorRT-LLM
(``moeA2ACombineKernel``). The names are those of their sources."""

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


_OF_OTHERS_TOO = frozenset({"cpu_op", "kernel", "memcpy", "memset", "operator", "overhead", "runtime", "trace"})
"""Categories that other programs write as well."""


def is_of_torch(category: str, name: str, kind: Kind) -> bool:
    """Whether only a profiler of torch writes such an event: by its category, or a name such as ``aten::mm``."""
    if kind is Kind.ANNOTATION or (kind is Kind.OPERATOR and "::" in name):
        return True
    return bool(category) and category.lower() not in _OF_OTHERS_TOO and is_known(category)


def _copy_kind(name: str) -> Kind:
    """Return the direction of a copy: CUDA writes ``Memcpy HtoD``, older ROCm ``CopyHostToDevice``, XPU ``H2D``."""
    if _TO_DEVICE.search(name):
        return Kind.COPY_H2D
    return Kind.COPY_D2H if _FROM_DEVICE.search(name) else Kind.COPY_OTHER


_TOLD = RUNTIME, ENQUEUE, DEQUEUE = "cann", "enqueue", "dequeue"
"""Categories of calls: of the vendor's runtime, and those that put an operator into a task queue and take it out."""

UNTOLD = frozenset({"", ENQUEUE, DEQUEUE})
"""Categories of events that :func:`tell` completes."""

_COPY = "memcpy"


def tell(event: TimedEvent[Any]) -> None:
    """Give an event its category, the id that it shares with other events, and the stream of device work."""
    args = event.args
    if event.cat in {ENQUEUE, DEQUEUE}:
        event.args = msgspec.structs.replace(args, correlation=NONE - 1 - args.queued)  # apart from connections
    elif not event.cat:
        event.cat = f"{TASK}{args.task_type}" if args.task_type else category_of_track(event.name)
        if not event.cat:
            return
        track = "" if args.task_type else f"{event.cat.upper()} "
        event.args = msgspec.structs.replace(args, correlation=args.connection, stream=f"{track}{event.tid}")


def with_tracks_joined(
    events: EventTable, names: Sequence[str], threads: Sequence[Thread], categories: Sequence[str], signature: Int32
) -> EventTable:
    """Return the events with calls on the threads of the program, and device work linked to what enqueued it.

    The runtime has a track of its own, with the program's threads by their numbers. A thread of the program takes
    operators out of a queue and launches their work. The one that put them in decides when they run, and has the
    operator and the Python stack.

    Args:
        events: sorted by start.
        names: of events.
        threads: of events.
        categories: by signature.
        signature: of each event.
    """
    of = {name: np.isin(signature, [at for at, each in enumerate(categories) if each == name]) for name in _TOLD}
    runtime = set(events.thread[of[RUNTIME]].tolist())
    own = {one.thread: row for row, one in enumerate(threads) if row not in runtime}
    thread = np.array([*(own.get(one.thread, row) for row, one in enumerate(threads)), NONE], np.int32)[events.thread]
    correlation, kind = events.correlation.copy(), events.kind.copy()
    by_connection = _queued(replace(events, thread=thread), of)
    for row in np.flatnonzero(events.device != NONE).tolist():
        dequeue = by_connection.get(int(correlation[row]))
        if dequeue is not None:
            correlation[row] = correlation[dequeue]
            if kind[row] == Kind.COPY_OTHER:
                kind[row] = kind_of(_COPY, names[events.name_id[dequeue]])
    for row in np.flatnonzero(of[RUNTIME]).tolist():  # the calls that launched it have its id, too
        if (dequeue := by_connection.get(int(correlation[row]))) is not None:
            correlation[row] = correlation[dequeue]
    return replace(events, thread=thread, correlation=correlation, kind=kind)


def _queued(events: EventTable, of: Mapping[str, Mask]) -> dict[int, int]:
    """Return the row of the call that took an operator out of the queue, by the connections of the work it launched."""
    calls = np.flatnonzero(of[RUNTIME] & (events.correlation != NONE))[::-1]  # the first of several counts
    dequeues = np.flatnonzero(of[DEQUEUE] & np.isin(events.correlation, events.correlation[of[ENQUEUE]]))
    found: dict[int, int] = {}
    for thread in np.unique(events.thread[dequeues]).tolist():
        mine, theirs = calls[events.thread[calls] == thread], dequeues[events.thread[dequeues] == thread]
        starts = events.start_ns[mine]
        last = theirs[np.searchsorted(events.start_ns[theirs], starts, side="right") - 1]
        inside = (events.start_ns[last] <= starts) & (starts < events.end_ns[last])
        found |= zip(events.correlation[mine[inside]].tolist(), last[inside].tolist(), strict=True)
    return found
