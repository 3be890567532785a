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
from difflib import SequenceMatcher
from pathlib import PurePath

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace, Frame, Location
from traceadvisor.model.report import Recording
from traceadvisor.model.samples import OnlyCall

_INSTALLED = re.compile(r"^.*[/\\](?:site-packages|dist-packages)[/\\]|^.*[/\\]lib[/\\]python\d[\d.]*[/\\]")

Place = tuple[str, str | None]
"""File relative to the repository, and function. The script is one file, whatever it is called on a side."""

Times = Mapping[CodePlace, float]
"""Nanoseconds per step by place."""

SIMILAR_SHARE = 1 / 3
"""One of several lines that moved keeps at least this share of its time; with less, it is another line."""

MOST_ALIGNED = 100
"""Lines of one function whose order is compared; the longest table of a report has far fewer."""

MOST_CALLS = 2_000
"""Calls of one file whose order is compared: the time grows with their square."""


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
    script = next((word for word in run.command[:1] if word.endswith(".py")), None)
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
        None if owner is None else (_library_file(owner), owner.function),
    )


def _library_file(owner: Frame) -> str | None:
    return None if owner.file is None else _INSTALLED.sub("", owner.file)


@frozen
class Paired:
    """A place in both sides."""

    base: CodePlace | None
    """None where BASE does not list it."""

    head: CodePlace | None
    may_have_moved: bool = False
    """Whether it has no partner, and the other side lists lines of its function that may be this one."""


def aligned(
    base: Times, head: Times, base_checkout: Checkout | None, head_checkout: Checkout | None
) -> Iterator[Paired]:
    """The places of both sides in pairs."""
    moves = _Moves(base_checkout, head_checkout)
    groups: defaultdict[tuple[object, ...], tuple[list[CodePlace], list[CodePlace]]] = defaultdict(lambda: ([], []))
    for side, (times, checkout) in enumerate(((base, base_checkout), (head, head_checkout))):
        for place in times:
            groups[key_of(place, checkout)][side].append(place)
    for ours, theirs in groups.values():
        yield from _paired(sorted(ours, key=_lines), sorted(theirs, key=_lines), moves, (base, head))


def _lines(place: CodePlace) -> tuple[int, ...]:
    spots = (place.line, place.until, place.inner, place.owner)
    return tuple((spot.line or 0) if spot else 0 for spot in spots)


class _Moves:
    """The lines of HEAD by those of BASE, as the calls in both show them."""

    def __init__(self, base: Checkout | None, head: Checkout | None) -> None:
        self._checkouts = base, head
        sides = [_calls_by_file(checkout) for checkout in (base, head)]
        self._known = {file: _anchors(sides[0][file], sides[1][file]) for file in sides[0] if file in sides[1]}

    def are_same(self, one: CodePlace, other: CodePlace) -> bool | None:
        """Whether a place of BASE and one of HEAD with the same key are on the same lines; None if unknown."""
        spots = ((one.line, other.line), (one.until, other.until), (one.inner, other.inner))
        found = [self._is_same(ours, theirs) for ours, theirs in spots if ours and theirs]
        return False if False in found else None if None in found else True

    def _is_same(self, ours: Location, theirs: Location) -> bool | None:
        if not (ours.is_line and theirs.is_line):
            return True  # the function is all that is known
        anchors = self._known.get(place_of(ours, self._checkouts[0])[0], ())
        expected = _moved(ours.line, anchors)
        if expected is not None:
            return expected == theirs.line
        return None if _moved(theirs.line, sorted((head, base) for base, head in anchors)) is None else False


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
    for block in SequenceMatcher(a=names[0], b=names[1], autojunk=False).get_matching_blocks():
        for place in range(block.size):
            lines[base[block.a + place][0]].append(head[block.b + place][0])
    return [(line, Counter(found).most_common(1)[0][0]) for line, found in sorted(lines.items())]


def _moved(line: int, anchors: Sequence[tuple[int, int]]) -> int | None:
    """The line of the other side; None if unknown: lines between two known ones moved as both did."""
    place = bisect_left(anchors, (line, 0))
    after = anchors[place] if place < len(anchors) else None
    if after is None or after[0] == line:
        return after[1] if after else None
    before = anchors[place - 1] if place else None
    is_between = before is not None and after[1] - after[0] == before[1] - before[0]
    return line + after[1] - after[0] if is_between else None


def _paired(
    base: list[CodePlace], head: list[CodePlace], moves: _Moves, times_ns: tuple[Times, Times]
) -> Iterator[Paired]:
    """The pairs of one function: those that are known by their calls, then the others in the order of lines."""
    left = list(head)
    rest: list[CodePlace] = []
    for one in base:
        owner = one.owner.line if one.owner else None
        alike = (other for other in left if (other.owner.line if other.owner else None) == owner)
        same = next((other for other in alike if moves.are_same(one, other)), None)
        if same is None:
            rest.append(one)
        else:
            left.remove(same)
            yield Paired(one, same)
    for ours, theirs in _in_order(rest, left, moves, times_ns):
        is_unknown = any(
            moves.are_same(ours or one, theirs or one) is not False for one in (head if theirs is None else base)
        )
        yield Paired(ours, theirs, may_have_moved=(ours is None or theirs is None) and is_unknown)


def _in_order(
    base: list[CodePlace], head: list[CodePlace], moves: _Moves, times_ns: tuple[Times, Times]
) -> Iterator[tuple[CodePlace | None, CodePlace | None]]:
    """The pairs, in the order of lines, with the least sum of differences (dynamic programming)."""
    if len(base) * len(head) > MOST_ALIGNED**2:
        yield from (*((one, None) for one in base), *((None, one) for one in head))
        return
    base_ns, head_ns = times_ns
    are_only = len(base) == len(head) == 1
    cost = [[0.0] * (len(head) + 1) for _ in range(len(base) + 1)]

    def may_be_same(one: CodePlace, other: CodePlace) -> bool:
        """Whether two places are the same: by their calls; else alone, on the same lines, or with a similar time."""
        same, times = moves.are_same(one, other), (base_ns[one], head_ns[other])
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
