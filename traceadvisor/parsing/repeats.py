"""Leaves out files that hold only what other files hold: copies that tools write beside the recordings of torch.

HolisticTraceAnalysis writes all events again with counters (``generate_trace_with_counters``), or those of the critical
path (``overlay_critical_path_analysis``), under the source's name behind a word of its own. Composer by MosaicML
(``JSONTraceHandler``) writes its own events and those of torch for each cycle, and all cycles and ranks in one file.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from traceadvisor.errors import InputError
from traceadvisor.model.health import HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.beginning import first_bytes, stated_rank
from traceadvisor.parsing.input_bytes import open_bytes, state_of
from traceadvisor.parsing.xplane import XPLANE
from traceadvisor.text.secrets import beginning

TORCH_NAME = re.compile(r"(?P<stem>.+?)\.pt\.trace\.json(?:\.gz)?\Z", re.DOTALL)
"""Names that ``tensorboard_trace_handler`` gives."""

_ENDS = re.compile(r"(?<=_)(?=(?P<end>[^_].*))", re.DOTALL)
"""The ends of a name behind each underscore."""

Event = tuple[str, float, float]
"""Name, start and duration of an event."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|\A\s*\[')
_SEARCHED_BYTES = 1 << 20
"""Names of threads stand before the first event: more than 64 kB in recordings of many threads."""

_COMPARED_EVENTS = 8
"""Events that two files must begin with; their times are exact to a nanosecond, in old recordings to a microsecond."""

_MARK = re.compile(rb'"ProfilerStep#(\d{1,18})"[^{}]{0,400}?"dur"\s*:\s*(\d{1,18}(?:\.\d{1,18})?)\s*[,}]')
_MARK_BYTES = 512
_FIRST_BYTES = 64
_MOST_MARKS = 100_000
_MOST_FILES = 1 << 10
_MOST_NAMED = 3


def without_repeats(origins: Sequence[Origin], limits: Limits = LIMITS) -> tuple[list[Origin], list[HealthNote]]:
    """The same recordings without files that hold only what other files hold, and a note that names those.

    Folders in which torch named all files are not looked into.
    """
    of_torch = (one.path for one in origins if one.bundle is None and one.rank is None)
    paths = [path for path in of_torch if not path.name.endswith(XPLANE)]
    lists = [path for path in paths if len(paths) > 1 and _is_bare_list(path)]
    others = [path for path in paths if path not in lists]
    runs = {run: [path for path in others if _is_below(path, run)] for run in dict.fromkeys(map(_run, lists))}
    held_by: dict[Path, Path] = {}
    for beside in (*_folders(others), *runs.values()):
        held_by |= _copies([path for path in beside if path not in held_by], limits)
    held_by |= _excerpts([path for path in others if path not in held_by], limits)
    for run, sources in runs.items():
        held_by |= _joined([path for path in lists if _run(path) == run], sources, limits)
    return [one for one in origins if one.path not in held_by], [_note(held_by)] if held_by else []


def _is_bare_list(path: Path) -> bool:
    """Whether a file is a list of events without the members of torch, as tools write that join recordings."""
    return TORCH_NAME.match(path.name) is None and (first_bytes(path, _FIRST_BYTES) or b"").lstrip()[:1] == b"["


def _run(path: Path) -> Path:
    """The folder of all that Composer writes in a run: it has a folder for its own files and one for those of torch."""
    return path.parent.parent


def _is_below(path: Path, run: Path) -> bool:
    return run in (path.parent, path.parent.parent)


def _folders(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """The files of each folder that may hold copies, by their names."""
    folders: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    for beside in folders.values():
        stems = [named["stem"] if (named := TORCH_NAME.match(path.name)) else None for path in beside]
        if len(beside) > 1 and (None in stems or len(set(stems)) < len(stems)):
            yield beside


def _note(held_by: dict[Path, Path]) -> HealthNote:
    named = [f"{beginning(copy.name)} (as {beginning(source.name)})" for copy, source in held_by.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    which = "1 file was" if len(named) == 1 else f"{len(named)} files were"
    message = f"{which} left out, because other files hold the same recordings: {', '.join(named[:_MOST_NAMED])}{more}."
    return HealthNote("recording-repeated", message, degrades=False)


def _copies(paths: Sequence[Path], limits: Limits) -> dict[Path, Path]:
    """Each file that begins with the events of another one and has no other step marks, and that one."""
    sources: defaultdict[Event, list[Path]] = defaultdict(list)
    held_by: dict[Path, Path] = {}
    for path in sorted(paths, key=_likeness_to_source):
        for first in first_events(path)[:1]:
            source = next((one for one in sources[first] if _is_copy(path, one, limits)), None)
            if source:
                held_by[path] = source
            else:
                sources[first].append(path)
    return held_by


def _excerpts(paths: Sequence[Path], limits: Limits) -> dict[Path, Path]:
    """Each file that is named for another one beside it, with a word before, and has its rank and step marks."""
    known = {(path.parent, path.name): path for path in paths}
    named = ((path, known.get((path.parent, end))) for path in paths for end in _ENDS.findall(path.name))
    return {path: source for path, source in named if source and _is_excerpt(path, source, limits)}


def _is_excerpt(path: Path, source: Path, limits: Limits) -> bool:
    same_rank = stated_rank(path).rank == stated_rank(source).rank
    return same_rank and frozenset() < step_marks(path, limits) <= step_marks(source, limits)


def _likeness_to_source(path: Path) -> tuple[bool, int, str]:
    """Sorts files with the same recording, first the one to read: named by torch, else with the shortest name."""
    return TORCH_NAME.match(path.name) is None, len(path.name.removesuffix(".gz")), path.name


def _is_copy(path: Path, source: Path, limits: Limits) -> bool:
    ranks = {stated_rank(path).rank, stated_rank(source).rank} - {None}
    pairs = zip(first_events(path), first_events(source), strict=False)
    begins_alike = len(ranks) < 2 and all(one == other for one, other in pairs)
    return begins_alike and step_marks(path, limits) <= step_marks(source, limits)


def _joined(lists: Iterable[Path], sources: Iterable[Path], limits: Limits) -> dict[Path, Path]:
    """Each list of events whose step marks all are in other files, and one of those."""
    known = {mark: path for path in sources for mark in step_marks(path, limits)}
    held_by: dict[Path, Path] = {}
    for path in sorted(lists, key=lambda one: len(step_marks(one, limits))):  # each cycle, then all of them
        marks = step_marks(path, limits)
        if marks and marks <= known.keys():
            held_by[path] = known[min(marks)]
        known |= dict.fromkeys(marks - known.keys(), path)
    return held_by


def first_events(path: Path) -> tuple[Event, ...]:
    """The first timed events of a file; a file that did not change is read once."""
    try:
        return _first_events(path, state_of(path.stat()))
    except OSError:
        return ()


@lru_cache(_MOST_FILES)
def _first_events(path: Path, _: tuple[int, ...]) -> tuple[Event, ...]:
    begin = first_bytes(path, _SEARCHED_BYTES) or b""
    found = _EVENTS.search(begin)
    members = _members(begin[found.end() :].decode("utf-8", "replace")) if found else ()
    timed = (event for member in members if (event := _event(member)))
    return tuple(islice(timed, _COMPARED_EVENTS))


def _members(text: str) -> Iterator[Any]:
    """The members of a JSON list, as far as they are whole."""
    decode, at = json.JSONDecoder().raw_decode, 0
    while True:
        try:
            member, at = decode(text, _behind_comma(text, at))
        except (ValueError, RecursionError):
            return
        yield member


_BETWEEN = re.compile(r"[\s,]*")


def _behind_comma(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _event(member: Any) -> Event | None:
    if not isinstance(member, dict) or member.get("ph") != "X":
        return None
    try:
        return str(member["name"]), float(member["ts"]), float(member["dur"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


Mark = tuple[int, float]
"""Number and duration of a step mark: they stay the same when process and clock of an event are changed."""


def step_marks(path: Path, limits: Limits = LIMITS) -> frozenset[Mark]:
    """The step marks of a file; empty if it cannot be read to its end. A file that did not change is read once."""
    try:
        return _step_marks(path, state_of(path.stat()), limits)
    except (OSError, InputError):
        return frozenset()


@lru_cache(_MOST_FILES)
def _step_marks(path: Path, _: tuple[int, ...], limits: Limits) -> frozenset[Mark]:
    found: set[Mark] = set()
    left = b""
    with open_bytes(path, limits) as stream:
        for piece in stream.pieces():
            text = left + piece
            found.update((int(number), float(duration)) for number, duration in _MARK.findall(text))
            left = text[-_MARK_BYTES:]
            if len(found) > _MOST_MARKS:
                return frozenset()
        return frozenset() if stream.ended_early else frozenset(found)
