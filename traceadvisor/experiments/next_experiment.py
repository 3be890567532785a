"""Decides what to measure next, from the plan and the rows so far. It keeps no state of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.experiments.curves import compared
from traceadvisor.experiments.journal import AnyRow, Facts, is_finished, left_out, rounds_of
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Axis, Experiment, Plan
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, PATCH, WORKERS, Settings, Value
from traceadvisor.experiments.values_to_try import DEFAULT_SWITCHES, curve_of, first_values, further_values, own_value
from traceadvisor.model.verdict import Verdict

SWITCHES, COMBINED, FIXES, PROCESSES, CODE = "settings", "combinations", "fixes", "processes", "code"
ALL_FIXES = "all fixes"

LOADER_BOUND_SHARE = 0.05
"""With less to gain from a loader that takes no time, no number of workers helps."""

MOST_COMBINED = 4


def is_loader_bound(facts: Facts) -> bool:
    """Whether a faster loader would shorten the step, by the first steps; True if unknown."""
    return facts.loader_share is None or facts.loader_share >= LOADER_BOUND_SHARE


def axes_of(plan: Plan, facts: Facts) -> tuple[Axis, ...]:
    """The axes in the order of measuring."""
    left = [axis for axis in plan.axes if axis.name not in facts.unavailable]
    if not plan.by_importance or is_loader_bound(facts):
        return tuple(left)
    return tuple(axis for axis in left if axis.name != WORKERS)


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
        if better := recommended(axis.name, done, rows, facts):
            base = base.having(better[1])
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


def recommended(
    axis: str, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts
) -> tuple[float, Settings] | None:
    """The knee of an axis with its ratio, where it is faster than the script's own value; else None."""
    found = curve_of(axis, done, rows, facts)
    if found is None or found.value == own_value(axis, facts):
        return None
    arm = Settings.of({axis: found.value})
    result = compared(rounds_of(rows, *(one.name for one in done)), arm.words())
    return (result.ratio, arm) if result and result.verdict is Verdict.FASTER else None


def _of_axis(
    axis: Axis, base: Settings, done: Sequence[Experiment], rows: list[AnyRow], facts: Facts
) -> Experiment | None:
    """The next experiment of an axis; None if the axis is done."""
    if axis.values:
        return None if done else _along(axis.name, axis.name, axis.values, base, own_value(axis.name, facts))
    values = first_values(axis.name, facts) if not done else further_values(axis.name, done, rows, facts)
    name = axis.name if not done else f"{axis.name} {len(done) + 1}"
    return _along(axis.name, name, values, base, None if done else own_value(axis.name, facts)) if values else None


def _along(axis: str, name: str, values: Sequence[Value], base: Settings, own: int | None) -> Experiment:
    """An experiment over values of an axis, with the ceilings of loader and model, also at the script's own value."""
    arms = {settings.words(): settings for value in values if (settings := Settings.of({axis: value}))}
    loaders = dict(arms) if axis in (WORKERS, BATCH_SIZE) else {}
    if loaders and own is not None:
        mine = Settings.of({axis: own})
        loaders[mine.words()] = mine
    if axis == BATCH_SIZE:
        arms |= {one.words(): one for arm in loaders.values() if (one := arm.having(Settings.of({CACHED: True})))}
    elif axis == WORKERS:
        cached = Settings.of({CACHED: True})
        arms[cached.words()] = cached
    return Experiment(name, axis, base, arms, loaders)


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
    rounds, out = rounds_of(rows, experiment.name), left_out(rows, experiment.name)
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
    """Every value of every axis and switch as an arm; or changed files."""
    if plan.copies:
        changed = [name for name in plan.copies if name not in (AS_IT_IS, SAME_AGAIN)]
        return Experiment(
            CODE, "", Settings(), {name: Settings.of({PATCH: name.partition("=")[2]}) for name in changed}
        )
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
    return Experiment(CODE if plan.code else FIXES, "", Settings(), arms)
