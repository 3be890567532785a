"""One mapping for the spellings of every generation and vendor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from traceadvisor.model.events import Kind
from traceadvisor.parsing.categories import is_known, kind_of


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("Operator", "aten::mm", Kind.OPERATOR),
        ("cpu_op", "aten::mm", Kind.OPERATOR),
        ("CPU_OP", "aten::mm", Kind.OPERATOR),
        ("Operator", "ProfilerStep#3", Kind.ANNOTATION),
        ("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Kind.ANNOTATION),
        ("cpu_op", "Optimizer.step#SGD.step", Kind.ANNOTATION),
        ("user_annotation", "forward", Kind.ANNOTATION),
        ("gpu_user_annotation", "ProfilerStep#3", Kind.DEVICE_ANNOTATION),
        ("Runtime", "cudaLaunchKernel", Kind.RUNTIME),
        ("cuda_runtime", "cudaLaunchKernel", Kind.RUNTIME),
        ("cuda_runtime", "hipLaunchKernel", Kind.RUNTIME),
        ("cuda_driver", "cuLaunchKernel", Kind.RUNTIME),
        ("hip_runtime", "hipLaunchKernel", Kind.RUNTIME),
        ("xpu_runtime", "urEnqueueKernelLaunch", Kind.RUNTIME),
        ("Kernel", "volta_sgemm_128x64_nn", Kind.KERNEL),
        ("kernel", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", Kind.KERNEL),
        ("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Kind.COLLECTIVE),
        ("kernel", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", Kind.COLLECTIVE),
        ("kernel", "rcclGenericKernel<1, false>", Kind.COLLECTIVE),
        ("Memcpy", "Memcpy HtoD (Pageable -> Device)", Kind.COPY_H2D),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", Kind.COPY_H2D),
        ("gpu_memcpy", "CopyHostToDevice", Kind.COPY_H2D),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", Kind.COPY_D2H),
        ("gpu_memcpy", "CopyDeviceToHost", Kind.COPY_D2H),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", Kind.COPY_OTHER),
        ("gpu_memcpy", "Memcpy PtoP (Device -> Device)", Kind.COPY_OTHER),
        ("Memset", "Memset (Device)", Kind.MEMSET),
        ("gpu_memset", "Memset (Device)", Kind.MEMSET),
        ("overhead", "Activity Buffer Request", Kind.OVERHEAD),
        ("Trace", "PyTorch Profiler (0)", Kind.PROFILER_SPAN),
        ("Trace", "Iteration Start: PyTorch Profiler", Kind.OTHER),
        ("cuda_sync", "Stream Wait Event", Kind.DEVICE_WAIT),
        ("python_function", "train.py(3): main", Kind.PYTHON),
        ("quantum_op", "entangle", Kind.OTHER),
    ],
)
def test_an_event_is_what_its_category_and_name_say(category: str, name: str, kind: Kind) -> None:
    assert kind_of(category, name) is kind


@pytest.mark.parametrize("category", ["", "Trace", "cpu_instant_event", "GPU_MEMCPY", "hip_driver"])
def test_a_category_of_some_generation_is_known(category: str) -> None:
    assert is_known(category)


def test_an_unknown_category_is_named_in_the_health_and_degrades_nothing(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).event(ph="X", cat="quantum_op", name="b", ts=1, dur=1).trace(tmp_path)
    (note,) = trace.health.notes
    assert note.code == "unknown-categories"
    assert "quantum_op" in note.message
    assert not note.degrades


def test_both_generations_give_the_same_table(tmp_path: Path) -> None:
    tables = []
    for generation in Generation:
        builder = TraceBuilder(generation).step(0, 0, 100).loader(0, 10).op("aten::mm", 10, 20)
        builder.launch(15, 18, kernel=(20, 60)).copy(60, 61, on_device=(62, 70)).memset(71, 72, on_device=(73, 74))
        events = builder.trace(tmp_path).events
        tables.append((events.kind.tolist(), events.start_ns.tolist(), events.external_id.tolist()))
    assert tables[0] == tables[1]
