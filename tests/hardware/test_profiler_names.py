"""The names that each accelerator's profiler writes, as data."""

import re
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor.hardware.profiler_names import Accelerator, accelerator_of, accelerators, kinds_by_category
from traceadvisor.model.events import Kind
from traceadvisor.parsing.columns.categories import kind_of


@pytest.mark.parametrize("one", accelerators(), ids=lambda one: one.name)
def test_an_accelerator_is_recognised_by_its_own_categories(one: Accelerator) -> None:
    assert accelerator_of({"cpu_op", "kernel", f"{one.prefixes[0]}_runtime"}) is one


def test_categories_that_many_accelerators_write_tell_none() -> None:
    assert accelerator_of({"cpu_op", "kernel", "gpu_memcpy", "user_annotation"}) is None


def test_no_two_accelerators_claim_a_category() -> None:
    prefixes = [prefix for one in accelerators() for prefix in one.prefixes]
    categories = [category for one in accelerators() for category in one.categories]
    assert len({*prefixes}) == len(prefixes)
    assert len({*categories}) == len(categories)


def test_hip_names_in_categories_of_cuda_are_rocm() -> None:
    assert accelerator_of({"cuda_runtime", "hipLaunchKernel"}) == accelerators()[0]


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("kernel", "gemm_kernel", Kind.KERNEL),
        ("gpu_memcpy", "Memcpy M2D (Memory -> Device)", Kind.COPY_H2D),
        ("gpu_memcpy", "Memcpy D2H (Device -> Host)", Kind.COPY_D2H),
        ("gpu_memcpy", "Memcpy D2D (Device -> Device)", Kind.COPY_OTHER),
        ("xpu_sync", "Event Wait", Kind.DEVICE_WAIT),
        ("mtia_ccp_events", "fc", Kind.KERNEL),
        ("mtia_insight", "power", Kind.OTHER),
        ("hpu_op", "compile", Kind.RUNTIME),
        ("kernel", "hcclAllReduce", Kind.COLLECTIVE),
    ],
)
def test_names_from_the_sources_of_profilers_have_a_kind(category: str, name: str, kind: Kind) -> None:
    assert kind_of(category, name) is kind


def test_every_type_of_ascends_tasks_has_a_kind() -> None:
    ascend = next(one for one in accelerators() if one.name == "Ascend")
    assert {kinds_by_category()[f"task {task}".lower()] for task in ascend.tasks} == {
        Kind.KERNEL,
        Kind.COPY_OTHER,
        Kind.DEVICE_WAIT,
        Kind.TRANSFER,
        Kind.OTHER,
    }


def test_work_without_a_launch_is_busy_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    builder.event(ph="X", cat="mtia_ccp_events", name="fc", pid=1, tid=2, ts=20, dur=30, args={"device": 0})
    builder.event(ph="X", cat="mtia_runtime", name="runFunction", pid=100, tid=100, ts=5, dur=1, args={})
    trace = builder.trace(tmp_path)
    assert trace.accelerator == "MTIA"
    assert trace.events.spans(trace.events.rows(Kind.KERNEL)).total_ns == 30_000


def test_patterns_of_calls_are_valid() -> None:
    for one in accelerators():
        for pattern in (getattr(one.calls, name) for name in one.calls.__dataclass_fields__):
            re.compile(pattern)
