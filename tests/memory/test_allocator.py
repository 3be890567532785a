"""The model of the caching allocator keeps the books of a real one."""

import itertools

import pytest

from tests.memory.allocator import MIB, Device, DeviceFullError, random_devices, snapshot
from tests.memory.programs import convolutions, transformer


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_made_of_their_blocks(seed: int) -> None:
    taken = snapshot(*random_devices(seed))
    for segment in taken["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            assert block["requested_size"] <= block["size"]
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_are_never_both_free(seed: int) -> None:
    for device in random_devices(seed):
        for segment in device.segments:
            states = [block.state for block in segment.blocks]
            assert ("inactive", "inactive") not in itertools.pairwise(states)


def test_a_ring_keeps_the_latest_events_in_order() -> None:
    device = Device(most_events=4)
    for _ in range(5):
        device.free(device.alloc(1000))
    assert [event["time_us"] for event in device.trace()] == sorted(event["time_us"] for event in device.trace())
    assert len(device.trace()) == 4


def test_a_full_device_gives_its_cache_back_and_then_says_what_was_asked() -> None:
    device = Device(capacity=100 * MIB)
    device.free(device.alloc(60 * MIB))
    device.alloc(80 * MIB)
    with pytest.raises(DeviceFullError):
        device.alloc(40 * MIB)
    last = device.trace()[-1]
    assert (last["action"], last["size"], last["device_free"]) == ("oom", 40 * MIB, 20 * MIB)
    assert "segment_free" in [event["action"] for event in device.trace()]


def test_a_training_returns_to_weights_gradients_and_states() -> None:
    for training in (convolutions(), transformer(), convolutions(states=0), transformer(states=1, foreach=True)):
        training.build().steps(2)
        weights = sum(layer.weights for layer in training.layers)
        assert training.device.requested == weights * (2 + training.states)
