"""What the profiler adds to each event, as data."""

from __future__ import annotations

import pytest

from traceadvisor.hardware.profiler_overhead import measured_overheads, overhead_of


@pytest.mark.parametrize(
    ("torch", "measured"),
    [("2.15.0+cu132", "2.15.0"), ("2.16.1", "2.15.0"), ("2.14.0", "2.13.0"), ("1.9", "2.13.0"), ("", "2.13.0")],
)
def test_a_version_has_the_costs_of_the_newest_measured_one_before_it(torch: str, measured: str) -> None:
    assert overhead_of(torch).torch == measured


def test_only_stacks_record_python_calls_and_only_memory_records_allocations() -> None:
    for one in measured_overheads():
        with_calls = [name for name in ("default", "shapes", "memory", "stacks", "all") if _has_calls(one, name)]
        assert with_calls == ["stacks", "all"]
        assert one.default.allocation_ns is None
        assert one.memory.allocation_ns is not None


def _has_calls(one: object, name: str) -> bool:
    costs = getattr(one, name)
    assert (costs.python_call_ns is None) == (costs.builtin_call_ns is None)
    return costs.python_call_ns is not None


def test_each_cost_is_a_plausible_part_of_a_microsecond_or_a_few() -> None:
    for one in measured_overheads():
        for costs in (one.default, one.shapes, one.memory, one.stacks, one.all):
            known = (costs.operator_ns, costs.python_call_ns, costs.builtin_call_ns, costs.allocation_ns)
            assert all(50 < cost < 5000 for cost in known if cost is not None)
