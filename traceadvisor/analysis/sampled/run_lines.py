"""Time of the training thread over a whole run, by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from traceadvisor.analysis.sampled.paths import Path, in_training, path_of, place_of
from traceadvisor.frozen import frozen
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.run_time import LineRow, LineTime, RunLines
from traceadvisor.model.samples import NOTHING_SAMPLED, Sampled, SampledFrame, StackSamples, Tallies
from traceadvisor.statistics import share_interval

MOST_ROWS = 40
LEAST_SHARE = 0.001
"""Share of the run of the smallest row."""

AROUND_SHARE = 0.9
"""A user's frame that holds more of the time is around the training loop, or around the whole run."""


@dataclass(slots=True)
class _Sum:
    """Samples of one row."""

    total_ns: int = 0
    step_ns: int = 0
    fetch_ns: int = 0
    count: int = 0
    owners: dict[Frame, int] = field(default_factory=dict)
    """Time by the line of the innermost frame."""

    def add(self, total_ns: int, step_ns: int, count: int, *, is_fetching: bool) -> None:
        self.total_ns += total_ns
        self.step_ns += step_ns
        self.fetch_ns += total_ns if is_fetching else 0
        self.count += count

    @property
    def time(self) -> LineTime:
        return LineTime(self.total_ns, self.step_ns, self.fetch_ns, self.count)

    @property
    def owner(self) -> Frame | None:
        """The innermost frame at the line with the most time."""
        return max(self.owners, key=lambda frame: self.owners[frame], default=None)


@frozen
class _Key:
    line: SampledFrame | None
    inner: SampledFrame | None
    owner: tuple[str | None, str] | None
    """File and function of the innermost frame."""


def run_lines(samples: StackSamples | None, loop: Location | None) -> RunLines | None:
    """The table of a run; None without samples.

    ``loop``: the line of the loop over the training loader; None where unknown.
    """
    if samples is None or not samples.time_ns:
        return None
    sums: dict[_Key, _Sum] = {}
    whole, left = _Sum(), _Sum()
    paths = [path_of(samples, stack) for stack in samples.stacks]
    around = _Around(paths, [in_training(stack).time_ns for stack in samples.stacks], loop)
    for stack, path in zip(samples.stacks, paths, strict=True):
        in_steps, count = in_training(stack).time_ns, sum(one.count for one in stack.by_state.values())
        total_ns = sum(one.time_ns for one in stack.by_state.values())
        owner = (path.owner.file, path.owner.function) if path.owner else None
        row = sums.setdefault(_Key(around.line(path, is_fetching=stack.is_fetching), path.inner, owner), _Sum())
        for one in (row, whole):
            one.add(total_ns, in_steps, count, is_fetching=stack.is_fetching)
        if path.owner:
            row.owners[path.owner] = row.owners.get(path.owner, 0) + total_ns
    _add_tallies(samples.other, (whole, left))
    largest = sorted(sums.items(), key=lambda item: -item[1].total_ns)
    shown = [(key, one) for key, one in largest[:MOST_ROWS] if one.total_ns >= LEAST_SHARE * whole.total_ns]
    for _, one in largest[len(shown) :]:
        left.add(one.total_ns, one.step_ns, one.count, is_fetching=False)
        left.fetch_ns += one.fetch_ns
    return RunLines(
        whole.time,
        tuple(_row(key, one, whole.total_ns, samples.effective_count) for key, one in shown),
        left.time,
        interval_ns=round(whole.total_ns / max(samples.effective_count, 1.0)),
        late_share=min(samples.late_ns / whole.total_ns, 1.0),
        late_by_ns=samples.late_by_ns,
        sampler_share=samples.cpu_ns / whole.total_ns,
    )


def sampled_places(samples: StackSamples, step_ns: float, most: int) -> list[tuple[Location, float]]:
    """The user's innermost lines with the most time in training steps, and that time as a part of a step.

    Each has the frame that owns its time, and its number of samples.
    """
    found: dict[tuple[SampledFrame, Frame | None], Sampled] = {}
    whole_ns = 0
    for stack in samples.stacks:
        path, here = path_of(samples, stack), in_training(stack)
        whole_ns += here.time_ns
        if path.inner and here.time_ns:
            before = found.get((path.inner, path.owner), NOTHING_SAMPLED)
            found[path.inner, path.owner] = Sampled(before.time_ns + here.time_ns, before.count + here.count)
    whole_ns += sum(one.time_ns for state, one in samples.other.items() if state not in {None, StepState.OTHER})
    largest = sorted(found.items(), key=lambda item: -item[1].time_ns)[:most]
    return [
        (replace(place_of(inner), owner=owner, samples=here.count), here.time_ns / whole_ns * step_ns)
        for (inner, owner), here in largest
    ]


def _add_tallies(tallies: Tallies, sums: Iterable[_Sum]) -> None:
    for state, one in tallies.items():
        step_ns = 0 if state in {None, StepState.OTHER} else one.time_ns
        for each in sums:
            each.add(one.time_ns, step_ns, one.count, is_fetching=False)


def _row(key: _Key, one: _Sum, whole_ns: int, count: float) -> LineRow:
    line = place_of(key.line) if key.line else None
    inner = place_of(key.inner) if key.inner and key.inner != key.line else None
    share = one.total_ns / whole_ns
    return LineRow(line, None, inner, one.owner, one.time, share, *share_interval(share, count))


def lines_of_stacks(samples: StackSamples, loop: Location | None) -> list[SampledFrame | None]:
    """The user's line of each stack inside the training loop; ``loop``: as in :func:`run_lines`."""
    paths = [path_of(samples, stack) for stack in samples.stacks]
    around = _Around(paths, [in_training(stack).time_ns for stack in samples.stacks], loop)
    fetching = [stack.is_fetching for stack in samples.stacks]
    return [around.line(path, is_fetching=one) for path, one in zip(paths, fetching, strict=True)]


def users_in_loop(samples: StackSamples, loop: Location | None) -> list[tuple[SampledFrame, ...]]:
    """The user's frames of each stack from its line inside the training loop on, outermost first."""
    lines, paths = lines_of_stacks(samples, loop), (path_of(samples, stack) for stack in samples.stacks)
    return [path.users[path.users.index(line) :] if line else () for path, line in zip(paths, lines, strict=True)]


class _Around:
    """Finds the line of each stack that tells places apart: inside the frames around the training loop."""

    def __init__(self, paths: list[Path], weights_ns: list[int], loop: Location | None) -> None:
        self._loop = loop
        self._prefix = _heaviest(list(zip(paths, weights_ns, strict=True)))

    def line(self, path: Path, *, is_fetching: bool) -> SampledFrame | None:
        """The line; None where no user code runs."""
        users = path.users
        if not users:
            return None
        loop = self._loop
        for place, frame in enumerate(users):
            if loop and frame.function == loop.function and is_same_file(frame.file or "", loop.file):
                if is_fetching or frame.line != loop.line:
                    return frame
                return users[min(place + 1, len(users) - 1)]  # this line also gets the batches: it holds the loop
        shared = 0
        while shared < min(len(self._prefix), len(users) - 1) and users[shared] == self._prefix[shared]:
            shared += 1
        return users[shared]


def _heaviest(paths: list[tuple[Path, int]]) -> list[SampledFrame]:
    """The user's outermost frames that nearly all of the time in steps shares."""
    whole_ns, prefix = sum(weight_ns for _, weight_ns in paths), list[SampledFrame]()
    while paths:
        place, by_frame = len(prefix), dict[SampledFrame, int]()
        for path, weight_ns in paths:
            if place < len(path.users) - 1:
                frame = path.users[place]
                by_frame[frame] = by_frame.get(frame, 0) + weight_ns
        if not by_frame:
            break
        frame = max(by_frame, key=lambda one: by_frame[one])
        if by_frame[frame] < AROUND_SHARE * whole_ns or not whole_ns:
            break
        prefix.append(frame)
        paths = [one for one in paths if place < len(one[0].users) and one[0].users[place] == frame]
    return prefix


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths may name one file: recordings shorten paths by different folders."""
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
