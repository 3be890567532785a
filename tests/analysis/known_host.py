"""The host's side of a recording whose truth is known: what it does while the device idles, and what it does beside.

Each piece of an idle stretch has a cause. What makes it so is placed over it; beside it may stand what has lower
precedence, happens on another thread, or explains nothing.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from random import Random

from tests.spelling import HostEvent, Role
from traceadvisor.model.breakdown import Category

TRAINING, AUTOGRAD, OTHER, MARKING = "training", "autograd", "other", "marking"
"""Threads: two that launch, one that only disturbs, and one that does nothing but mark steps."""

WORKING = (TRAINING, AUTOGRAD, OTHER)

HARMLESS = (Role.ANNOTATION, Role.DRIVER_OVERHEAD, Role.PYTHON, Role.HOST_COLLECTIVE)
"""What explains nothing on any thread."""

GIVES_WORK = frozenset({Role.LAUNCH, Role.COPY_CALL, Role.BLOCKING_COPY_CALL, Role.MEMSET_CALL})

CALLS = frozenset({Role.CALL, Role.ALLOCATE, Role.SYNC})


class Cause(Enum):
    """What the host does while the device idles; first what comes first where several hold."""

    DATA_WAIT = auto()
    PROFILER = auto()
    ALLOCATOR = auto()
    ACTIVE = auto()
    """In operators or calls: sync or launch, by whether the host was blocked when the device ran dry."""

    NOTHING = auto()

    def category(self, *, blocked: bool) -> Category:
        if self is Cause.ACTIVE:
            return Category.IDLE_SYNC if blocked else Category.IDLE_LAUNCH
        return _CATEGORY[self]


_CATEGORY = {
    Cause.DATA_WAIT: Category.DATA_WAIT,
    Cause.PROFILER: Category.IDLE_PROFILER,
    Cause.ALLOCATOR: Category.IDLE_ALLOCATOR,
    Cause.NOTHING: Category.IDLE_HOST,
}
_MAKES = {
    Cause.DATA_WAIT: (Role.LOADER,),
    Cause.PROFILER: (Role.OVERHEAD,),
    Cause.ALLOCATOR: (Role.ALLOCATE,),
    Cause.ACTIVE: (Role.OPERATOR, Role.BACKWARD, Role.CALL, Role.SYNC),
    Cause.NOTHING: (),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an idle stretch with one cause."""

    start: int
    end: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Room:
    """How far events may reach into what surrounds an idle stretch: the device is busy there."""

    earliest: int
    dry: int
    end: int
    latest: int


class HostSide:
    """Collects the host's events."""

    def __init__(self, random: Random, *, with_loader: bool, with_calls: bool) -> None:
        self.events: list[HostEvent] = []
        self._random = random
        self._with_loader = with_loader
        self._with_calls = with_calls

    def add(self, role: Role, thread: str, start: int, end: int, *, key: int | None = None) -> None:
        self.events.append(HostEvent(role, thread, start, end, key))

    def can(self, role: Role) -> bool:
        """Whether such events are recorded at all."""
        return not (role is Role.LOADER and not self._with_loader) and not (role in CALLS and not self._with_calls)

    @staticmethod
    def may_run(role: Role, thread: str) -> bool:
        """Whether a thread may have such events: threads wait for the backward passes of others."""
        return role is not Role.BACKWARD or thread == TRAINING

    @property
    def most_in_operators(self) -> int:
        """How long the busiest thread is in operators, counted as often as they overlap."""
        of_thread = Counter[str]()
        for event in self.events:
            of_thread[event.thread] += (event.end - event.start) * (event.role in {Role.OPERATOR, Role.BACKWARD})
        return max(of_thread.values())

    @property
    def last_launch(self) -> int:
        """When the last call began that gave the device work."""
        return max((event.start for event in self.events if event.role in GIVES_WORK), default=-1)

    # -- while the device is busy -----------------------------------------------------------------------------------

    def as_it_likes(self, start: int, end: int) -> None:
        """Anything within a busy stretch."""
        roles = [*HARMLESS, *(role for made in _MAKES.values() for role in made)]
        self._some([(role, thread) for role in roles for thread in WORKING], start, end)

    # -- while it is idle ---------------------------------------------------------------------------------------------

    def pieces(self, start: int, end: int, called_from: int | None) -> list[Piece]:
        """A stretch in pieces; from some instant on the launching thread is inside a call and cannot do nothing."""
        cuts = {self._random.randint(start, end) for _ in range(self._random.randint(0, 2))}
        if called_from is not None and start < called_from < end:
            cuts.add(called_from)
        possible = [cause for cause in Cause if not _MAKES[cause] or any(map(self.can, _MAKES[cause]))]
        pieces: list[Piece] = []
        for left, right in pairwise(sorted({start, end, *cuts})):
            is_in_call = called_from is not None and left >= called_from
            causes = [cause for cause in possible if not (is_in_call and cause is Cause.NOTHING)]
            pieces.append(Piece(left, right, self._random.choice(causes)))
        return pieces

    def make(self, piece: Piece, thread: str, room: Room) -> None:
        """Place what gives a piece its cause on the launching thread, and what does not change it."""
        makers = [role for role in _MAKES[piece.cause] if self.can(role)]
        if makers:
            self._cover(makers, self._thread_of(piece.cause, thread), piece, room)
        lower = [role for cause in Cause if cause.value > piece.cause.value for role in _MAKES[cause]]
        here = [(role, any_thread) for role in lower for any_thread in WORKING if piece.cause is not Cause.NOTHING]
        self._decoys(here, piece.start, piece.end, thread, room.dry)

    def whatever(self, start: int, end: int) -> None:
        """What does not matter where the host is not to blame: all but the training thread's loading."""
        roles = [role for cause in Cause if cause is not Cause.DATA_WAIT for role in _MAKES[cause]]
        self._decoys([(role, thread) for role in roles for thread in WORKING], start, end, TRAINING, start - 1)

    def wait_for_data(self, start: int, end: int) -> None:
        self.add(Role.LOADER, TRAINING, start, end)

    def block(self, thread: str, pieces: list[Piece], room: Room) -> None:
        """The host waits for the device when it runs dry, on the launching thread or on another one."""
        busy = 0
        while busy < len(pieces) and pieces[busy].cause is not Cause.NOTHING:
            busy += 1
        own = [(thread, pieces[busy - 1].end)] if busy else []
        others = [(other, room.end) for other in WORKING if other != thread]
        waiting, latest = self._random.choice([*own, *others])
        start = self._random.randint(room.earliest, room.dry)
        self.add(Role.SYNC, waiting, start, self._random.randint(room.dry + 1, latest))

    def _thread_of(self, cause: Cause, launching: str) -> str:
        if cause is Cause.DATA_WAIT:
            return TRAINING
        return self._random.choice(WORKING) if cause is Cause.PROFILER else launching

    def _cover(self, makers: list[Role], thread: str, piece: Piece, room: Room) -> None:
        """One event over a piece, or two that overlap or touch."""
        for start, end in self._overlapping(piece):
            roles = [
                role for role in makers if (role is not Role.SYNC or start > room.dry) and self.may_run(role, thread)
            ]
            role = self._random.choice(roles)
            reaches_back = start == room.dry and role is not Role.SYNC
            begin = self._random.randint(room.earliest, start) if reaches_back else start
            self.add(role, thread, begin, self._random.randint(end, room.latest) if end == room.end else end)

    def _overlapping(self, piece: Piece) -> Iterator[tuple[int, int]]:
        if self._random.random() < 0.6:
            yield piece.start, piece.end
        else:
            first, last = sorted(self._random.randint(piece.start, piece.end) for _ in range(2))
            yield piece.start, last
            yield first, piece.end

    def _decoys(self, here: list[tuple[Role, str]], start: int, end: int, thread: str, dry: int) -> None:
        """Events that do not matter: some that may stand here, some harmless ones, some on threads that launch nothing.

        None of them blocks the host at the instant the device runs dry.
        """
        elsewhere = [
            (role, other) for role in (Role.OPERATOR, Role.CALL, Role.ALLOCATE, Role.SYNC) for other in WORKING
            if other != thread
        ]  # fmt: skip
        loading = [(Role.LOADER, other) for other in WORKING if other != TRAINING]
        harmless = [(role, other) for role in HARMLESS for other in WORKING]
        options = [*here, *elsewhere, *loading, *harmless]
        after_dry = max(start, dry + 1)
        self._some([option for option in options if option[0] is not Role.SYNC], start, end)
        self._some([option for option in options if option[0] is Role.SYNC], after_dry, max(end, after_dry))

    def _some(self, options: list[tuple[Role, str]], start: int, end: int) -> None:
        possible = [option for option in options if self.can(option[0]) and self.may_run(*option)]
        for _ in range(self._random.choice((0, 0, 1, 3)) if possible else 0):
            role, thread = self._random.choice(possible)
            first, last = sorted(self._random.randint(start, end) for _ in range(2))
            self.add(role, thread, first, last)
