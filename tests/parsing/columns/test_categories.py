"""One mapping for the spellings of every generation and vendor."""

from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from traceadvisor.model.events import Kind
from traceadvisor.parsing.columns.categories import is_known, kind_of


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
        ("xpu_driver", "zeCommandListAppendLaunchKernel", Kind.RUNTIME),
        ("mtia_runtime", "runFunction", Kind.RUNTIME),
        ("privateuse1_runtime", "aclrtLaunchKernel", Kind.RUNTIME),
        ("privateuse1_driver", "launch", Kind.RUNTIME),
        ("npu_runtime", "aclrtLaunchKernel", Kind.RUNTIME),
        ("hpu_op", "launch", Kind.RUNTIME),
        ("mlu_kernel", "MLUUnion1Kernel", Kind.KERNEL),
        ("mlu_memcpy", "Memcpy HtoD", Kind.COPY_H2D),
        ("GCU_MEMSET", "Memset (Device)", Kind.MEMSET),
        ("mlu_user_annotation", "ProfilerStep#3", Kind.DEVICE_ANNOTATION),
        ("mtia_ccp_events", "notify", Kind.KERNEL),
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
def test_category_and_name_decide_the_kind_of_an_event(category: str, name: str, kind: Kind) -> None:
    assert kind_of(category, name) is kind


@pytest.mark.parametrize(
    "category",
    ["Trace", "cpu_instant_event", "GPU_MEMCPY", "hip_driver", "mtia_ccp_events", "npu_driver", "external_correlation"],
)
def test_a_category_of_some_generation_is_known(category: str) -> None:
    assert is_known(category)


def test_an_unknown_category_is_named_in_the_health_and_degrades_nothing(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).event(ph="X", cat="quantum_op", name="b", ts=1, dur=1).trace(tmp_path)
    (note,) = trace.health.notes
    assert note.code == "unknown-categories"
    assert "quantum_op" in note.message
    assert not note.degrades


def test_events_without_a_category_are_reported_like_unknown_ones(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).event(ph="X", name="b", ts=1, dur=1).trace(tmp_path)
    assert [note.message for note in trace.health.notes] == ["Events of unknown categories were ignored: no category."]


@pytest.mark.parametrize("category", ["async", "async_cpu_to_gpu", "ac2g", "fwdbwd", "async_npu"])
def test_arrows_of_every_generation_are_no_events(category: str, tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 1, kernel=(2, 3))
    for phase in ("s", "f"):
        builder.event(ph=phase, id=1, cat=category, name=category, pid=1, tid=1, ts=1, bp="e")
    trace = builder.trace(tmp_path)
    assert (len(trace.events), trace.health.notes) == (2, ())


@pytest.mark.parametrize("key", ["External id", "external id"])
def test_both_spellings_of_the_external_id_are_one(key: str, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": {key: 7}}
    assert TraceBuilder().event(**event).trace(tmp_path).events.external_id.tolist() == [7]


def test_both_generations_give_the_same_table(tmp_path: Path) -> None:
    tables = []
    for generation in Generation:
        builder = TraceBuilder(generation).step(0, 0, 100).loader(0, 10).op("aten::mm", 10, 20)
        builder.launch(15, 18, kernel=(20, 60)).copy(60, 61, on_device=(62, 70)).memset(71, 72, on_device=(73, 74))
        events = builder.trace(tmp_path).events
        tables.append((events.kind.tolist(), events.start_ns.tolist(), events.external_id.tolist()))
    assert tables[0] == tables[1]
