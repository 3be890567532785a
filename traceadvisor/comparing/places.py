"""Places in the code that are the same in both sides: by file and function, whatever their lines.

A change of the code moves lines. So within one function, the lines of both sides are put beside each other in order,
with the least difference of their times; a line that is left over is new or gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePath

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace, Frame, Location
from traceadvisor.model.report import Recording

_INSTALLED = re.compile(r"^.*[/\\](?:site-packages|dist-packages)[/\\]|^.*[/\\]lib[/\\]python\d[\d.]*[/\\]")

Place = tuple[str, str | None]
"""File relative to the repository, and function. The script is one file, whatever it is called on a side."""

Times = Mapping[CodePlace, float]
"""Nanoseconds per step by place."""

SIMILAR_SHARE = 1 / 3
"""A line that moved keeps at least this share of its time; with less, it is another line."""

MOST_ALIGNED = 100
"""Lines of one function whose order is compared; the longest table of a report has far fewer."""


@frozen
class Checkout:
    """The code of a side."""

    root: str | None
    """Root of its repository; None if unknown."""

    script: str | None
    """File of the script, relative to it; None if unknown."""


def checkout_of(recording: Recording) -> Checkout | None:
    """The code of a recording; None without a capture."""
    run = recording.captured
    if run is None:
        return None
    root = run.repository.root if run.repository else None
    script = next((word for word in run.command[:1] if word.endswith(".py")), None)
    return Checkout(root, relative_file(script, root) if script else None)


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


Paired = tuple[CodePlace | None, CodePlace | None]


def aligned(base: Times, head: Times, base_checkout: Checkout | None, head_checkout: Checkout | None) -> list[Paired]:
    """The places of both sides in pairs; None for the side that does not list one."""
    groups: defaultdict[tuple[object, ...], tuple[list[CodePlace], list[CodePlace]]] = defaultdict(lambda: ([], []))
    for side, (times, checkout) in enumerate(((base, base_checkout), (head, head_checkout))):
        for place in times:
            groups[key_of(place, checkout)][side].append(place)
    pairs: list[Paired] = []
    for ours, theirs in groups.values():
        pairs += _in_order(sorted(ours, key=_lines), sorted(theirs, key=_lines), base, head)
    return pairs


def _lines(place: CodePlace) -> tuple[int, ...]:
    spots = (place.line, place.until, place.inner, place.owner)
    return tuple((spot.line or 0) if spot else 0 for spot in spots)


def _in_order(base: list[CodePlace], head: list[CodePlace], base_ns: Times, head_ns: Times) -> list[Paired]:
    """The pairs, in the order of lines, with the least sum of differences (dynamic programming)."""
    if len(base) * len(head) > MOST_ALIGNED**2:
        return [*((one, None) for one in base), *((None, one) for one in head)]
    cost = [[0.0] * (len(head) + 1) for _ in range(len(base) + 1)]

    def ways(cell: tuple[int, int]) -> list[tuple[float, int, int, int]]:
        """Ways to go on from a cell: total cost, preference, and steps in both sequences."""
        row, column = cell
        found = []
        if row < len(base) and column < len(head) and _may_be_same(base[row], head[column], base_ns, head_ns):
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
    pairs: list[Paired] = []
    row = column = 0
    while row < len(base) or column < len(head):
        _, _, one, other = min(ways((row, column)))
        pairs.append((base[row] if one else None, head[column] if other else None))
        row, column = row + one, column + other
    return pairs


def _may_be_same(one: CodePlace, other: CodePlace, base_ns: Times, head_ns: Times) -> bool:
    """Whether two places of one function are the same: on the same lines, or moved with a similar time."""
    times = (base_ns[one], head_ns[other])
    return _lines(one) == _lines(other) or min(times) >= SIMILAR_SHARE * max(times)
