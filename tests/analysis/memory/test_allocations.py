"""Requested bytes over time are exact: recorded events, and what the blocks at the end say of the time before."""

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from tests.few import few
from tests.memory.allocator import Device, random_devices, snapshot
from traceadvisor.analysis.memory.allocations import MemoryHistory, memory_history
from traceadvisor.model.memory_snapshot import Action
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot

FIGURES = {
    "cnn-old-format": (46, 8, 103),
    "lm-forward-float32": (42_006, 30_546, 42_045),
    "lm-forward-mixed": (41_702, 30_526, 41_728),
    "lm-inference-context-1024": (1_623, 1_623, 2_744),
    "lm-large-step-from-start": (52_069, 12_997, 52_264),
    "lm-train-context-128": (6_493, 4_859, 6_688),
    "lm-train-context-256": (6_513, 4_859, 8_682),
    "lm-train-context-512": (6_513, 4_860, 11_851),
}
"""MiB at the end, before the recording, and at the peak: the README of these files."""


@pytest.mark.parametrize("name", FIGURES)
def test_a_real_file_has_its_known_figures_and_every_block_has_its_allocation(name: str, shared_traces: Path) -> None:
    read = read_snapshot(shared_traces / "memory-snapshots" / f"{name}.pickle")
    history = memory_history(read, 0)
    found = (history.final_bytes, history.before_bytes, history.peak_bytes)
    assert tuple(round(one / 2**20) for one in found) == FIGURES[name]
    assert history.requested_bytes[-1] == history.final_bytes
    assert history.unmatched == 0
    assert (history.reserved_bytes >= history.requested_bytes).all()
    kept = history.allocations.block[history.allocations.block >= 0]
    assert sorted(kept.tolist()) == read.blocks.live(0).tolist()
    changes = [
        int(size) * {Action.ALLOC: 1, Action.FREE_COMPLETED: -1}.get(Action(action), 0)
        for action, size in zip(read.events.action.tolist(), read.events.size_bytes.tolist(), strict=True)
    ]
    assert history.before_bytes + sum(changes) == history.final_bytes


def _event(action: str, address: int, size: int = 100, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, **more}


def _freed(address: int, size: int = 100) -> list[dict[str, Any]]:
    return [_event("free_requested", address, size), _event("free_completed", address, size)]


def _block(address: int, requested: int = 100, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": 512, "requested_size": requested, "state": state, "frames": []}


def _history(
    tmp_path: Path, *traces: list[dict[str, Any]], blocks: tuple[dict[str, Any], ...] = (), device: int = 0
) -> MemoryHistory:
    """The history of a device; blocks lie in one segment of 10,000 bytes on it."""
    segment = {"device": device, "address": 0, "total_size": 10_000, "stream": 0, "blocks": list(blocks)}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": list(traces)}))
    return memory_history(read_snapshot(path), device)


def test_a_block_freed_without_an_allocation_was_there_before(tmp_path: Path) -> None:
    history = _history(tmp_path, [*_freed(1), _event("alloc", 1, 30)], blocks=(_block(1, 30), _block(2, 7)))
    assert history.requested_bytes.tolist() == [107, 107, 7, 37]
    assert history.allocations.start.tolist() == [0, 0, 3]
    assert history.unmatched == 0


def test_a_block_that_waits_for_another_stream_is_held(tmp_path: Path) -> None:
    trace = [_event("alloc", 1), _event("free_requested", 1), _event("free_requested", 2)]
    history = _history(
        tmp_path, trace, blocks=(_block(1, state="active_awaiting_free"), _block(2, state="active_pending_free"))
    )
    assert history.requested_bytes.tolist() == [100, 200, 200, 200]
    assert history.allocations.end.tolist() == [4, 4]


def test_the_peak_is_the_first_instant_with_the_most_bytes(tmp_path: Path) -> None:
    history = _history(tmp_path, [_event("alloc", 1), *_freed(1), _event("alloc", 1), *_freed(1)])
    assert (history.peak, history.peak_bytes) == (1, 100)
    assert history.alive(history.peak).tolist() == [0]


def test_each_device_has_its_own_bytes(tmp_path: Path) -> None:
    both = [_event("alloc", 1, 5)], [_event("alloc", 1, 30)]
    assert _history(tmp_path, *both, blocks=(_block(1, 30),), device=1).requested_bytes.tolist() == [0, 30]


def test_reserved_bytes_count_back_from_the_segments(tmp_path: Path) -> None:
    trace = [_event("segment_alloc", 0, 9_000), _event("segment_map", 0, 1_000), _event("segment_free", 99, 500)]
    assert _history(tmp_path, trace).reserved_bytes.tolist() == [500, 9_500, 10_500, 10_000]


@pytest.mark.parametrize(
    ("trace", "blocks"),
    [
        ([_event("alloc", 1)], ()),
        ([_event("alloc", 1)], (_block(1, 99),)),
        ([_event("alloc", 1), _event("alloc", 1), *_freed(1)], ()),
    ],
    ids=["an allocation without a block", "a block of another size", "an address given out twice"],
)
def test_what_does_not_fit_together_is_counted(
    trace: list[dict[str, Any]], blocks: tuple[dict[str, Any], ...], tmp_path: Path
) -> None:
    assert _history(tmp_path, trace, blocks=blocks).unmatched == 1


def test_a_snapshot_without_history_has_one_instant(tmp_path: Path) -> None:
    history = _history(tmp_path, [], blocks=(_block(1, 30),))
    assert (history.requested_bytes.tolist(), history.instants) == ([30], 1)


@pytest.mark.parametrize("seed", few(range(40), "traceadvisor/analysis/memory"))
def test_random_traces_of_the_allocator_match_its_own_books(seed: int, tmp_path: Path) -> None:
    devices = random_devices(seed)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot(*devices), protocol=2 + seed % 4))
    read = read_snapshot(path)
    for number, device in enumerate(devices):
        history = memory_history(read, number)
        assert history.unmatched == 0
        assert history.requested_bytes[-1] == history.final_bytes == device.requested
        assert history.reserved_bytes[-1] == device.reserved
        assert (history.requested_bytes >= 0).all()
        assert (history.reserved_bytes >= history.requested_bytes).all()
        ends = history.allocations
        alive_at_end = sorted(ends.address[ends.end == history.instants].tolist())
        assert alive_at_end == sorted(device.where)


@pytest.mark.parametrize("seed", range(10))
def test_a_history_that_has_wrapped_shows_the_same_levels_as_the_whole_one(seed: int, tmp_path: Path) -> None:
    def levels(most_events: int | None) -> list[int]:
        choice = random.Random(seed)
        device = Device(most_events=most_events)
        live: list[int] = []
        for _ in range(300):
            if live and choice.random() < 0.45:
                device.free(live.pop(choice.randrange(len(live))))
            else:
                live.append(device.alloc(choice.randrange(1, 1 << 22)))
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(pickle.dumps(snapshot(device)))
        history: list[int] = memory_history(read_snapshot(path), 0).requested_bytes.tolist()
        return history

    assert levels(100) == levels(None)[-101:]
