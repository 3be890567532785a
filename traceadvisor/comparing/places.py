"""Places in the code that are the same in both sides: by file and function, whatever their lines.

A change of the code moves lines. Captures hold the lines of many calls, by which the lines of both sides are paired.
In other recordings, the lines of one function are paired in their order, with the least difference of their times.
A line that is left over may be new or gone, or have moved.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

from traceadvisor.frozen import frozen
from traceadvisor.model.command import script_of
from traceadvisor.model.location import CodePlace, Location
from traceadvisor.model.report import Recording
from traceadvisor.model.samples import OnlyCall
from traceadvisor.rendering.origins import INSTALLED

Place = tuple[str, str | None]
"""File relative to the repository, and function. The script is one file, whatever it is called on a side."""

Times = Mapping[CodePlace, float]
"""Nanoseconds per step by place."""

SIMILAR_SHARE = 1 / 3
"""One of several lines of a function keeps at least this share of its time when it moves; else it is another line."""

MOST_ALIGNED = 100
"""Lines of one function whose order is compared; the longest table of a report has far fewer."""

MOST_CALLS = 2_000
"""Calls and ends of functions of one file whose order is compared."""


@frozen
class Checkout:
    """The code of a side."""

    root: str | None
    """Root of its repository; None if unknown."""

    script: str | None
    """File of the script, relative to it; None if unknown."""

    calls: tuple[OnlyCall, ...] = ()
    """Calls of its functions with their lines; empty if not recorded."""


def checkout_of(recording: Recording) -> Checkout | None:
    """The code of a recording; None without a capture."""
    run = recording.captured
    if run is None:
        return None
    root = run.repository.root if run.repository else None
    script = script_of(run.command)
    calls = run.stacks.only_calls if run.stacks else ()
    return Checkout(root, relative_file(script, root) if script else None, calls)


def relative_file(file: str, root: str | None) -> str:
    """The file relative to the repository; the name alone of another absolute path, whose folders may differ."""
    path = file.replace("\\", "/")
    folder = root.replace("\\", "/").rstrip("/") if root else ""
    if folder and path.startswith(f"{folder}/"):
        return path.removeprefix(f"{folder}/")
    if path.startswith(("/", "~")) or PurePath(file).is_absolute() or re.match(r"[A-Za-z]:/", path):
        return path.rpartition("/")[2]
    return path


def place_of(location: Location, checkout: Checkout | None) -> Place:
    """Key by which places are compared."""
    file = relative_file(location.file, checkout.root if checkout else None)
    return "script" if checkout and file == checkout.script else file, location.function


def key_of(place: CodePlace, checkout: Checkout | None) -> tuple[object, ...]:
    """Key that places in one function share: everything but the lines."""
    spots = (place.line, place.until, place.inner)
    owner = place.owner
    return (
        *(None if spot is None else (*place_of(spot, checkout), spot.is_backward) for spot in spots),
        None if owner is None else (owner.file and INSTALLED.sub("", owner.file), owner.function),
    )


@frozen
class Paired:
    """A place in both sides."""

    base: CodePlace | None
    """None where BASE does not list it."""

    head: CodePlace | None
    may_have_moved: bool = False
    """Whether it has no partner, and the other side lists lines of its function that may be this one."""


def aligned(base: Times, head: Times, moves: Moves) -> Iterator[Paired]:
    """The places of both sides in pairs."""
    groups: defaultdict[tuple[object, ...], tuple[list[CodePlace], list[CodePlace]]] = defaultdict(lambda: ([], []))
    lines: defaultdict[tuple[object, ...], tuple[set[Lines], set[Lines]]] = defaultdict(lambda: (set(), set()))
    for side, (times, checkout) in enumerate(zip((base, head), moves.checkouts, strict=True)):
        for place in times:
            key = key_of(place, checkout)
            groups[key][side].append(place)
            lines[key[:-1]][side].add(_lines(place)[:-1])  # of the function, whatever it calls
    for key, (ours, theirs) in groups.items():
        are_only = len(ours) == len(theirs) == 1 and all(len(side) == 1 for side in lines[key[:-1]])
        yield from _paired(sorted(ours, key=_lines), sorted(theirs, key=_lines), moves, (base, head), are_only=are_only)


Lines = tuple[int, ...]


def _lines(place: CodePlace) -> Lines:
    spots = (place.line, place.until, place.inner, place.owner)
    return tuple((spot.line or 0) if spot else 0 for spot in spots)


class Moves:
    """The lines of HEAD by those of BASE, as the calls in both show them. Build it once for two checkouts."""

    def __init__(self, base: Checkout | None, head: Checkout | None) -> None:
        """Compare the order of the calls in each file."""
        self.checkouts = base, head
        ours, theirs = _calls_by_file(base), _calls_by_file(head)
        found = {file: _anchors(ours[file], theirs[file]) for file in ours if file in theirs}
        self._known = {
            file: (anchors, sorted((head, base) for base, head in anchors)) for file, anchors in found.items()
        }

    def are_same(self, one: CodePlace, other: CodePlace) -> bool | None:
        """Whether a place of BASE and one of HEAD with the same key are on the same lines; None if unknown."""
        spots = ((one.line, other.line), (one.until, other.until), (one.inner, other.inner))
        found = [self._is_same(ours, theirs) for ours, theirs in spots if ours and theirs]
        return False if False in found else None if None in found else True

    def _is_same(self, ours: Location, theirs: Location) -> bool | None:
        if not (ours.is_line and theirs.is_line):
            return True  # the function is all that is known
        forward, back = self._known.get(place_of(ours, self.checkouts[0])[0], ((), ()))
        expected = _moved(ours.line, forward)
        if expected is not None:
            return expected == theirs.line
        return None if _moved(theirs.line, back) is None else False


_Mark = tuple[int, int, str, str]
"""A call: its line, its order there, its function and its name."""


def _calls_by_file(checkout: Checkout | None) -> dict[str, list[_Mark]]:
    """The calls of each file in order, with the ends of its functions."""
    found: defaultdict[str, set[_Mark]] = defaultdict(set)
    for call in checkout.calls if checkout else ():
        ends = ((call.first_line, 0, call.function, ""), (call.last_line, 2, call.function, ""))
        found[place_of(Location(call.file, call.line), checkout)[0]] |= {
            *ends,
            (call.line, 1, call.function, call.name),
        }
    return {file: sorted(marks) for file, marks in found.items()}


def _anchors(base: Sequence[_Mark], head: Sequence[_Mark]) -> Sequence[tuple[int, int]]:
    """Lines of both sides with the same calls, in order; empty for files that are too long to compare."""
    if max(len(base), len(head)) > MOST_CALLS:
        return ()
    lines: defaultdict[int, list[int]] = defaultdict(list)
    names = [[mark[1:] for mark in side] for side in (base, head)]
    for one, other in _same_names(names[0], names[1]):
        lines[base[one][0]].append(head[other][0])
    return [(line, Counter(found).most_common(1)[0][0]) for line, found in sorted(lines.items())]


_Name = tuple[int, str, str]


def _same_names(base: Sequence[_Name], head: Sequence[_Name]) -> Iterator[tuple[int, int]]:
    """Positions of the same names in both sides, which repeated names do not slow down.

    Source: the "patience" difference of Git. Names that occur once on each side divide both into parts, in which more
    names may occur once; equal begins and ends of a part belong together.
    """
    left = [(0, len(base), 0, len(head))]
    while left:
        begin, end, other_begin, other_end = left.pop()
        while begin < end and other_begin < other_end and base[begin] == head[other_begin]:
            yield begin, other_begin
            begin, other_begin = begin + 1, other_begin + 1
        while begin < end and other_begin < other_end and base[end - 1] == head[other_end - 1]:
            end, other_end = end - 1, other_end - 1
            yield end, other_end
        ours, theirs = _once(base, range(begin, end)), _once(head, range(other_begin, other_end))
        found = _longest_in_order([(place, theirs[name]) for name, place in ours.items() if name in theirs])
        yield from found
        if found:
            cuts = [(begin - 1, other_begin - 1), *found, (end, other_end)]
            left += [(one + 1, to, other + 1, other_to) for (one, other), (to, other_to) in pairwise(cuts)]


def _once(names: Sequence[_Name], places: range) -> dict[_Name, int]:
    """The places of names that occur once, in order."""
    counts = Counter(names[place] for place in places)
    return {names[place]: place for place in places if counts[names[place]] == 1}


def _longest_in_order(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs whose second numbers rise as their first ones do."""
    ends: list[int] = []
    lasts: list[tuple[int, int]] = []
    before: dict[tuple[int, int], tuple[int, int] | None] = {}
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        before[pair] = lasts[length - 1] if length else None
        ends[length : length + 1], lasts[length : length + 1] = [pair[1]], [pair]
    found = list[tuple[int, int]]()
    last = lasts[-1] if lasts else None
    while last is not None:
        found.append(last)
        last = before[last]
    return found[::-1]


def _moved(line: int, anchors: Sequence[tuple[int, int]]) -> int | None:
    """The line of the other side; None if unknown: lines between two known ones moved as both did."""
    place = bisect_left(anchors, (line, 0))
    after = anchors[place] if place < len(anchors) else None
    if after is None or after[0] == line:
        return after[1] if after else None
    before = anchors[place - 1] if place else None
    is_between = before is not None and after[1] - after[0] == before[1] - before[0]
    return line + after[1] - after[0] if is_between else None


_Same = Mapping[tuple[CodePlace, CodePlace], bool | None]


def _paired(
    base: list[CodePlace], head: list[CodePlace], moves: Moves, times_ns: tuple[Times, Times], *, are_only: bool
) -> Iterator[Paired]:
    """The pairs of one function: those that are known by their calls, then the others in the order of lines.

    ``are_only``: whether each side has one line of the function.
    """
    if len(base) * len(head) > MOST_ALIGNED**2:
        yield from (Paired(one, None, may_have_moved=True) for one in base)
        yield from (Paired(None, one, may_have_moved=True) for one in head)
        return
    are_same = {(one, other): moves.are_same(one, other) for one in base for other in head}
    left = list(head)
    rest: list[CodePlace] = []
    for one in base:
        owner = one.owner.line if one.owner else None
        alike = (other for other in left if (other.owner.line if other.owner else None) == owner)
        same = next((other for other in alike if are_same[one, other]), None)
        if same is None:
            rest.append(one)
        else:
            left.remove(same)
            yield Paired(one, same)
    for ours, theirs in _in_order(rest, left, are_same, times_ns, are_only=are_only):
        if ours is None or theirs is None:
            found = (
                [are_same[ours, other] for other in head] if ours else [are_same[one, theirs] for one in base if theirs]
            )
            yield Paired(ours, theirs, may_have_moved=any(same is not False for same in found))
        else:
            yield Paired(ours, theirs)


def _in_order(
    base: list[CodePlace], head: list[CodePlace], are_same: _Same, times_ns: tuple[Times, Times], *, are_only: bool
) -> Iterator[tuple[CodePlace | None, CodePlace | None]]:
    """The pairs, in the order of lines, with the least sum of differences (dynamic programming)."""
    base_ns, head_ns = times_ns
    cost = [[0.0] * (len(head) + 1) for _ in range(len(base) + 1)]

    def may_be_same(one: CodePlace, other: CodePlace) -> bool:
        """Whether two places are the same: by their calls; else alone, on the same lines, or with a similar time."""
        same, times = are_same[one, other], (base_ns[one], head_ns[other])
        is_like = are_only or _lines(one) == _lines(other) or min(times) >= SIMILAR_SHARE * max(times)
        return is_like if same is None else same

    def ways(cell: tuple[int, int]) -> list[tuple[float, int, int, int]]:
        """Ways to go on from a cell: total cost, preference, and steps in both sequences."""
        row, column = cell
        found = []
        if row < len(base) and column < len(head) and may_be_same(base[row], head[column]):
            apart = abs(base_ns[base[row]] - head_ns[head[column]])
            found.append((cost[row + 1][column + 1] + apart, 0, 1, 1))
        if row < len(base):
            found.append((cost[row + 1][column] + base_ns[base[row]], 1, 1, 0))
        if column < len(head):
            found.append((cost[row][column + 1] + head_ns[head[column]], 2, 0, 1))
        return found

    for row in range(len(base), -1, -1):
        for column in range(len(head), -1, -1):
            cost[row][column] = min(ways((row, column)), default=(0.0,))[0]
    row = column = 0
    while row < len(base) or column < len(head):
        _, _, one, other = min(ways((row, column)))
        yield base[row] if one else None, head[column] if other else None
        row, column = row + one, column + other
