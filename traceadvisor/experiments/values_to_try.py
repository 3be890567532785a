"""The batch sizes, numbers of workers and switches that a sweep tries by itself."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from traceadvisor.experiments.curves import Knee, knee, noise, points
from traceadvisor.experiments.journal import AnyRow, Facts, Failed, rounds_of
from traceadvisor.experiments.plan import Experiment
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, WORKERS, Value

DEFAULT_SWITCHES: tuple[tuple[str, Value], ...] = (
    ("prefetch_factor", 4),
    ("pin_memory", True),
    ("amp", "bfloat16"),
    ("tf32", True),
    ("cudnn_benchmark", True),
    ("fused", True),
    ("channels_last", True),
)
"""Switches that a sweep tries by itself. Compiling may take minutes, so it is tried where it is asked for."""

LONGEST_AXIS = 16
"""Factor of the largest batch size that is tried by itself over the script's own."""

MOST_WORKERS_PER_CORE = 4
MEMORY_LIMIT = 0.95
"""A batch size that is expected to need more than this share of the memory is not tried."""

GOOD_MEMORY = 0.8
"""Share of the memory that a recommended batch size may need."""


def first_values(axis: str, facts: Facts) -> tuple[Value, ...]:
    """The values of the first experiment of an axis: around the script's own."""
    if axis == WORKERS:
        own = facts.loader.get(WORKERS, 0)
        return tuple(sorted({0, 1, 2, min(4, _most_workers(facts)), int(own)}))
    own_size = facts.loader.get(BATCH_SIZE)
    if axis != BATCH_SIZE or not isinstance(own_size, int):
        return ()
    sizes = {max(own_size // 2, 1), own_size, 2 * own_size, 4 * own_size}
    sizes -= {*too_large(facts)}
    return tuple(size for size in sorted(sizes) if size == own_size or _fits(size, facts))


def further_values(axis: str, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts) -> tuple[Value, ...]:
    """Larger values while the largest is the best by far; then those between the last poor and the first good one."""
    found = curve_of(axis, done, rows, facts)
    measured = {value for one in done for arm in one.arms.values() if (value := arm.count(axis)) is not None}
    own = own_value(axis, facts)
    measured |= {own} if own is not None else set()
    if found is None:
        return ()
    if found.value == found.best == max(measured) and max(failed_at(axis, done, rows), default=0) <= found.best:
        limit = _most_workers(facts) if axis == WORKERS else LONGEST_AXIS * int(facts.loader[BATCH_SIZE])
        larger = [value for value in (2 * found.best, 4 * found.best) if value <= limit]
        if axis == BATCH_SIZE:
            larger = [size for size in larger if _fits(size, facts) and _fits_memory(size, done, rows, facts)]
        if larger:
            return (found.best, *larger)
    if axis == WORKERS:
        below = max((value for value in measured if value < found.value), default=found.value)
        between = [value for value in range(below + 1, found.value) if value not in measured]
        return tuple(sorted({*between[:: max(1, len(between) // 3)], found.value})) if between else ()
    return ()


def failed_at(axis: str, done: Sequence[Experiment], rows: list[AnyRow], *, by_memory: bool = False) -> list[int]:
    """The values of an axis with which the script failed; ``by_memory``: only those with which memory ran out."""
    settings = {(one.name, arm): changed for one in done for arm, changed in one.arms.items()}
    failed = [row for row in rows if isinstance(row, Failed) and (row.out_of_memory or not by_memory)]
    counts = [settings[key].count(axis) for row in failed if (key := (row.experiment, row.arm)) in settings]
    return [count for count in counts if count is not None]


def _fits(size: int, facts: Facts) -> bool:
    """Whether the dataset has enough samples for a batch of that size."""
    return facts.dataset_length is None or size <= facts.dataset_length


def forecast_bytes(size: int, facts: Facts) -> float | None:
    """Memory for a batch size, by the script's own steps: all that is not state grows with it."""
    own = facts.loader.get(BATCH_SIZE)
    if facts.peak_bytes is None or facts.state_bytes is None or not isinstance(own, int):
        return None
    return facts.state_bytes + (facts.peak_bytes - facts.state_bytes) * size / own


def too_large(facts: Facts) -> dict[int, float]:
    """The first larger batch sizes that would not fit into the memory, with the bytes that they need."""
    own = facts.loader.get(BATCH_SIZE)
    sizes = [2 * own, 4 * own] if isinstance(own, int) else []
    needed = {size: forecast_bytes(size, facts) for size in sizes}
    return {size: one for size, one in needed.items() if one is not None and not _is_free(one, facts)}


def _is_free(needed: float, facts: Facts) -> bool:
    limits = [one for one in (facts.memory_bytes, facts.available_bytes) if one is not None]
    return not limits or needed <= MEMORY_LIMIT * min(limits)


def _fits_memory(size: int, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts) -> bool:
    known = [one for one in (memory_at(size, done, rows), forecast_bytes(size, facts)) if one is not None]
    return not known or _is_free(max(known), facts)


def memory_line(done: Sequence[Experiment], rows: list[AnyRow]) -> tuple[float, float] | None:
    """Bytes at batch size 0, and bytes per sample, by least squares; None with fewer than three batch sizes."""
    peaks: dict[int, list[int]] = {}
    for one in done:
        for row in rounds_of(rows, one.name):
            for arm, peak in row.peak_bytes.items():
                size = one.arms[arm].count(BATCH_SIZE) if arm in one.arms else None
                if size is not None:
                    peaks.setdefault(size, []).append(peak)
    if len(peaks) < 3:
        return None
    highest = {size: max(values) for size, values in peaks.items()}
    middle_x, middle_y = fmean(highest), fmean(highest.values())
    slope = sum((x - middle_x) * (y - middle_y) for x, y in highest.items()) / sum((x - middle_x) ** 2 for x in highest)
    return (middle_y - slope * middle_x, slope) if slope > 0 else None


def memory_at(size: int, done: Sequence[Experiment], rows: list[AnyRow]) -> float | None:
    """Expected peak memory at a batch size, in bytes."""
    line = memory_line(done, rows)
    return None if line is None else line[0] + line[1] * size


def own_value(axis: str, facts: Facts) -> int | None:
    """The script's own number on an axis, which each round measures as the base; None if it is unknown."""
    own = facts.loader.get(axis)
    return own if isinstance(own, int) and not isinstance(own, bool) else None


def curve_of(axis: str, experiments: Sequence[Experiment], rows: list[AnyRow], facts: Facts) -> Knee | None:
    """The knee over all experiments of an axis, the script's own value included."""
    rounds = rounds_of(rows, *(one.name for one in experiments))
    found = points(rounds)
    values = {
        settings.count(axis): found[arm]
        for one in experiments
        for arm, settings in one.arms.items()
        if arm in found and not settings[CACHED]
    }
    own = own_value(axis, facts)
    if rounds and own is not None:
        values.setdefault(own, {(row.experiment, number): 0.0 for number, row in enumerate(rounds)})
    return knee({value: point for value, point in values.items() if value is not None}, noise(found))


def _most_workers(facts: Facts) -> int:
    return max(MOST_WORKERS_PER_CORE * facts.cores, 4)
