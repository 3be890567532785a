"""Idle stretches of a recording whose truth is known: by what they are ended, and what is to blame for them."""

from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from random import Random

from tests.analysis.known_host import AUTOGRAD, TRAINING, HostSide, Piece, Room
from tests.spelling import DeviceEvent, Role
from traceadvisor.model.breakdown import Category
from traceadvisor.model.steps import StepSource

CALL_OF = {
    Role.KERNEL: Role.LAUNCH,
    Role.COLLECTIVE: Role.LAUNCH,
    Role.H2D: Role.COPY_CALL,
    Role.OTHER_COPY: Role.COPY_CALL,
    Role.MEMSET: Role.MEMSET_CALL,
}


class Ending(Enum):
    """How the recording ends."""

    PLAINLY = auto()
    WITH_A_SYNCHRONISE = auto()
    """The profiler's own, at stop."""

    WITHOUT_LAUNCHES = auto()
    """A last mark in which nothing was launched."""

    WITHOUT_RECORDS = auto()
    """A last mark whose kernels are missing."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What kind of recording it is."""

    source: StepSource = StepSource.MARKS
    steps: int = 1
    with_loader: bool = True
    with_calls: bool = True
    """Whether runtime calls were recorded at all."""

    with_carry_in: bool = False
    may_lag: bool = False
    marked_elsewhere: bool = False
    """Steps are marked by a thread that runs no operators."""

    two_devices: bool = False
    ending: Ending = Ending.PLAINLY


class Idleness:
    """Decides why the device idles and makes the host look like it."""

    def __init__(self, random: Random, traits: Traits, host: HostSide) -> None:
        self.truth: list[tuple[int, int, Category]] = []
        """What idle time goes into."""

        self._random = random
        self._traits = traits
        self._host = host

    def queued(self, room: Room) -> None:
        """The next operation had been launched; the training thread may have waited for data all the same."""
        cuts = {self._random.randint(room.dry, room.end) for _ in range(2)}
        for start, end in pairwise(sorted({room.dry, room.end, *cuts})):
            waits = self._traits.with_loader and self._random.random() < 0.3
            if waits:
                self._host.wait_for_data(start, end)
            else:
                self._host.whatever(start, end)
            self.truth.append((start, end, Category.DATA_WAIT if waits else Category.IDLE_DEVICE))

    def late(self, work: DeviceEvent, room: Room, mark_start: int) -> int:
        """The launch call returns after the device ran dry; then the operation starts, at once or after a while.

        Returns:
            When the call began: not before ``mark_start``.
        """
        thread = self._random.choice((TRAINING, AUTOGRAD))
        returned = self._random.randint(max(room.dry + 1, mark_start), room.latest)
        latest = self._random.choice((room.end, max(room.dry, mark_start)))
        begun = self._random.randint(max(room.earliest, mark_start), min(returned, latest))
        holds_dry = begun <= room.dry
        blocks = self.call(work, thread, begun, returned, may_block=not holds_dry or room.dry > 0)
        blocked = (blocks and holds_dry) or self._is_blocked(room.dry)
        inside = min(returned, room.end)
        pieces = self._host.pieces(room.dry, inside, begun if begun < returned else None)
        if blocked and not (blocks and holds_dry):
            self._host.block(thread, pieces, room)
        self._place(pieces, thread, room, blocked=blocked)
        if inside < room.end:
            self._latency(inside, room.end, pieces[-1].cause.category(blocked=blocked))
        return begun

    def _latency(self, start: int, end: int, category: Category) -> None:
        """From the call's return to the operation's start: what held when it returned, or a wait for data again."""
        waits_from = self._random.randint(start, end) if self._traits.with_loader else end
        self._host.whatever(start, waits_from)
        self.truth.append((start, waits_from, category))
        if waits_from < end:
            self._host.wait_for_data(waits_from, end)
            self.truth.append((waits_from, end, Category.DATA_WAIT))

    def without_launch(self, room: Room, *, stopping: bool = False) -> None:
        """No launch tells why the device idled: the training thread does, and perhaps the profiler that stops."""
        start, end = self._stop(room) if stopping else (room.dry, room.end)
        pieces = self._host.pieces(start, end, None)
        around = Room(room.earliest if start == room.dry else start, room.dry, room.end, room.latest)
        blocked = self._is_blocked(room.dry) and start == room.dry
        if blocked:
            self._host.block(TRAINING, pieces, Room(room.earliest, room.dry, end, end))
        self._place(pieces, TRAINING, around, blocked=blocked)

    def _stop(self, room: Room) -> tuple[int, int]:
        """The profiler stops at the beginning or the end of a stretch and waits for the device; returns what is left.

        Its wait is the last call that concerns the device, and it is no wait of the user's.
        """
        cut = self._random.randint(room.dry + 1, room.end - 1)
        first = self._host.last_launch + 1
        if first <= room.dry and self._random.random() < 0.5:
            start, end, rest = self._random.randint(max(first, room.earliest), room.dry), cut, (cut, room.end)
        else:
            start, end, rest = cut, room.end, (room.dry, cut)
        self._host.add(Role.DEVICE_SYNC, self._random.choice((TRAINING, AUTOGRAD)), start, end)
        self.truth.append((max(start, room.dry), end, Category.IDLE_PROFILER))
        return rest

    def _place(self, pieces: list[Piece], thread: str, room: Room, *, blocked: bool) -> None:
        for piece in pieces:
            self._host.make(piece, thread, room)
            self.truth.append((piece.start, piece.end, piece.cause.category(blocked=blocked)))

    def _is_blocked(self, dry: int) -> bool:
        """A device that has not run yet cannot be waited for."""
        return self._traits.with_calls and dry > 0 and self._random.random() < 0.4

    def call(self, work: DeviceEvent, thread: str, start: int, end: int, *, may_block: bool) -> bool:
        """The call that launched some work; returns whether it blocked the host."""
        role, blocks = CALL_OF[work.role], False
        if role is Role.COPY_CALL and may_block and self._random.random() < 0.6:
            blocks = True
            if work.role is Role.H2D and self._random.random() < 0.5:
                work.role = Role.PAGEABLE_H2D
            else:
                role = Role.BLOCKING_COPY_CALL
        self._host.add(role, thread, start, end, key=work.key)
        return blocks
