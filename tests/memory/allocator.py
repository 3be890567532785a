"""A model of torch's caching allocator that writes the snapshots of a real one, for tests.

It follows CUDACachingAllocator.cpp: sizes rounded to 512 bytes, a pool of small blocks, segments of 2 and 20 MiB, best
fit, splits, merged neighbours, blocks that wait for another stream, and a history in a ring.
"""

import bisect
import random
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MIB = 1 << 20
ROUND = 512
SMALL_SIZE = MIB
SMALL_SEGMENT, LARGE_SEGMENT, MIN_LARGE, ROUND_LARGE = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB

Frame: TypeAlias = dict[str, Any]
Stack: TypeAlias = tuple[Frame, ...]


class DeviceFullError(Exception):
    """The device has no room."""


def frame(name: str, filename: str = "project/train.py", line: int = 1) -> Frame:
    """A frame as a snapshot has it."""
    return {"name": name, "filename": filename, "line": line}


@dataclass(slots=True)
class Block:
    """A piece of a segment."""

    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    stack: Stack = ()


@dataclass(slots=True)
class Segment:
    """Memory that came from the driver in one call."""

    address: int
    size: int
    stream: int
    is_small: bool
    blocks: list[Block]
    stack: Stack = ()


@dataclass(slots=True)
class Device:
    """One device's allocator and history."""

    capacity: int = 80 << 30
    most_events: int | None = None
    """Entries of the ring; None for an unbounded history."""

    is_recording: bool = True
    repeats: bool = False
    """Whether the stacks of allocations alone are recorded, which torch then repeats where they end."""

    segments: list[Segment] = field(default_factory=list)
    ring: list[dict[str, Any]] = field(default_factory=list)
    oldest: int = 0
    next_address: int = 0x7F00_0000_0000
    time_us: int = 1_700_000_000_000_000
    where: dict[int, tuple[Segment, Block]] = field(default_factory=dict)

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(one.size for one in self.segments)

    @property
    def requested(self) -> int:
        """Bytes that live blocks were asked for."""
        return sum(block.requested for _, block in self.where.values())

    def alloc(self, size: int, stack: Stack = (), stream: int = 0) -> int:
        """Allocate; returns the address.

        Raises:
            DeviceFullError: no segment fits, also without the cached ones.
        """
        rounded = max(ROUND, -(-size // ROUND) * ROUND)
        small = rounded <= SMALL_SIZE
        found = self._best(rounded, stream, is_small=small) or self._new_segment(rounded, stack, stream, is_small=small)
        segment, block = found
        rest = block.size - rounded
        if rest >= ROUND if small else rest > SMALL_SIZE:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.address + rounded, rest))
            block.size = rounded
        block.requested, block.state, block.stack = size, "active_allocated", stack
        self.where[block.address] = found
        self._event("alloc", block.address, size, stream, stack)
        return block.address

    def free(self, address: int, stack: Stack = (), *, waits: bool = False) -> None:
        """Free; with ``waits`` another stream still uses the block until :meth:`complete`."""
        segment, block = self.where[address]
        stack = block.stack if self.repeats else stack
        self._event("free_requested", address, block.requested, segment.stream, stack)
        block.state = "active_awaiting_free"
        if not waits:
            self.complete(address, stack)

    def complete(self, address: int, stack: Stack = ()) -> None:
        """The other stream has finished with a freed block."""
        segment, block = self.where.pop(address)
        self._event("free_completed", address, block.requested, segment.stream, stack)
        block.state, block.requested, block.stack = "inactive", 0, ()
        at = segment.blocks.index(block)
        for first in (at, at - 1):
            pair = segment.blocks[max(first, 0) : first + 2]
            if len(pair) == 2 and all(one.state == "inactive" for one in pair):
                pair[0].size += pair[1].size
                segment.blocks.remove(pair[1])

    def empty_cache(self) -> None:
        """Return segments without a live block to the driver."""
        for segment in list(self.segments):
            if all(block.state == "inactive" for block in segment.blocks):
                self.segments.remove(segment)
                self._event("segment_free", segment.address, segment.size, segment.stream, ())

    def trace(self) -> list[dict[str, Any]]:
        """The recorded events, the oldest first, as torch unrolls its ring."""
        return self.ring[self.oldest :] + self.ring[: self.oldest]

    def _best(self, size: int, stream: int, *, is_small: bool) -> tuple[Segment, Block] | None:
        fitting = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            if segment.stream == stream and segment.is_small == is_small
            for block in segment.blocks
            if block.state == "inactive" and block.size >= size
        ]
        return min(fitting, key=lambda one: one[:2])[2:] if fitting else None

    def _new_segment(self, size: int, stack: Stack, stream: int, *, is_small: bool) -> tuple[Segment, Block]:
        if is_small:
            total = SMALL_SEGMENT
        else:
            total = LARGE_SEGMENT if size < MIN_LARGE else -(-size // ROUND_LARGE) * ROUND_LARGE
        if self.reserved + total > self.capacity:
            self.empty_cache()
        if self.reserved + total > self.capacity:
            oom = {"action": "oom", "device_free": self.capacity - self.reserved, "size": size, "stream": stream}
            self._write(oom | {"time_us": self.time_us, "frames": list(stack)})
            raise DeviceFullError
        block = Block(self.next_address, total)
        segment = Segment(self.next_address, total, stream, is_small, [block], stack)
        self.next_address += -(-total // ROUND_LARGE) * ROUND_LARGE * 2
        bisect.insort(self.segments, segment, key=lambda one: one.address)
        self._event("segment_alloc", segment.address, total, stream, stack)
        return segment, block

    def _event(self, action: str, address: int, size: int, stream: int, stack: Stack) -> None:
        self.time_us += 10
        entry = {"action": action, "addr": address, "size": size, "stream": stream, "time_us": self.time_us}
        self._write(entry | {"frames": list(stack), "compile_context": "N/A", "user_metadata": ""})

    def _write(self, entry: dict[str, Any]) -> None:
        if not self.is_recording:
            return
        if self.most_events is None or len(self.ring) < self.most_events:
            self.ring.append(entry)
        else:
            self.ring[self.oldest] = entry
            self.oldest = (self.oldest + 1) % self.most_events


def snapshot(*devices: Device, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """What ``torch.cuda.memory._snapshot`` returns for these devices."""
    segments = [
        {
            "device": index,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(one.size for one in segment.blocks if one.state == "active_allocated"),
            "active_size": sum(one.size for one in segment.blocks if one.state != "inactive"),
            "requested_size": sum(one.requested for one in segment.blocks),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": list(segment.stack),
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": block.state,
                    "frames": list(block.stack),
                }
                for block in segment.blocks
            ],
        }
        for index, device in enumerate(devices)
        for segment in device.segments
    ]
    return {
        "segments": segments,
        "device_traces": [device.trace() for device in devices],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        | (settings or {}),
        "external_annotations": [],
    }


def random_devices(seed: int, *, devices: int = 2, events: int = 400) -> list[Device]:
    """Devices after random allocations: some before the recording, several streams, small rings that have wrapped."""
    choice = random.Random(seed)
    return [_random_device(choice, events) for _ in range(devices)]


def _random_device(choice: random.Random, events: int) -> Device:
    device = Device(most_events=choice.choice([None, 50, 500]), is_recording=False)
    begin = choice.randrange(events)
    live: list[int] = []
    waiting: list[int] = []
    for index in range(events):
        device.is_recording = index >= begin
        stack = (frame(f"line{choice.randrange(5)}", line=choice.randrange(9)),) * (choice.random() < 0.9)
        match choice.random():
            case draw if draw < 0.5 or not live:
                size = int(2 ** choice.uniform(0, 25))
                live.append(device.alloc(size, stack, choice.choice([0, 0, 7])))
            case draw if draw < 0.55:
                waiting.append(live.pop(choice.randrange(len(live))))
                device.free(waiting[-1], stack, waits=True)
            case draw if draw < 0.6 and waiting:
                device.complete(waiting.pop())
            case draw if draw < 0.62:
                device.empty_cache()
            case _:
                device.free(live.pop(choice.randrange(len(live))), stack)
    return device
