from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import DeviceMemory, LargestBatch, PeakParts, largest_batch

# Of 1000 bytes, tensors use 300 at the peak and 60 at the emptiest instant; 350 are held in all.
MEMORY = DeviceMemory(1000, 300, 60, 350.0)


def test_memory_that_a_step_adds_grows_with_the_batch() -> None:
    # Of 800 that may be held, 50 are not the tensors' and 100 are state: 650 for samples of 20 each.
    parts = PeakParts(state_bytes=100, activations_bytes=100, rest_bytes=100)
    assert largest_batch(MEMORY, parts, 10, 0.8) == LargestBatch(20.0, 32, 55)


def test_a_larger_batch_fits_if_only_activations_grow() -> None:
    # 200 of the peak stay, so that 550 are left for samples of 10 each.
    parts = PeakParts(state_bytes=100, activations_bytes=100, rest_bytes=100)
    assert largest_batch(MEMORY, parts, 10, 0.8).samples_by_activations == 55


def test_without_the_parts_of_a_step_the_emptiest_instant_stands_for_its_state() -> None:
    assert largest_batch(MEMORY, None, 10, 0.8) == LargestBatch(24.0, 28, None)


def test_without_recorded_tensors_all_held_memory_grows() -> None:
    assert largest_batch(DeviceMemory(1000, None, None, 350.0), None, 10, 0.8) == LargestBatch(35.0, 22, None)
