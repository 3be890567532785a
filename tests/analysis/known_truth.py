"""Recordings laid out so that it is known what each nanosecond of the device is spent on.

Nothing is derived here. First it is decided what the device does, stretch after stretch, and for each idle stretch why;
then events are placed so that this is what the definition says of them, with others among them that must not matter.
What a recording should say is what was decided.

- A busy stretch has a winner, which covers it; what has lower precedence may run beside it on other streams.
- An idle stretch is ended by an operation that was launched before it began (queued), within it or later (late), or
  whose launch was not recorded. Its pieces have a cause each.
- Where the device is busy the host does as it likes. There the launch calls stand that must not matter themselves.
- The recording is cut into sections: what was launched before the first step, the steps, what lies between and after.
  A section's host side, the mark, ends where its device side, the window, does; or it ends earlier, while the device is
  still busy, and then the device lags.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from tests.analysis.known_host import AUTOGRAD, TRAINING, HostSide, Room
from tests.analysis.known_idleness import Ending, Idleness, Traits
from tests.spelling import DeviceEvent, Role
from traceadvisor.model.breakdown import Category
from traceadvisor.model.steps import StepSource

WINNERS: Mapping[Category, tuple[Role, ...]] = {
    Category.KERNEL: (Role.KERNEL,),
    Category.COMMUNICATION: (Role.COLLECTIVE,),
    Category.H2D_COPY: (Role.H2D,),
    Category.OTHER_COPY: (Role.OTHER_COPY, Role.MEMSET),
}
"""What the device can do, highest precedence first."""

MOST = 40
"""Of a stretch, in ticks."""


class Kind(Enum):
    """What a section is."""

    BEFORE = auto()
    STEP = auto()
    BETWEEN = auto()
    AFTER = auto()


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of the recording, as the device and as the host see it."""

    kind: Kind
    start: int
    end: int
    mark_start: int
    mark_end: int


class Layout:
    """One recording, laid out from its beginning to its end."""

    def __init__(self, random: Random, traits: Traits) -> None:
        self.traits = traits
        self.host = HostSide(random, with_loader=traits.with_loader, with_calls=traits.with_calls)
        self.device: list[DeviceEvent] = []
        self.sections: list[Section] = []
        self.idleness = Idleness(random, traits, self.host)
        self.running: list[tuple[int, int, Category]] = []
        """What busy time goes into; idle time stands in :attr:`idleness`."""

        self.carried: list[DeviceEvent] = []
        """Work whose launch was not recorded, or stands before the first step."""

        self.now = 0
        self._random = random
        self._kind = Kind.BEFORE
        self._dry: int | None = None
        """Since when the device idles."""

        self._busy: list[tuple[int, int]] = []
        self._mark_start = 0
        self._latest_call = -1
        """Of the calls of this section that cannot be moved, where the last one starts."""

        self._unplaced: list[tuple[DeviceEvent, int | None]] = []
        """Work of this section whose launch call is yet to be placed, and when the call must have returned."""

        self._lay_out()

    @property
    def steps(self) -> list[Section]:
        return [section for section in self.sections if section.kind is Kind.STEP]

    # -- sections -------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        traits, random = self.traits, self._random
        if traits.with_carry_in:
            self._section(Kind.BEFORE, before_step=True)
        for number in range(traits.steps):
            is_last = number == traits.steps - 1
            pause = not is_last and traits.source is StepSource.MARKS and random.random() < 0.2
            self._section(Kind.STEP, before_step=not pause and not is_last)
            if pause:
                self._section(Kind.BETWEEN, before_step=True)
        if traits.ending is not Ending.WITH_A_SYNCHRONISE and random.random() < 0.3:
            self._section(Kind.AFTER, before_step=False)
        self._add_what_belongs_elsewhere()
        self._finish()

    def _section(self, kind: Kind, *, before_step: bool) -> None:
        self._kind, start, launched = kind, self.now, False
        for position in range(self._random.randint(1, 3)):
            launched = self.traits.with_calls and (
                (kind is Kind.STEP and position == 0) or self._random.random() < (0.85 if kind is Kind.STEP else 0.6)
            )
            self._maybe_idle(launched=launched)
            self._run(launched=launched)
        if self._is_cut_last(kind) or self._random.random() < (0.1 if self.traits.may_lag else 0.3):
            self._idle(2)
        can_lag = self.traits.may_lag and before_step and self._dry is None and kind is not Kind.BETWEEN
        lags = (
            can_lag and (launched or (kind is Kind.BEFORE and self.traits.with_calls)) and self._random.random() < 0.7
        )
        mark_end = self._end_while_busy() if lags else self.now
        self._place_calls(mark_end)
        self.sections.append(Section(kind, start, self.now, self._mark_start, mark_end))
        self._mark_start, self._latest_call = mark_end, -1

    def _is_cut_last(self, kind: Kind) -> bool:
        is_last = kind is Kind.STEP and len(self.steps) == self.traits.steps - 1
        return is_last and self.traits.ending is Ending.WITH_A_SYNCHRONISE

    def _end_while_busy(self) -> int:
        """An end for the mark before the window's: all that the section launched was launched by then."""
        earliest = max(self._mark_start, self._latest_call)
        options = [stretch for stretch in self._busy if stretch[1] > earliest]
        start, end = self._random.choice((options[0], self._random.choice(options)))
        return self._random.randint(max(start, earliest) + 1, end)

    def _place_calls(self, mark_end: int) -> None:
        """Launch calls that must not matter: inside the mark, while the device is busy, before the work starts."""
        for work, latest in self._unplaced:
            options = [
                (max(start, self._mark_start), min(end, mark_end - 1, work.start), end)
                for start, end in self._busy
                if latest is None or end <= latest
            ]
            first, last, end = self._random.choice([option for option in options if option[0] <= option[1]])
            begun = self._random.randint(first, last)
            returned = self._random.randint(begun, end)
            self.idleness.call(work, self._random.choice((TRAINING, AUTOGRAD)), begun, returned, may_block=True)
        self._unplaced.clear()

    def _finish(self) -> None:
        """The device idles on, or runs once more: for as long as an operator that makes its thread the busiest."""
        stopping = self.traits.ending is Ending.WITH_A_SYNCHRONISE
        if self._dry is not None:
            self._idle(2)
            before = self._busy[-1][0] if self._busy[-1][1] == self._dry else self._dry
            self.idleness.without_launch(Room(before, self._dry, self.now, self.now), stopping=stopping)
        if self.traits.marked_elsewhere or self.traits.source is StepSource.WINDOW:
            end = self.now + self.host.most_in_operators + 1
            self.carried.append(self._work(Role.KERNEL, self.now, end))
            self.running.append((self.now, end, Category.KERNEL))
            self.host.add(Role.OPERATOR, TRAINING, self.now, end)
            self.now = end

    def _add_what_belongs_elsewhere(self) -> None:
        """On the device what is no work, on another device what is; launches whose kernel is missing."""
        random = self._random
        for role in (Role.DEVICE_ANNOTATION, Role.DEVICE_WAIT):
            if random.random() < 0.3:
                start, end = sorted(random.randint(0, self.now) for _ in range(2))
                self._work(role, start, end)
        if self.traits.two_devices:
            work = self._work(Role.KERNEL, *sorted(random.randint(0, self.now) for _ in range(2)))
            work.device = 1
            self.host.add(Role.LAUNCH, TRAINING, *random.choice(self._busy), key=work.key)
        before_last = [stretch for stretch in self._busy if stretch[1] < self.steps[-1].mark_start]
        can_lose = self.traits.with_calls and not self.traits.two_devices  # else it is open which device lost it
        if before_last and can_lose and self.traits.ending is Ending.PLAINLY:
            self.host.add(Role.LAUNCH, TRAINING, *random.choice(before_last), key=0)

    # -- the device -----------------------------------------------------------------------------------------------

    def _maybe_idle(self, *, launched: bool) -> None:
        """Idle more often than not; in between an operation may run that takes no time."""
        if self._random.random() < 0.3:
            return
        self._idle(1)
        if self._random.random() < 0.15:
            role = self._random.choice([role for roles in WINNERS.values() for role in roles])
            self._begin(self._work(role, self.now, self.now), launched=launched)
            self._idle(1)

    def _idle(self, least: int) -> None:
        if self._dry is None:
            self._dry = self.now
        self.now += self._random.randint(least, MOST)

    def _run(self, *, launched: bool) -> None:
        """The device is busy: a winner over the whole stretch, perhaps in several parts, and others beside it."""
        category = self._random.choice(list(WINNERS))
        start, end = self.now, self.now + self._random.randint(1, MOST)
        later = (self._random.randint(start, end) for _ in range(self._random.choice((0, 0, 1, 2))))
        parts = sorted({start, *later})
        for part, following in zip(parts, [*parts[1:], end], strict=True):
            role = self._random.choice(WINNERS[category])
            part_end = end if part == parts[-1] else self._random.randint(following, end)
            self._begin(self._work(role, part, part_end), launched=launched)
        self._beside(category, start, end, launched=launched)
        if not self._busy:
            self.host.add(Role.OPERATOR, TRAINING, start, end)
        self.host.as_it_likes(start, end)
        self.running.append((start, end, category))
        self._busy.append((start, end))
        self.now = end

    def _beside(self, category: Category, start: int, end: int, *, launched: bool) -> None:
        """What runs at the same time and loses, or takes no time at all; it begins later than the winner."""
        order = list(WINNERS)
        lower = order[order.index(category) + 1 :]
        for _ in range(self._random.choice((0, 0, 1, 2)) if end - start > 1 else 0):
            begun = self._random.randint(start + 1, end - 1)
            loses = bool(lower) and self._random.random() < 0.8
            role = self._random.choice(WINNERS[self._random.choice(lower if loses else order)])
            self._begin(
                self._work(role, begun, self._random.randint(begun, end) if loses else begun), launched=launched
            )

    def _work(self, role: Role, start: int, end: int) -> DeviceEvent:
        work = DeviceEvent(role, start, end, self._free_stream(start, end), key=len(self.device) + 1)
        self.device.append(work)
        return work

    def _free_stream(self, start: int, end: int) -> int:
        """A stream that runs nothing else at the time."""
        taken = {work.stream for work in self.device if work.start < end and start < work.end}
        return self._random.choice(
            [stream for stream in (7, 7, 20, 24) if stream not in taken] or [24 + len(self.device)]
        )

    def _begin(self, work: DeviceEvent, *, launched: bool) -> None:
        """An operation starts; if the device was idle, that is explained now."""
        if not launched or self._kind is Kind.BEFORE:
            self.carried.append(work)
        if self._dry is not None:
            self._explain(self._dry, work.start, work if launched else None, work.end)
            self._dry = None
        elif launched:
            self._unplaced.append((work, None))

    # -- why it is idle -------------------------------------------------------------------------------------------

    def _explain(self, dry: int, end: int, launched: DeviceEvent | None, latest: int) -> None:
        """Decide why the device idled from ``dry`` until an operation that ended at ``latest`` began; make it so."""
        before = self._busy[-1][0] if self._busy and self._busy[-1][1] == dry else dry
        room = Room(before, dry, end, latest)
        can_queue = any(self._mark_start <= stretch[1] <= dry for stretch in self._busy)
        if launched is None:
            self.idleness.without_launch(room)
        elif can_queue and self._random.random() < (0.85 if self.traits.may_lag else 0.3):
            self.idleness.queued(room)
            self._unplaced.append((launched, dry))
        else:
            begun = self.idleness.late(launched, room, self._mark_start)
            self._latest_call = max(self._latest_call, begun)
