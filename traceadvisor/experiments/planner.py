"""Decides what to measure next, from the plan and the rows so far. It keeps no state of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from traceadvisor.experiments.curves import Knee, compared, knee, points, rounds_of
from traceadvisor.experiments.journal import AnyRow, Facts, Failed, is_finished, left_out
from traceadvisor.experiments.plan import Axis, Experiment, Plan
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, KNOBS, WORKERS, Settings, Value
from traceadvisor.statistics import Verdict

SWITCHES, COMBINED, FIXES, PROCESSES = "settings", "combinations", "fixes", "processes"
ALL_FIXES = "all fixes"

DEFAULT_SWITCHES: tuple[tuple[str, Value], ...] = (
    ("prefetch_factor", 4),
    ("pin_memory", True),
    ("amp", "bfloat16"),
    ("tf32", True),
    ("cudnn_benchmark", True),
    ("fused", True),
    ("channels_last", True),
)
"""What a sweep tries by itself. Compiling may take minutes, so it is tried where it is asked for."""

LONGEST_AXIS = 16
"""Factor of the largest batch size that is tried by itself over the script's own."""

MOST_WORKERS_PER_CORE = 4
MEMORY_LIMIT = 0.95
"""A batch size that is expected to need more than this share of the memory is not tried."""

LOADER_BOUND_SHARE = 0.05
"""With less to gain from a loader that takes no time, no number of workers helps."""

GOOD_MEMORY = 0.8
MOST_COMBINED = 4


def is_loader_bound(facts: Facts) -> bool:
    """Whether a faster loader would shorten the step, by the first steps; True if unknown."""
    return facts.loader_share is None or facts.loader_share >= LOADER_BOUND_SHARE


def axes_of(plan: Plan, facts: Facts) -> tuple[Axis, ...]:
    """The axes in the order of measuring."""
    if not plan.by_importance or is_loader_bound(facts):
        return plan.axes
    return tuple(axis for axis in plan.axes if axis.name != WORKERS)


def next_experiment(plan: Plan, rows: list[AnyRow], facts: Facts) -> Experiment | None:
    """The first experiment of the plan that needs more rounds; None if all are done."""
    return next((one for one in experiments(plan, rows, facts) if not is_finished(rows, one.name)), None)


def experiments(plan: Plan, rows: list[AnyRow], facts: Facts) -> Iterator[Experiment]:
    """All experiments so far, in order; the last may have just begun. Later ones follow from its rows."""
    if plan.separate_processes:
        yield in_processes(plan)
        return
    if plan.changes:
        yield _fixes(plan, facts)
        return
    base = Settings()
    for axis in axes_of(plan, facts):
        done: list[Experiment] = []
        while following := _of_axis(axis, base, done, rows, facts):
            yield following
            if not is_finished(rows, following.name):
                return
            done.append(following)
        base = base.having(recommended(axis.name, done, rows, facts))
    if switches := _switches(plan, base, facts):
        yield switches
        if not is_finished(rows, switches.name):
            return
    if plan.combine and (combined := _combined(rows, switches, base)):
        yield combined


def experiments_after(plan: Plan, experiment: Experiment, facts: Facts) -> float:
    """How many experiments are expected after this one: an axis without given values may take a second one."""
    if plan.changes:
        return 0.0
    axes = axes_of(plan, facts)
    names = [axis.name for axis in axes]
    later = axes[names.index(experiment.axis) + 1 :] if experiment.axis in names else ()
    is_first = experiment.name == experiment.axis
    mine = [axis for axis in axes if axis.name == experiment.axis and not axis.values and is_first]
    count = 0.8 * len(mine) + sum(1.0 if axis.values else 1.8 for axis in later)
    has_switches = bool(plan.switches or plan.all_switches)
    if experiment.axis and has_switches:
        count += 1.0
    if plan.combine and experiment.name != COMBINED and (len(axes) + has_switches > 1 or len(plan.switches) > 1):
        count += 0.5
    return count


def curve_of(axis: str, experiments: Sequence[Experiment], rows: list[AnyRow], *, cached: bool = False) -> Knee | None:
    """The knee over all experiments of an axis."""
    found = points(rounds_of(rows, (one.name for one in experiments)))
    values = {
        settings.count(axis): found[arm]
        for one in experiments
        for arm, settings in one.arms.items()
        if arm in found and bool(settings[CACHED]) is cached
    }
    return knee({value: point for value, point in values.items() if value is not None})


def recommended(axis: str, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts) -> Settings:
    """The knee of an axis where it is faster than the script's own value; else nothing."""
    found = curve_of(axis, done, rows)
    own = facts.loader.get(axis)
    if found is None or found.value == own:
        return Settings()
    arm = Settings.of({axis: found.value})
    result = compared(rounds_of(rows, (one.name for one in done)), arm.words())
    return arm if result and result.verdict is Verdict.FASTER else Settings()


def _of_axis(
    axis: Axis, base: Settings, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts
) -> Experiment | None:
    """The next experiment of an axis; None if the axis is done."""
    if axis.name in facts.unavailable:
        return None
    if axis.values:
        return None if done else _along(axis.name, axis.name, axis.values, base)
    values = _first_values(axis.name, facts) if not done else _further_values(axis.name, done, rows, facts)
    name = axis.name if not done else f"{axis.name} {len(done) + 1}"
    return _along(axis.name, name, values, base) if values else None


def _along(axis: str, name: str, values: Sequence[Value], base: Settings) -> Experiment:
    """An experiment over values of an axis, with the ceilings of loader and model."""
    arms = {settings.words(): settings for value in values if (settings := Settings.of({axis: value}))}
    loaders = dict(arms) if KNOBS[axis].name in (WORKERS, BATCH_SIZE) else {}
    if axis == BATCH_SIZE:
        arms |= {one.words(): one for arm in loaders.values() if (one := arm.having(Settings.of({CACHED: True})))}
    elif axis == WORKERS:
        cached = Settings.of({CACHED: True})
        arms[cached.words()] = cached
    return Experiment(name, axis, base, arms, loaders)


def _first_values(axis: str, facts: Facts) -> tuple[Value, ...]:
    if axis == WORKERS:
        own = facts.loader.get(WORKERS, 0)
        return tuple(sorted({0, 1, 2, min(4, _most_workers(facts)), int(own)}))
    own_size = facts.loader.get(BATCH_SIZE)
    if axis != BATCH_SIZE or not isinstance(own_size, int):
        return ()
    sizes = {max(own_size // 2, 1), own_size, 2 * own_size, 4 * own_size}
    sizes -= {*too_large(facts)}
    return tuple(size for size in sorted(sizes) if size == own_size or _fits(size, facts))


def _further_values(axis: str, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts) -> tuple[Value, ...]:
    """Larger values while the largest is the best by far; then those between the last poor and the first good one."""
    found = curve_of(axis, done, rows)
    measured = {value for one in done for arm in one.arms.values() if (value := arm.count(axis)) is not None}
    if found is None:
        return ()
    if found.value == found.best == max(measured) and not _failed_above(axis, done, rows, found.best):
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


def _failed_above(axis: str, done: Sequence[Experiment], rows: list[AnyRow], value: int) -> bool:
    settings = {(one.name, arm): changed for one in done for arm, changed in one.arms.items()}
    failed = [settings.get((row.experiment, row.arm)) for row in rows if isinstance(row, Failed)]
    return any(one is not None and (one.count(axis) or 0) > value for one in failed)


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
        for row in rounds_of(rows, [one.name]):
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


def _most_workers(facts: Facts) -> int:
    return max(MOST_WORKERS_PER_CORE * facts.cores, 4)


def _switches(plan: Plan, base: Settings, facts: Facts) -> Experiment | None:
    """All switches in one experiment: each value is an arm."""
    wanted = [(axis.name, value) for axis in plan.switches for value in axis.values]
    if plan.all_switches:
        own = facts.loader
        named = {name for name, _ in wanted}
        others = {**dict(DEFAULT_SWITCHES), "amp": facts.half}
        wanted += [one for one in others.items() if one[0] not in named and own.get(one[0]) != one[1]]
    available = [Settings.of({name: value}) for name, value in wanted if name not in facts.unavailable]
    if not (base[WORKERS] or facts.loader.get(WORKERS)):
        available = [one for one in available if one["prefetch_factor"] is None]
    return Experiment(SWITCHES, "", base, {one.words(): one for one in available}) if available else None


def winners(experiment: Experiment, rows: list[AnyRow]) -> list[tuple[float, Settings]]:
    """Arms that are faster, the fastest first, with their ratios."""
    rounds, out = rounds_of(rows, [experiment.name]), left_out(rows, experiment.name)
    found = []
    for arm, settings in experiment.arms.items():
        result = compared(rounds, arm)
        if result and result.verdict is Verdict.FASTER and arm not in out and not settings[CACHED]:
            found.append((result.ratio, settings))
    return sorted(found, key=lambda one: one[0])


def _combined(rows: list[AnyRow], switches: Experiment | None, base: Settings) -> Experiment | None:
    """The settings that are faster alone, added one after the other; compared with the script as it is."""
    steps: list[Settings] = [Settings((item,)) for item in base.values]
    steps += [settings for _, settings in winners(switches, rows)] if switches else []
    if len(steps) < 2:
        return None
    arms: dict[str, Settings] = {}
    so_far = Settings()
    for step in steps[:MOST_COMBINED]:
        so_far = so_far.having(step)
        arms[so_far.words()] = so_far
    first = next(iter(arms))
    return Experiment(COMBINED, "", Settings(), {arm: one for arm, one in arms.items() if arm != first})


def in_processes(plan: Plan) -> Experiment:
    """Every value of every axis and switch as an arm."""
    values = [(axis.name, value) for axis in (*plan.axes, *plan.switches) for value in axis.values]
    arms = [Settings.of({name: value}) for name, value in values]
    return Experiment(PROCESSES, "", Settings(), {one.words(): one for one in arms})


def _fixes(plan: Plan, facts: Facts) -> Experiment:
    """Each fix of a report, as far as its settings can be switched, and all of them together."""
    arms: dict[str, Settings] = {}
    for change in plan.changes:
        if settings := Settings.of(change.settings).without(*facts.unavailable):
            arms[change.name] = settings
    if len(arms) > 1:
        together = Settings()
        for settings in reversed(arms.values()):  # where two fixes set the same, the first finding wins
            together = together.having(settings)
        arms[ALL_FIXES] = together
    return Experiment(FIXES, "", Settings(), arms)
