"""Loading on a machine whose cores other programs use."""

from dataclasses import fields
from typing import Any, TypeVar, cast

import pytest

from traceadvisor.analysis.data.loading import Loading, worker_curve
from traceadvisor.analysis.data.worker_curve import Crowding, WorkerCurve
from traceadvisor.model.run import RunSettings, TimedBatch
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry_window import NodeWindow, ProcessWindow, TelemetryWindow

MS = 1_000_000


Window = TypeVar("Window")


def _window(kind: type[Window], **known: Any) -> Window:
    """A window of telemetry with these figures; no other was sampled."""
    return kind(**dict.fromkeys(field.name for field in fields(cast("Any", kind))) | known)


def _curve(
    *,
    cpu_ms: float = 10,
    wait_ms: float = 40,
    core_wait_ms: float = 14,
    workers: int = 1,
    cpu_share: float = 1.0,
    load: float | None = 5.0,
    own: float = 0.4,
) -> WorkerCurve:
    """One worker, or none, on two cores; the rest of the step takes 10 ms."""
    batch_ns = round((cpu_ms + wait_ms + core_wait_ms) * MS)
    batches = [
        TimedBatch(
            0 if workers else None, number * batch_ns, batch_ns, round(cpu_ms * MS), 0, 0, round(core_wait_ms * MS),
            round(cpu_ms * MS),
        )
        for number in range(20)
    ]  # fmt: skip
    telemetry = TelemetryWindow(
        (),
        _window(NodeWindow, mean_cpu_share=cpu_share, mean_load=load),
        _window(ProcessWindow, mean_cpu_cores=own, workers=()),
    )
    step_ns = batch_ns + 10 * MS if not workers else batch_ns
    loading = Loading(
        step_ns=step_ns, wait_ns=step_ns - 10 * MS, loader_ns=step_ns - 10 * MS, least_rest_ns=10 * MS,
        fetches=1, workers=workers, has_device=False, settings=RunSettings(), telemetry=telemetry, batches=batches,
        undisturbed=SpanSet.empty(), host_cores=2,
    )  # fmt: skip
    found = worker_curve(loading)
    assert found is not None
    return found


def test_other_programs_delay_a_waiting_worker_whatever_the_number_of_workers() -> None:
    curve = _curve(cpu_share=0.8, own=0.4)  # others use 1.2 of 1.6 cores: three quarters of the core waits
    assert curve.cost.delay_ns == pytest.approx(10.5 * MS)
    assert curve.at(2).step_ns == pytest.approx((10 + 40 + 10.5) * MS / 2, rel=0.01)
    assert curve.at(2, crowding=Crowding.NONE).step_ns == pytest.approx((10 + 40) * MS / 2, rel=0.01)


def test_an_idle_machine_delays_nothing() -> None:
    curve = _curve(core_wait_ms=1, cpu_share=0.2, own=0.4, load=1.0)
    assert curve.cost.delay_ns == 0
    assert curve.loop.cores == 2


def test_a_run_gets_its_share_by_the_load_where_all_cores_are_used() -> None:
    assert _curve(load=5.0).loop.cores == pytest.approx(2 * 2 / (2 + 4))
    assert _curve(load=15.0).loop.cores == pytest.approx(0.4)  # as many as it used


def test_without_measured_waits_for_cores_a_run_is_promised_one() -> None:
    assert _curve(core_wait_ms=0).loop.cores == pytest.approx(1.0)


def test_a_loader_that_computes_is_not_delayed_twice() -> None:
    curve = _curve(cpu_ms=40, wait_ms=0, core_wait_ms=40)
    assert curve.cost.delay_ns == 0
    assert curve.loop.cores == pytest.approx(1.0)
