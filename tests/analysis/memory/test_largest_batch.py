from dataclasses import replace

import pytest

from tests.memory.programs import Layer, Training
from tests.rules.mem.snapshots import facts
from traceadvisor.analysis.memory.device_memory import DeviceMemory, LargestBatch, largest_batch

# Of 1000 bytes, tensors use 300 at the peak and 60 at the emptiest instant; 350 are held in all.
MEMORY = DeviceMemory(1000, 300, 60, 350.0)
MIB = 1 << 20


def test_without_recorded_allocations_all_above_the_emptiest_instant_grows() -> None:
    assert largest_batch(MEMORY, None, 10, 0.8) == LargestBatch(24.0, 28)


@pytest.mark.parametrize("tensors", [None, 0])
@pytest.mark.parametrize("reserved", [None, 0])
def test_without_recorded_tensors_all_held_memory_grows(tensors: int | None, reserved: int | None) -> None:
    memory = DeviceMemory(1000, tensors, tensors, 350.0, reserved)
    assert largest_batch(memory, None, 10, 0.8) == LargestBatch(35.0, 22)


def test_gaps_in_reserved_memory_grow_with_the_tensors() -> None:
    # Of 800 that may be held, 20 are outside of 330 that torch reserves for 300: room for 780 / 1.1.
    assert largest_batch(replace(MEMORY, reserved_bytes=330), None, 10, 0.8).samples == int((780 / 1.1 - 60) / 24)


def test_samples_grow_where_the_peak_will_be_and_weights_stay() -> None:
    # Batch 2 peaks in the optimizer, with five tensors of 64 MiB. A larger one peaks in the backward pass, with four of
    # them, and with 2 MiB a sample: what was saved, and its gradient.
    training = Training((Layer(64 * MIB, {"relu": 2 * MIB}),), states=2)
    recorded = facts(training.build().steps(3))
    peak = recorded.history.peak_bytes
    memory = DeviceMemory(1000 * MIB, peak, 256 * MIB, float(peak))
    found = largest_batch(memory, recorded, 2, 0.8)
    assert found.samples == pytest.approx((800 - 4 * 64) / 2, rel=0.01)
    assert found.per_sample_bytes == pytest.approx(2 * MIB)
