"""Builds the result of an experiment from the rows of its journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from statistics import fmean, median
from typing import Any

import msgspec

from traceadvisor import __version__
from traceadvisor.experiments.curves import Knee, compared, compared_cpu, others_share, tells_by_cpu
from traceadvisor.experiments.fixes import NOT_REACHED, Proposal, ledger
from traceadvisor.experiments.journal import (
    AnyRow,
    Facts,
    Loss,
    Note,
    Rate,
    Round,
    Void,
    facts_of,
    left_out,
    rounds_of,
    since_other,
)
from traceadvisor.experiments.next_experiment import (
    COMBINED,
    FIXES,
    LOADER_BOUND_SHARE,
    SWITCHES,
    axes_of,
    experiments,
    is_loader_bound,
    next_experiment,
    recommended,
    winners,
)
from traceadvisor.experiments.plan import AS_IT_IS, Experiment, Plan
from traceadvisor.experiments.run import Outcome
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, PATCH, WORKERS, Settings, Value, line
from traceadvisor.experiments.values_to_try import (
    DEFAULT_SWITCHES,
    GOOD_MEMORY,
    curve_of,
    failed_at,
    memory_line,
    own_value,
    too_large,
)
from traceadvisor.frozen import frozen
from traceadvisor.model.cost import Price
from traceadvisor.model.experiment import AxisResult, CurvePoint, ExperimentResult, MeasuredArm, MeasuredRatio, Section
from traceadvisor.model.verdict import Verdict
from traceadvisor.text.secrets import without_secret_arguments
from traceadvisor.text.shell import pasted

FURTHEST = 16
"""A line through measured peaks is not followed further than this multiple of the largest batch size."""


@frozen
class Surroundings:
    """Facts beside the rows."""

    kind: str
    seconds: float = 0.0
    changed_files: tuple[str, ...] | None = None
    price: Price | None = None
    proposals: tuple[Proposal, ...] = ()
    not_applicable: tuple[tuple[str, str], ...] = ()
    trace_report: str | None = None
    recorded_start_ns: int | None = None
    recorded_step_ns: float | None = None


def result_of(plan: Plan, outcome: Outcome, around: Surroundings) -> ExperimentResult:
    """All that was measured."""
    rows, facts = outcome.rows, facts_of(outcome.rows)
    done = list(experiments(plan, rows, facts)) if facts else []
    done = [one for one in done if rounds_of(rows, one.name) or left_out(rows, one.name)]
    price = around.price if facts and facts.device == "cuda" else None
    builder = _Builder(rows, facts, price, is_failed=bool(outcome.problem)) if facts else None
    sections = tuple(builder.sections(plan, done)) if builder else ()
    chosen, ratio = _recommended_settings(done, rows)
    scratch = plan.scratch
    return ExperimentResult(
        tool_version=__version__,
        kind=around.kind,
        command=(*(("-m",) if plan.is_module else ()), *plan.script),
        device=facts.device if facts else "unknown",
        device_name=facts.device_name if facts else None,
        torch=facts.torch if facts else None,
        cores=facts.cores if facts else None,
        own_settings=facts.loader if facts else {},
        optimizer=facts.optimizer if facts else None,
        seconds=around.seconds,
        steps=sum(row.steps for row in rows if isinstance(row, Round)),
        processes=outcome.processes,
        sections=sections,
        ledger=ledger(
            around.proposals,
            sections,
            facts.unavailable if facts else {},
            NOT_REACHED[bool(outcome.problem)],
            is_whole=around.kind == "try",
        ),
        recommended=chosen.document(),
        recommended_ratio=ratio,
        lines=_lines_to_paste(chosen, facts) if facts else (),
        unavailable=_wanted(plan, facts.unavailable) if facts else {},
        not_applicable=dict(around.not_applicable),
        left_out=tuple(_left_out_sentences(plan, done, facts)) if facts else (),
        notes=(
            *dict.fromkeys(row.text for row in since_other(rows) if isinstance(row, Note)),
            *_of_memory(plan, rows, facts),
        ),
        problem=outcome.problem,
        scratch=str(scratch) if scratch.exists() else None,
        changed_files=around.changed_files,
        trace_report=around.trace_report,
        recorded_start_ns=around.recorded_start_ns,
        recorded_step_ns=around.recorded_step_ns,
        currency=price.currency if price else None,
        others_cpu_share=others_share(row for row in rows if isinstance(row, Round)),
        is_short_of_time=facts is not None and _is_short_of_time(plan, rows, facts),
    )


def _is_short_of_time(plan: Plan, rows: list[AnyRow], facts: Facts) -> bool:
    """Whether an arm was left out for want of time or had no turn, other than larger batches than memory holds."""
    planned = list(experiments(plan, rows, facts))
    limit = min(failed_at(BATCH_SIZE, planned, rows, by_memory=True), default=inf)
    unmeasured = (
        arm
        for one in planned
        for arm in one.arms.keys() - left_out(rows, one.name).keys()
        if not any(arm in row.seconds for row in rounds_of(rows, one.name))
        and (one.settings(arm).count(BATCH_SIZE) or 0) < limit
    )
    is_left_out = any(isinstance(row, Void) and row.for_time for row in since_other(rows))
    return is_left_out or next_experiment(plan, rows, facts) is not None or any(unmeasured)


class _Builder:
    """Sections from the rows."""

    def __init__(self, rows: list[AnyRow], facts: Facts, price: Price | None, *, is_failed: bool) -> None:
        self._rows, self._facts, self._price, self._is_failed = rows, facts, price, is_failed

    def sections(self, plan: Plan, done: Sequence[Experiment]) -> Iterator[Section]:
        """One for each axis, whatever its number of experiments, and one for each other experiment."""
        axes = axes_of(plan, self._facts)
        named = {axis.name for axis in axes}
        for axis in axes:
            mine = [one for one in done if one.axis == axis.name]
            if mine:
                yield self._section(axis.name, mine, self._axis(axis.name, mine))
        for one in done:
            if one.axis not in named:
                yield self._section(one.name, [one], None)

    def _section(self, name: str, mine: Sequence[Experiment], axis: AxisResult | None) -> Section:
        rounds = self._rounds(mine)
        base = [row for row in rounds if AS_IT_IS in row.seconds]
        figures = {f"base_{figure}": value for figure, value in self._figures(base, AS_IT_IS).items()}
        arms = tuple(self._arms(mine, rounds))
        return Section(name=name, base=mine[0].base.document(), arms=arms, axis=axis, **figures)

    def _rounds(self, mine: Sequence[Experiment]) -> list[Round]:
        return rounds_of(self._rows, *(one.name for one in mine))

    def _figures(self, rounds: Sequence[Round], arm: str) -> dict[str, Any]:
        """The figures of an arm, or of the base, by the names that :class:`MeasuredArm` has for them."""
        per_s = _per_s(rounds, arm) if self._facts.loader else None  # without a loader, samples are unknown
        steps_s = [row.step_s[arm] for row in rounds if arm in row.step_s]
        return {
            "samples_per_s": per_s,
            "step_ns": median(steps_s) * 1e9 if steps_s else None,
            "peak_bytes": _peak(rounds, arm),
            "cost_per_million_samples": self._cost(per_s),
            "gpu_busy_share": _mean([row.gpu_shares[arm] for row in rounds if arm in row.gpu_shares]),
            "gpu_power_watts": _mean([row.watts[arm] for row in rounds if arm in row.watts]),
        }

    def _beside_base(self, rounds: Sequence[Round], arm: str) -> dict[str, Any]:
        """The figures of an arm; its rate and its step are those of the base times the change.

        Medians of an arm's own rounds and of all rounds of the base come from other moments. On a busy machine, they
        differ by more than the change.
        """
        own, found = self._figures(rounds, arm), compared(rounds, arm)
        base = self._figures([row for row in rounds if AS_IT_IS in row.seconds], AS_IT_IS)
        if found is None:
            return own
        samples = [row.samples[arm] / row.samples[AS_IT_IS] for row in rounds if {arm, AS_IT_IS} <= row.samples.keys()]
        per_s = base["samples_per_s"] and base["samples_per_s"] / found.ratio
        step_ns = base["step_ns"] and base["step_ns"] * found.ratio * (median(samples) if samples else 1.0)
        return own | {"samples_per_s": per_s, "step_ns": step_ns, "cost_per_million_samples": self._cost(per_s)}

    def _arms(self, mine: Sequence[Experiment], rounds: Sequence[Round]) -> Iterator[MeasuredArm]:
        all_arms = {arm: settings for one in mine for arm, settings in one.arms.items() if not settings[CACHED]}
        for arm, settings in sorted(all_arms.items(), key=_order):
            out = next((out[arm] for one in mine if arm in (out := left_out(self._rows, one.name))), None)
            result = compared(rounds, arm)
            cpu = compared_cpu(rounds, arm) if tells_by_cpu(settings) else None
            yield MeasuredArm(
                name=arm,
                settings=settings.document(),
                measured=msgspec.convert(result.document(), MeasuredRatio) if result else None,
                problem=out if out or result else NOT_REACHED[self._is_failed],
                loss_problem=self._loss_problem(mine, arm),
                cpu=msgspec.convert(cpu.document(), MeasuredRatio) if cpu else None,
                **self._beside_base(rounds, arm),
            )

    def _loss_problem(self, mine: Sequence[Experiment], arm: str) -> str | None:
        names = {one.name for one in mine}
        for row in self._rows:
            if not isinstance(row, Loss) or row.experiment not in names or arm not in row.losses:
                continue
            mean, base = row.losses[arm], row.losses[AS_IT_IS]
            if mean is None:
                return "the loss is not finite"
            if base is not None and abs(mean - base) > row.allowed:
                return f"the loss is {mean:.4g} instead of {base:.4g}; other batches change it by {row.allowed:.2g}"
        return None

    def _axis(self, name: str, mine: Sequence[Experiment]) -> AxisResult:
        knee = curve_of(name, mine, self._rows, self._facts)
        own = own_value(name, self._facts)
        rounds = self._rounds(mine)
        ends = _ends(knee, name, mine, rounds)
        arm = Settings.of({name: knee.value}).words() if knee else ""
        result = compared(rounds, arm) if knee else None
        memory = memory_line(mine, self._rows) if name == BATCH_SIZE else None
        total = self._facts.memory_bytes
        good = int((GOOD_MEMORY * total - memory[0]) / memory[1]) if memory and total else 0
        largest = max((size for one in mine for arm in one.arms.values() if (size := arm.count(name))), default=0)
        return AxisResult(
            name=name,
            own=own,
            knee=knee.value if knee else None,
            knee_low=ends[0] if ends else None,
            knee_high=ends[1] if ends else None,
            best=knee.best if knee else None,
            is_faster=bool(result and result.verdict is Verdict.FASTER),
            loop=tuple(self._with_own(own, self._curve(name, mine, rounds, cached=False), rounds)),
            model=tuple(self._curve(name, mine, rounds, cached=True)),
            loader=tuple(self._rates(name, mine)),
            out_of_memory_at=min(failed_at(name, mine, self._rows, by_memory=True), default=None),
            memory_bytes=total if name == BATCH_SIZE else None,
            good_memory_at=good if 0 < good <= FURTHEST * largest else None,
        )

    def _curve(
        self, name: str, mine: Sequence[Experiment], rounds: Sequence[Round], *, cached: bool
    ) -> Iterator[CurvePoint]:
        arms = {arm: settings for one in mine for arm, settings in one.arms.items() if bool(settings[CACHED]) is cached}
        for arm, settings in sorted(arms.items(), key=_order):
            per_s = self._beside_base(rounds, arm)["samples_per_s"]
            value = settings.count(name)
            if per_s is not None and (value is not None or cached):
                yield CurvePoint(value=value or 0, samples_per_s=per_s, peak_bytes=_peak(rounds, arm))

    def _with_own(
        self, own: int | None, measured: Iterable[CurvePoint], rounds: Sequence[Round]
    ) -> Iterator[CurvePoint]:
        """The points in order, and one for the script's own value: the base, if the value is no arm."""
        found = {point.value: point for point in measured}
        base = [row for row in rounds if AS_IT_IS in row.seconds]
        per_s = _per_s(base, AS_IT_IS)
        if own is not None and per_s is not None:
            found.setdefault(own, CurvePoint(value=own, samples_per_s=per_s, peak_bytes=_peak(base, AS_IT_IS)))
        yield from sorted(found.values(), key=lambda point: point.value)

    def _rates(self, name: str, mine: Sequence[Experiment]) -> Iterator[CurvePoint]:
        rates = {row.arm: row.samples_per_s for row in self._rows if isinstance(row, Rate)}
        arms = {arm: settings for one in mine for arm, settings in one.rates.items()}
        for arm, settings in sorted(arms.items(), key=_order):
            value = settings.count(name)
            if arm in rates and value is not None:
                yield CurvePoint(value=value, samples_per_s=rates[arm])

    def _cost(self, samples_per_s: float | None) -> float | None:
        if self._price is None or not samples_per_s:
            return None
        return self._price.per_gpu_hour * 1_000_000 / samples_per_s / 3600


def _wanted(plan: Plan, unavailable: Mapping[str, str]) -> dict[str, str]:
    """The settings that were to be measured and cannot be."""
    names = {axis.name for axis in (*plan.axes, *plan.switches)}
    names |= {name for change in plan.changes for name in change.settings}
    if plan.all_switches:
        names |= {name for name, _ in DEFAULT_SWITCHES}
    return {name: reason for name, reason in unavailable.items() if name in names}


def _of_memory(plan: Plan, rows: Sequence[AnyRow], facts: Facts | None) -> Iterator[str]:
    """Batch sizes that were not tried, and settings that nearly fill the memory."""
    chosen = any(axis.name == BATCH_SIZE and not axis.values for axis in plan.axes)
    for size, needed in too_large(facts).items() if facts and chosen else ():
        yield f"Batch size {size} was not tried: it needs about {needed / 1e9:.1f} GB, and less is free."
    retries: dict[str, int] = {}
    for row in rows:
        for arm, count in row.retries.items() if isinstance(row, Round) else ():
            retries[arm] = retries.get(arm, 0) + count
    for arm, count in retries.items():
        yield f"{arm}: the memory was nearly full. torch freed its cache {count} times to allocate, which takes time."


def _order(item: tuple[str, Settings]) -> tuple[bool, float]:
    """Ascending by a single number; other arms stay in their order."""
    numbers = [value for name, value in item[1].values if name != CACHED and not isinstance(value, bool | str)]
    return (len(numbers) != 1, float(numbers[0]) if len(numbers) == 1 else 0.0)


def _per_s(rounds: Sequence[Round], arm: str) -> float | None:
    found = [row.seconds[arm] for row in rounds if arm in row.seconds]
    return 1 / median(found) if found else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _peak(rounds: Sequence[Round], arm: str) -> int | None:
    return max((row.peak_bytes[arm] for row in rounds if arm in row.peak_bytes), default=None)


_AXES = {WORKERS: ("Loader workers", "--workers auto"), BATCH_SIZE: ("The batch size", "--batch-size auto")}
"""Name and option of each axis."""


def _recommended_settings(done: Sequence[Experiment], rows: list[AnyRow]) -> tuple[Settings, float | None]:
    """The fastest settings that were shown to be faster: of the combinations, else of a single experiment."""
    combined = next((one for one in done if one.name in (COMBINED, FIXES)), None)
    if combined and (best := winners(combined, rows)):
        return best[0][1], best[0][0]
    found: list[tuple[float, Settings]] = []
    facts = facts_of(rows)
    if facts is None:
        return Settings(), None
    for axis in dict.fromkeys(one.axis for one in done if one.axis):
        mine = [one for one in done if one.axis == axis]
        if better := recommended(axis, mine, rows, facts):
            found.append((better[0], mine[0].base.having(better[1])))
    if found:
        return found[-1][1], found[-1][0] if len(found) == 1 else None
    rest = [item for one in done if not one.axis for item in winners(one, rows)]
    return (rest[0][1], rest[0][0]) if rest else (Settings(), None)


def _lines_to_paste(settings: Settings, facts: Facts) -> tuple[str, ...]:
    """Code to paste, the loader's arguments in one line."""

    def shown(item: tuple[str, Value]) -> str:
        return line(item[0], item[1], device=facts.device, optimizer=facts.optimizer)

    of_loader = settings.of_loader().without(PATCH)
    loader = [shown(item) for item in of_loader.values]
    arguments = [one.removeprefix("DataLoader(..., ").removesuffix(")") for one in loader if one]
    lines = [f"DataLoader(..., {', '.join(arguments)})"] if arguments else []
    return (*lines, *(shown(item) for item in settings.values if item not in of_loader.values))


def _left_out_sentences(plan: Plan, done: Sequence[Experiment], facts: Facts) -> Iterator[str]:
    """Settings that a sweep without options did not measure, the reason, and the command for each."""
    if not plan.by_importance:
        return
    measured = {one.axis or one.name for one in done}
    too_long = "not enough time"
    for axis, (name, option) in _AXES.items():
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
    """The command that measures more; its options alone if nobody could paste the rest, such as a secret."""
    words = (*(("-m",) if plan.is_module else ()), *plan.script)
    text = pasted(words) if words == without_secret_arguments(words) else None
    return f"`traceadvisor sweep {options} -- {text}`" if text else f"the same command with `{options}`"


def _ends(knee: Knee | None, axis: str, mine: Sequence[Experiment], rounds: Sequence[Round]) -> tuple[int, int] | None:
    """The values of an axis that may be the best: those of the knee's range but such as were shown to be slower."""
    if knee is None:
        return None
    arms = {arm: settings.count(axis) for one in mine for arm, settings in one.arms.items() if not settings[CACHED]}
    inside = [(value, compared(rounds, arm)) for arm, value in arms.items() if value is not None]
    maybe = [value for value, one in inside if not (one and one.verdict is Verdict.SLOWER)]
    near = [value for value in maybe if knee.low <= value <= knee.high]
    return min((*near, knee.value)), max((*near, knee.value))
