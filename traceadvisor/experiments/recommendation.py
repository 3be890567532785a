"""What a user does next: the settings to paste, and the commands for what was not measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from traceadvisor.experiments.curves import compared
from traceadvisor.experiments.journal import AnyRow, Facts, rounds_of
from traceadvisor.experiments.plan import Experiment, Plan
from traceadvisor.experiments.planner import (
    COMBINED,
    FIXES,
    LOADER_BOUND_SHARE,
    SWITCHES,
    curve_of,
    is_loader_bound,
    winners,
)
from traceadvisor.experiments.settings import BATCH_SIZE, WORKERS, Settings, Value, line
from traceadvisor.statistics import Verdict
from traceadvisor.text.secrets import without_secret_arguments

AXES = {WORKERS: ("Loader workers", "--workers auto"), BATCH_SIZE: ("The batch size", "--batch-size auto")}
"""Name and option of each axis."""


def recommended_settings(done: Sequence[Experiment], rows: list[AnyRow]) -> tuple[Settings, float | None]:
    """The fastest settings that were shown to be faster: of the combinations, else of a single experiment."""
    combined = next((one for one in done if one.name in (COMBINED, FIXES)), None)
    if combined and (best := winners(combined, rows)):
        return best[0][1], best[0][0]
    found: list[tuple[float, Settings]] = []
    for axis in dict.fromkeys(one.axis for one in done if one.axis):
        mine = [one for one in done if one.axis == axis]
        knee = curve_of(axis, mine, rows)
        if knee is None:
            continue
        arm = Settings.of({axis: knee.value})
        result = compared([row for one in mine for row in rounds_of(rows, one.name)], arm.words())
        if result and result.verdict is Verdict.FASTER:
            found.append((result.ratio, mine[0].base.having(arm)))
    if found:
        return found[-1][1], found[-1][0] if len(found) == 1 else None
    rest = [item for one in done if not one.axis for item in winners(one, rows)]
    return (rest[0][1], rest[0][0]) if rest else (Settings(), None)


def lines_to_paste(settings: Settings, facts: Facts) -> tuple[str, ...]:
    """Code to paste, the loader's arguments in one line."""

    def shown(item: tuple[str, Value]) -> str:
        return line(item[0], item[1], device=facts.device, optimizer=facts.optimizer)

    loader = [shown(item) for item in settings.of_loader().values]
    arguments = [one.removeprefix("DataLoader(..., ").removesuffix(")") for one in loader if one]
    lines = [f"DataLoader(..., {', '.join(arguments)})"] if arguments else []
    return (*lines, *(shown(item) for item in settings.values if item not in settings.of_loader().values))


def left_out_sentences(plan: Plan, done: Sequence[Experiment], facts: Facts) -> Iterator[str]:
    """What a sweep without options did not measure, why, and the command for it."""
    if not plan.by_importance:
        return
    measured = {one.axis or one.name for one in done}
    too_long = "not enough time"
    for axis, (name, option) in AXES.items():
        if axis in measured or axis in facts.unavailable:
            continue
        why = too_long
        if axis == WORKERS and not is_loader_bound(facts):
            why = f"cached batches shorten the step by less than {LOADER_BOUND_SHARE:.0%}"
        yield f"{name}: {why}. To measure: {_command(plan, option)}"
    if SWITCHES not in measured:
        yield f"Single settings: {too_long}. To measure: {_command(plan, '--switches')}"
    if "compile" not in facts.unavailable:
        yield f"torch.compile: it may take minutes. To measure: {_command(plan, '--set compile=true')}"


def _command(plan: Plan, options: str) -> str:
    words = (*(("-m",) if plan.is_module else ()), *plan.script)
    return f"`traceadvisor sweep {options} -- {shlex.join(without_secret_arguments(words))}`"
