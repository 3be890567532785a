"""Whether what a fix changes was changed between two sides: settings, iterators, lines, operators, launches.

That a check passes now is no sign: another finding may cover the time, a limit may have been changed, or a saving may
have fallen below it by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import TypeVar

from traceadvisor.comparing.pairing import Capture
from traceadvisor.comparing.work import padded_share
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import Purpose
from traceadvisor.model.comparison import ChangeSign, Side
from traceadvisor.model.explanation import RowChange, StepExplanation
from traceadvisor.model.findings import Clear, Fix, Location
from traceadvisor.model.location import MODULE
from traceadvisor.model.origins import Origins
from traceadvisor.model.report import Recording
from traceadvisor.model.run import LoaderSettings, RunSettings
from traceadvisor.model.step_contents import MOST_NAMES, CountRow, StepContents, calls_of

FELL = 0.5
"""Operators that run at most this often were taken out: counts hardly differ by chance."""

NAMED = 1 / 3
"""Share of some time whose operators must be known: a table names few of many short ones."""

INSTEAD = 0.9
"""Operators that came in place of others take at most this share of their time, or nothing was taken out."""

LEFT = 1 / 3
"""Time between two operators of which at most this share is left: other code ran there."""

LESS = 0.8
"""From this share of the kernels on, a compiler fused some; two recordings of one program agree within 2%."""

CORES_SHARE = 0.25
"""Kernel time that moved to tensor cores, as a share."""

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "num_workers": ("worker_count",),
    "amp": ("autocast_dtype", "grad_scaler"),
    "tf32": ("matmul_tf32", "cudnn_tf32"),
    "fused": ("optimizer_fused",),
    "foreach": ("optimizer_foreach",),
}
"""Settings of fixes that a recording holds under other names."""

_OF_RULES: Mapping[str, tuple[str, ...]] = {
    "DATA007": ("persistent_workers",),
    "IDLE007": ("detect_anomaly", "cuda_sync_debug_mode"),
    "IDLE011": ("torch_threads",),
}
"""Settings that the fix of a rule changes where the fix itself names none."""

_LAUNCHES, _FUSED = frozenset({"IDLE002", "IDLE003"}), frozenset({"GPU006", "GPU011"})
_COLLECTIVES: Mapping[str, frozenset[Purpose]] = {
    "DIST006": frozenset(Purpose),
    "DIST013": frozenset({Purpose.BUFFERS}),
    "DIST016": frozenset({Purpose.GRADIENTS}),
    "DIST018": frozenset({Purpose.BOOKKEEPING, Purpose.BARRIER}),
}
_TYPES = "GPU015"
"""The rule about operators of a number type, of which none may be left."""

_PADDED = "DATA013"
"""The rule about padding, which a capture measures in batches."""

_STREAMS, _COMMUNICATION = "DIST017", "DIST"
"""Rules whose fix changes launches, kernels, collectives or their streams."""

_REPLACED: Mapping[str, re.Pattern[str]] = {
    "GPU004": re.compile("softmax", re.IGNORECASE),
    "GPU007": re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_\d", re.IGNORECASE),
}
"""Kernels that the fix of a rule replaces, by name, also within graphs and compiled code."""

_ONLY = frozenset({"amp", "tf32", "pin_memory", "non_blocking", "set_to_none"})
"""Settings that show in kernels and copies, if they were not recorded."""

_COPIES = (("pin_memory", "pageable"), ("set_to_none", "memset"))
"""Settings that take out copies or memsets, and the word in their names."""

_LOADER, _LOADING = "num_workers", "DATA"

T = TypeVar("T")

_MAY_BE_NONE = frozenset({"autocast_dtype"})
"""Settings of which None means off, if any were recorded."""

_ARGUMENTS = frozenset({"optimizer_fused", "optimizer_foreach"})
"""Arguments of an optimizer, of which None means the default."""


@frozen
class Gone:
    """Code that one side runs and the other does not."""

    lines: frozenset[tuple[str, int]] = frozenset()
    """File and line."""

    names: frozenset[str] = frozenset()
    """Names of operators, and of the time between two of them, in which other code runs."""


@frozen
class Sides:
    """The captures with a finding, and those without it."""

    having: Sequence[Capture]
    missing: Sequence[Capture]
    gone: Gone
    """Code that only the side with the finding runs."""

    edited: frozenset[tuple[str, int]] = frozenset()
    """File and line that only the side with the finding has, where captures recorded both."""

    is_unchanged: bool = False
    """Whether both sides are known to have the same code, command and settings: no fix was made."""


def change_sign(
    rule_id: str, fix: Fix, origins: Origins | None, places: Iterable[Location], sides: Sides
) -> ChangeSign | None:
    """Return the sign that what a fix changes was changed; None without one."""
    proposed = [name for name, value in fix.settings.items() if not _is_set(sides.having, name, value)]
    settings = (*proposed, *_OF_RULES.get(rule_id, ()))
    differ = [_differs(sides, name) for name in ((_LOADER,) if _LOADER in settings else settings)]
    if True in differ:
        return ChangeSign.SETTING
    if _LOADER in settings or False in differ:
        return ChangeSign.LOADER if _LOADER in settings and _has_other_iterators(sides) else None
    if rule_id == _PADDED and _less(padded_share(sides.having), padded_share(sides.missing), FELL):
        return ChangeSign.PADDING
    base, head = _contents(sides.having), _contents(sides.missing)
    if rule_id in {*_LAUNCHES, *_FUSED, *_REPLACED} or rule_id.startswith(_COMMUNICATION) or _ONLY & {*settings}:
        signs = _of_kind(rule_id, settings, base, head, sides) if base and head else {}
        return next((sign for sign, is_there in signs.items() if is_there), None)
    if base and head and (_are_typed(rule_id, head, sides) or (origins and _ran_less(origins, base, head, sides))):
        return ChangeSign.OPERATORS
    moved = rule_id.startswith(_LOADING) and bool(_differs(sides, _LOADER))
    return None if moved else _of_lines(tuple(places), origins, base, sides)


def _are_typed(rule_id: str, head: StepContents, sides: Sides) -> bool:
    """Whether no operator of a number type is left. Shapes and number types are recorded together."""
    outcomes = [row.outcome for capture in sides.missing for row in capture.outcomes.get(rule_id, ())]
    are_none = [isinstance(one, Clear) and not one.value for one in outcomes]
    return rule_id == _TYPES and bool(head.inputs and are_none) and all(are_none)


def _of_lines(
    places: Sequence[Location], origins: Origins | None, base: StepContents | None, sides: Sides
) -> ChangeSign | None:
    spots = {(one.file, one.line) for one in places}
    if spots & sides.edited:
        return ChangeSign.EDITED
    if spots & sides.gone.lines or _are_gone(origins, base, sides.gone):
        return ChangeSign.LINES
    return ChangeSign.FUNCTION if _is_function_edited(places, sides) else None


def _is_function_edited(places: Iterable[Location], sides: Sides) -> bool:
    """Whether a function with one of some places was edited, as far as captures tell where it begins and ends."""
    own = {(one.file, one.function) for one in places if one.function != MODULE}
    runs = [one.captured.stacks for capture in sides.having for one in capture.recordings if one.captured]
    calls = [call for stacks in runs if stacks for call in stacks.only_calls if (call.file, call.function) in own]
    return any(
        call.file == file and call.first_line <= line <= call.last_line for call in calls for file, line in sides.edited
    )


def _are_gone(origins: Origins | None, base: StepContents | None, gone: Gone) -> bool:
    """Whether most of some time outside of operators is gone: that of the code between two of them."""
    operators = {row.name for row in base.operators} if base else set[str]()
    rows = origins.operators.rows if origins else ()
    named_ns = sum(row.total_ns for row in rows if row.name in gone.names - operators)
    return origins is not None and named_ns >= FELL * origins.total_ns > 0


def _of_kind(
    rule_id: str, settings: Iterable[str], base: StepContents, head: StepContents, sides: Sides
) -> Mapping[ChangeSign, bool]:
    """The signs for a fix that changes launches, kernels, copies or collectives."""
    purposes, words = _COLLECTIVES.get(rule_id), [word for name, word in _COPIES if name in settings]
    calls = [_collectives(side, purposes) if purposes else 0.0 for side in (sides.having, sides.missing)]
    cores = [_on_tensor_cores(side) for side in (sides.having, sides.missing)]
    replaced = [_matching(one, _REPLACED[rule_id]) if rule_id in _REPLACED else 0.0 for one in (base, head)]
    copies = [(_named(base.operations, word), _named(head.operations, word)) for word in words]
    return {
        ChangeSign.LAUNCHES: rule_id in _LAUNCHES and _less(base.launches_per_step, head.launches_per_step, FELL),
        ChangeSign.KERNELS: (rule_id in _FUSED and _less(calls_of(base.operations), calls_of(head.operations), LESS))
        or (bool({"amp", "tf32"} & {*settings}) and cores[1] - cores[0] >= CORES_SHARE)
        or (rule_id in _REPLACED and _less(replaced[0], replaced[1], FELL)),
        ChangeSign.STREAMS: rule_id == _STREAMS and head.collective_streams > base.collective_streams,
        ChangeSign.COLLECTIVES: _less(calls[0], calls[1], FELL),
        ChangeSign.COPIES: any(_less(before, after, FELL) for before, after in copies),
    }


def _less(base: float | None, head: float | None, share: float) -> bool:
    return bool(base) and head is not None and head <= share * (base or 0.0)


def _matching(contents: StepContents, pattern: re.Pattern[str]) -> float:
    return calls_of(row for row in contents.operations if pattern.search(row.name))


def _named(rows: Iterable[CountRow], word: str) -> float:
    return calls_of(row for row in rows if word in row.name.lower())


def _collectives(side: Iterable[Capture], purposes: frozenset[Purpose]) -> float:
    """Calls per step of a rank, mean over captures and ranks."""
    recordings = [one.communication for capture in side for one in capture.recordings]
    rows = chain.from_iterable(recordings)
    return sum(row.calls_per_step for row in rows if row.purpose in purposes) / max(len(recordings), 1)


def _on_tensor_cores(side: Iterable[Capture]) -> float:
    """Share of the kernel time."""
    rows = [row for capture in side for one in capture.recordings for row in one.kernels]
    whole = sum(row.total_ns_per_step for row in rows)
    return sum(row.total_ns_per_step for row in rows if row.tensor_cores) / whole if whole else 0.0


def _contents(side: Iterable[Capture]) -> StepContents | None:
    return next((one.contents for capture in side for one in capture.recordings if one.contents), None)


def _ran_less(origins: Origins, base: StepContents, head: StepContents, sides: Sides) -> bool:
    """Whether the operators with most of the named time, or around it, were taken out, and the others were not.

    Others that came in their place and take as long are the same time under other names.
    """
    if _less(calls_of(base.operators), calls_of(head.operators), FELL):
        return False  # all were: compiled code or graphs run the same kernels
    fell = _fewer(base, head)
    rows = origins.operators.rows
    fallen_ns = sum(row.total_ns for row in rows if row.operators & fell)
    named_ns = sum(row.total_ns for row in rows)
    is_most = fallen_ns >= FELL * named_ns and fallen_ns >= NAMED * origins.total_ns > 0
    return is_most and _ran(sides.missing, _fewer(head, base)) <= INSTEAD * fallen_ns / origins.step_count


def _ran(side: Iterable[Capture], names: Set[str]) -> float:
    """Time per step of some operators, or around them, mean over captures and ranks."""
    recordings = [one for capture in side for one in capture.recordings]
    found = [
        row.total_ns / origins.step_count
        for one in recordings
        for origins in one.origins.values()
        for row in origins.operators.rows
        if row.operators & names
    ]
    return sum(found) / max(len(recordings), 1)


def fewer_operators(base: Sequence[Capture], head: Sequence[Capture]) -> frozenset[str]:
    """Return the operators that HEAD runs at most half as often as BASE; none if that is unknown."""
    before, after = _contents(base), _contents(head)
    return _fewer(before, after) if before and after else frozenset()


def runs_fewer(base: Sequence[Capture], head: Sequence[Capture]) -> bool:
    """Return whether HEAD is known to run at most half as many operators per step as BASE."""
    before, after = _contents(base), _contents(head)
    return bool(
        before and after and after.operators and _less(calls_of(before.operators), calls_of(after.operators), FELL)
    )


def _fewer(base: StepContents, head: StepContents) -> frozenset[str]:
    calls = [{row.name: row.per_step for row in side.operators} for side in (base, head)]
    hidden = min(calls[1].values(), default=0.0) if len(calls[1]) >= MOST_NAMES else 0.0
    return frozenset(name for name, before in calls[0].items() if calls[1].get(name, hidden) <= FELL * before)


def changed_parts(base: Sequence[Capture], head: Sequence[Capture]) -> frozenset[Category]:
    """The categories of a step whose time a recorded change may have taken out or brought in."""
    sides, found = Sides(base, head, Gone()), set[Category]()
    if _differs(sides, _LOADER) or _has_other_iterators(sides):
        found.add(Category.DATA_WAIT)
    if _differs(sides, "detect_anomaly"):
        found |= {Category.FORWARD, Category.BACKWARD}
    contents = _contents(base), _contents(head)
    before, after = (one.launches_per_step if one else None for one in contents)
    if _less(before, after, FELL) or _less(after, before, FELL):
        found |= {Category.IDLE_LAUNCH, Category.IDLE_HOST}
    return frozenset(found)


# -- settings ---------------------------------------------------------------------------------------------------------


def _values(side: Iterable[Capture], of: Callable[[Recording], T | None]) -> set[T]:
    return {found for capture in side for one in capture.recordings if (found := of(one)) is not None}


def _has_other_iterators(sides: Sides) -> bool:
    """Whether the sides have data loaders of different kinds."""
    kinds = [_values(side, lambda one: one.loader_kinds or None) for side in (sides.having, sides.missing)]
    return bool(kinds[0] and kinds[1]) and not kinds[0] & kinds[1]


def _differs(sides: Sides, name: str) -> bool | None:
    """Whether a setting differs between the sides; None where a side does not know it."""
    known = [
        (base, head)
        for recorded in _SETTINGS.get(name, (name,))
        for base, head in [tuple(_set(side, recorded) for side in (sides.having, sides.missing))]
        if base and head
    ]
    return any(not base & head for base, head in known) if known else None


def _is_set(side: Iterable[Capture], name: str, value: object) -> bool:
    """Whether a side is known to have the value of a setting."""
    recorded, *others = _SETTINGS.get(name, (name,))
    return not others and _set(side, recorded) == {value}


def _set(side: Iterable[Capture], name: str) -> set[object]:
    """The values of a setting in the captures of a side; empty where it is unknown."""
    runs = [one.captured.settings for capture in side for one in capture.recordings if one.captured]
    found: set[object] = set()
    for settings in runs:
        owner: RunSettings | LoaderSettings | None = settings if hasattr(settings, name) else settings.loader
        value = getattr(owner, name, None)
        is_off = name in _MAY_BE_NONE and settings.torch_version is not None
        if value is not None or is_off or (name in _ARGUMENTS and settings.optimizer is not None):
            found.add(value)
    return found


def gone_on(explained: StepExplanation | None, side: Side) -> Gone:
    """Return what only one side runs, by the tables of the recorded and the undisturbed step."""
    if explained is None:
        return Gone()
    tables = (explained.whole.lines, explained.sampled_lines)
    rows = [row for table in tables if table for row in table.rows if row.is_only_in_one]
    places = [row.base if side is Side.BASE else row.head for row in rows]
    spots = [spot for place in places if place for spot in (place.line, place.until, place.inner)]
    names = [_gone_name(row, side) for row in (explained.whole.operators.rows if explained.whole.operators else ())]
    return Gone(
        frozenset((spot.file, spot.line) for spot in spots if spot and spot.line), frozenset(filter(None, names))
    )


def _gone_name(row: RowChange, side: Side) -> str | None:
    """The name of a row whose time on the other side is a fraction of that on this one; None if it is not."""
    times_ns = [row.hidden_ns if ns is None else ns for ns in (row.base_ns, row.head_ns)]
    here, there = times_ns if side is Side.BASE else times_ns[::-1]
    return row.name if there <= LEFT * here else None
