"""Recordings without a device whose breakdown was decided before they were written."""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.known_host import AUTOGRAD, OTHER, TRAINING
from tests.spelling import SPELLINGS, Clock, HostEvent, Role, spelled
from traceadvisor import load
from traceadvisor.model.breakdown import HOST_CATEGORIES, Category

THREADS = (TRAINING, AUTOGRAD, OTHER)

MAKES: dict[Category, tuple[tuple[Role, tuple[str, ...]], ...]] = {
    Category.DATA_WAIT: ((Role.LOADER, (TRAINING,)),),
    Category.OPTIMIZER: ((Role.OPTIMIZER, THREADS),),
    Category.BACKWARD: ((Role.BACKWARD, THREADS),),
    Category.FORWARD: ((Role.OPERATOR, (TRAINING,)),),
    Category.COMMUNICATION: ((Role.HOST_COLLECTIVE, THREADS),),
    Category.OTHER_HOST: (
        (Role.OPERATOR, (AUTOGRAD, OTHER)),
        (Role.LOADER, (AUTOGRAD, OTHER)),
        (Role.ANNOTATION, THREADS),
        (Role.PYTHON, THREADS),
        (Role.OVERHEAD, THREADS),
        (Role.CALL, THREADS),
    ),
}
"""What puts an instant into a category where nothing of an earlier one happens; the last needs nothing."""

PIECES = st.lists(st.tuples(st.sampled_from(HOST_CATEGORIES), st.integers(1, 40)), min_size=1, max_size=8)
"""A step: one category after another, each for some ticks."""


@given(
    st.lists(st.tuples(PIECES, st.integers(0, 10)), min_size=1, max_size=4),
    st.sampled_from(sorted(SPELLINGS)),
    st.sampled_from((0, 1_712_195_495_519_689_123)),
    st.integers(0),
)
def test_the_figures_match_the_known_truth(
    steps: list[tuple[list[tuple[Category, int]], int]], generation: str, origin_ns: int, seed: int
) -> None:
    random = Random(seed)
    events = [HostEvent(Role.OPERATOR, TRAINING, 0, 5), HostEvent(Role.LOADER, OTHER, 0, 5)]
    decided: list[tuple[int, int, dict[Category, int | None]]] = []
    now = 5
    for number, (pieces, pause) in enumerate(steps):
        begun = now
        parts: dict[Category, int | None] = dict.fromkeys(HOST_CATEGORIES, 0)
        for category, length in pieces:
            events += _made(category, now, now + length, random)
            parts[category] = (parts[category] or 0) + length
            now += length
        events.append(HostEvent(Role.MARK, TRAINING, begun, now, number=number))
        decided.append((begun, now, parts))
        now += pause
    with TemporaryDirectory() as folder:
        builder = spelled(events, (), SPELLINGS[generation], Clock(1, origin_ns), random)
        (recording,) = load(builder.write(Path(folder) / "w.1.pt.trace.json")).recordings
    found = [(row.step.start_ns, row.step.end_ns, row.breakdown.parts_ns) for row in recording.steps]
    assert recording.device is None
    assert found == decided


def _made(category: Category, start: int, end: int, random: Random) -> list[HostEvent]:
    """One event over a stretch that makes its category, and some within it that cannot matter."""
    later = HOST_CATEGORIES[HOST_CATEGORIES.index(category) + 1 :]
    if category is Category.OPTIMIZER:  # a backward pass inside belongs to a closure
        later = later[1:]
    options = [*(made for lower in later for made in MAKES[lower]), *MAKES[Category.OTHER_HOST]]
    events = [_event(random.choice(options), random.choices(range(start, end + 1), k=2), random) for _ in range(2)]
    if category is not Category.OTHER_HOST:
        events.append(_event(random.choice(MAKES[category]), [start, end], random))
    return events


def _event(made: tuple[Role, tuple[str, ...]], limits: list[int], random: Random) -> HostEvent:
    role, threads = made
    return HostEvent(role, random.choice(threads), min(limits), max(limits))
