"""The steps of a recording whose truth is known: their windows, what they hold, and how the host marks them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import assert_never

from tests.analysis.known_host import MARKING, TRAINING
from tests.analysis.known_idleness import Ending
from tests.analysis.known_truth import Kind, Layout, Section
from tests.spelling import HostEvent, Role
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, Category
from traceadvisor.model.steps import StepSource

LAST_MARK = 20
"""Length of a mark in which the recording stopped, in ticks."""


@dataclass(frozen=True, slots=True)
class TrueStep:
    """A step as it was decided, in ticks since the recording's first event."""

    index: int
    start: int
    end: int
    kept: bool
    parts: Mapping[Category, int | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a recording must say."""

    source: StepSource
    steps: tuple[TrueStep, ...]
    dropped: tuple[int, ...]


def mark_steps(layout: Layout, random: Random) -> Truth:
    """Add the marks to the host's side, and say what follows for the steps."""
    dropped: tuple[int, ...] = ()
    source = layout.traits.source
    if source is StepSource.OPTIMIZER and not _optimizers_tell(layout):
        source = StepSource.MARKS
    match source:
        case StepSource.WINDOW:
            whole = Section(Kind.STEP, 0, layout.now, 0, layout.now)
            steps: tuple[TrueStep, ...] = (_true_step(layout, 0, whole, kept=True),)
        case StepSource.OPTIMIZER:
            steps = _steps(layout, 1)
            _mark_by_optimizer(layout, random)
        case StepSource.MARKS:
            first = random.randint(0, 1000)
            is_cut = layout.traits.ending in {Ending.WITHOUT_LAUNCHES, Ending.WITHOUT_RECORDS}
            steps = _steps(layout, first, *([(layout.now, layout.now + LAST_MARK)] if is_cut else []))
            dropped = _mark(layout, first, random)
        case StepSource.SERVING | StepSource.COMPILED:
            raise AssertionError("no such recording is made")
        case _:
            assert_never(source)
    layout.host.add(Role.ANNOTATION, TRAINING, 0, layout.now)
    return Truth(source, steps, dropped)


def _optimizers_tell(layout: Layout) -> bool:
    """Whether each optimizer step is an iteration: batches and backward passes are in all of them or in none.

    Backward passes of different length may be those of two optimizers in turn.
    """
    ends = [layout.steps[0].mark_start, *(section.mark_end for section in layout.steps)]

    def counts(role: Role) -> list[int]:
        begun = [event.start for event in layout.host.events if event.role is role and event.thread == TRAINING]
        return [sum(after <= start < end for start in begun) for after, end in pairwise([0, *ends])]

    nodes, batches = counts(Role.BACKWARD), [min(count, 1) for count in counts(Role.LOADER)]
    return len(set(nodes[1:])) == 1 and (all(batches[1:]) or sum(batches) < 2)


def _steps(layout: Layout, first: int, *later: tuple[int, int]) -> tuple[TrueStep, ...]:
    """Those that were laid out, where there are ``later`` marks, too."""
    others = _of_another_kind(layout, later) | _short_of_records(layout)
    whole = [number not in others for number in range(len(layout.steps))]
    kept = [
        whole[number] and _is_kept(layout, section, is_first=number == 0) for number, section in enumerate(layout.steps)
    ]
    if not any(kept):  # steps with work of earlier ones are better than none
        kept = [whole[number] and section.end > section.start for number, section in enumerate(layout.steps)]
    return tuple(
        _true_step(layout, first + number, section, kept=kept[number]) for number, section in enumerate(layout.steps)
    )


def _of_another_kind(layout: Layout, later: tuple[tuple[int, int], ...]) -> set[int]:
    """The steps without a backward pass, where most have one."""
    marks = [*((section.mark_start, section.mark_end) for section in layout.steps), *later]
    backward = [event.start for event in layout.host.events if event.role is Role.BACKWARD]
    without = {
        number for number, (start, end) in enumerate(marks) if not any(start <= begun < end for begun in backward)
    }
    return without if 2 * len(without) < len(marks) else set()


def _short_of_records(layout: Layout) -> set[int]:
    """The steps that launched a kernel that was not recorded, where another launched some and lost none."""
    missing = _lost_launches(layout)
    launches = [event for event in layout.host.events if event.role is Role.LAUNCH]
    lost = [
        [event in missing for event in launches if section.mark_start <= event.start < section.mark_end]
        for section in layout.steps
    ]
    short = {number for number, losses in enumerate(lost) if any(losses)}
    return short if any(losses and not any(losses) for losses in lost) else set()


def _lost_launches(layout: Layout) -> list[HostEvent]:
    """The launches whose kernel was not recorded; not a call within another launch, which is the same launch."""
    recorded = {event.key for event in layout.device}
    launches = [event for event in layout.host.events if event.role is Role.LAUNCH]
    others = [event for event in launches if event.key in recorded]
    return [
        event
        for event in launches
        if event.key not in recorded
        and not any(e.thread == event.thread and e.start < event.end and event.start < e.end for e in others)
    ]


def _true_step(layout: Layout, index: int, section: Section, *, kept: bool) -> TrueStep:
    """The parts of what was decided that lie in a window."""
    parts: dict[Category, int | None] = dict.fromkeys(DEVICE_CATEGORIES, 0)
    for start, end, category in layout.running:
        parts[category] = (parts[category] or 0) + len(_ticks(start, end, section))
    unknown = _unknown(layout)
    for start, end, category in layout.idleness.truth:
        for tick in _ticks(start, end, section):
            said = Category.IDLE_UNKNOWN if tick in unknown else category
            parts[said] = (parts[said] or 0) + 1
    if not any(event.role is Role.LOADER for event in layout.host.events):
        parts[Category.DATA_WAIT] = None
    return TrueStep(index, section.start, section.end, kept, parts)


def _unknown(layout: Layout) -> set[int]:
    """When a kernel that was not recorded may have run: after its launch, in its turn among those that were."""
    calls = {event.key: event for event in layout.host.events if event.key is not None}
    ran = [(calls[work.key].start, work) for work in layout.device if work.key in calls]
    ticks: set[int] = set()
    for call in _lost_launches(layout) if ran else []:
        before = max([call.end, *(work.end for begun, work in ran if begun < call.start)])
        ticks |= set(range(before, min([layout.now, *(work.start for begun, work in ran if begun > call.start)])))
    return ticks


def _is_kept(layout: Layout, section: Section, *, is_first: bool) -> bool:
    """Whether device work that no step launched takes no more than 2% of a step.

    Of the first step it also takes what its later start cut off, as far as a lagging device does not give it back.
    """
    if not layout.traits.with_calls:
        return True
    inside = {tick for work in layout.carried for tick in _ticks(work.start, work.end, section)}
    length, marked = section.end - section.start, section.mark_end - section.mark_start
    taken = len(inside) + (cut := max(0, marked - length) if is_first else 0)
    return 50 * taken <= length + cut


def _ticks(start: int, end: int, section: Section) -> range:
    """What a stretch shares with a window."""
    return range(max(start, section.start), min(end, section.end))


def _mark(layout: Layout, first: int, random: Random) -> tuple[int, ...]:
    """``ProfilerStep#N``; a last one may be cut by the end of the recording. Returns which steps are dropped."""
    thread = MARKING if layout.traits.marked_elsewhere else TRAINING
    marks = [(section.mark_start, section.mark_end) for section in layout.steps]
    dropped = layout.traits.ending in {Ending.WITHOUT_LAUNCHES, Ending.WITHOUT_RECORDS}
    if dropped:
        marks.append((layout.now, layout.now + LAST_MARK))
        layout.now += LAST_MARK
    if layout.traits.ending is Ending.WITHOUT_RECORDS:
        for number in range(random.randint(1, 3)):
            layout.host.add(Role.LAUNCH, TRAINING, layout.now - 10, layout.now - 9, key=-1 - number)
    beyond = 0
    if random.random() < 0.3:
        layout.host.add(Role.PROFILER_SPAN, "Spans", 0, marks[-1][1])
        beyond = random.choice((0, 1, 1000))
    for number, (start, end) in enumerate(marks, first):
        last = beyond if (start, end) == marks[-1] else 0
        layout.host.events.append(HostEvent(Role.MARK, thread, start, end + last, number=number))
    return (first + len(marks) - 1,) if dropped else ()


def _mark_by_optimizer(layout: Layout, random: Random) -> None:
    """A step goes from the end of one ``Optimizer.step`` to the end of the next."""
    thread = MARKING if layout.traits.marked_elsewhere else TRAINING
    ends = [0, layout.steps[0].mark_start, *(section.mark_end for section in layout.steps)]
    for before, end in pairwise(ends):
        layout.host.add(Role.OPTIMIZER, thread, random.randint(max(min(before + 1, end), end - 20), end), end)
