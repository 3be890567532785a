"""A comparison in sentences: the verdict, its certainty, the main cause, and the commands that would settle it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log, log1p
from pathlib import Path

from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import (
    Agreement,
    ChangeSign,
    ComparedMemory,
    ComparedRun,
    Comparison,
    CpuChange,
    Difference,
    DifferenceKind,
    Differing,
    FindingChange,
    FindingState,
    FindingStatus,
    LikelyBecause,
    Measure,
    OtherProgram,
    PredictionCheck,
    StepChange,
    WorkChange,
    WorkUnit,
)
from traceadvisor.model.explanation import LineChange, LinesChange, StepExplanation
from traceadvisor.model.findings import Fix
from traceadvisor.model.location import CodePlace
from traceadvisor.model.verdict import Verdict, VerdictCertainty
from traceadvisor.rendering.origins import location_words, place_words, user_words
from traceadvisor.rendering.units import duration, from_to, number_of, percent, size, whole_percent
from traceadvisor.rendering.words import (
    CATEGORY,
    STEP_SOURCE,
    VERDICT_CERTAINTY,
    cpu_time_words,
    listed,
)
from traceadvisor.text.cleaning import clipped, clipped_inside
from traceadvisor.text.ranges import around, between

MEASURE = {
    Measure.UNDISTURBED_STEP: "step",
    Measure.RECORDED_STEP: "recorded step",
    Measure.UNDISTURBED_SAMPLE: "step",
    Measure.RECORDED_SAMPLE: "recorded step",
}

PER_SAMPLE = frozenset({Measure.UNDISTURBED_SAMPLE, Measure.RECORDED_SAMPLE})
UNIT = {WorkUnit.SAMPLE: "sample", WorkUnit.ROW: "sample or token"}
UNITS = {WorkUnit.SAMPLE: "samples", WorkUnit.ROW: "samples or tokens"}

SIGN = {
    ChangeSign.SETTING: "its setting was changed",
    ChangeSign.LOADER: "another data loader iterator",
    ChangeSign.LINES: "its code does not run any more",
    ChangeSign.EDITED: "its line was edited or removed",
    ChangeSign.FUNCTION: "other lines of its function were edited",
    ChangeSign.OPERATORS: "its operators run at most half as often",
    ChangeSign.KERNELS: "other kernels run",
    ChangeSign.LAUNCHES: "at most half as many launches",
    ChangeSign.COPIES: "at most half as many of these copies",
    ChangeSign.COLLECTIVES: "at most half as many collectives",
    ChangeSign.STREAMS: "collectives run on more streams",
    ChangeSign.PADDING: "batches hold at most half of the padding",
}
"""Why a finding that is gone counts as fixed."""

STATUS = {
    FindingStatus.NEW: "New",
    FindingStatus.GONE: "Gone",
    FindingStatus.HIDDEN: "Hidden, not fixed",
    FindingStatus.LOST: "No longer found, not fixed",
    FindingStatus.CHANGED: "Changed",
    FindingStatus.SAME: "Unchanged",
    FindingStatus.UNKNOWN: "Not comparable",
}

AGREEMENT = {
    Agreement.WITHIN: "within the predicted range",
    Agreement.LESS: "saves less than predicted",
    Agreement.MORE: "saves more than predicted",
    Agreement.NOT_SHORTER: "the step is not shorter",
}

AT_LIMIT = "at the limit: identical runs may differ by as much"
"""A shorter step, by less than identical runs differ by."""

NOTHING = "No run could be compared: nothing in BASE has a partner in HEAD."
NO_STEP = "No step time was measured on both sides, so there is no verdict."

OTHER_PRODUCTS = "Not shown: nothing that was recorded tells whether the batch, the model or the program differs."

UNKNOWN_PROGRAM = (
    "Nothing that was recorded tells whether they are one program: a captured script, or parameters in traces with "
    "record_shapes=True, would."
)

TO_SETTLE = "Capture each side three times, in turn if possible, or pass earlier captures with --history."

MOST_PERCENT = 3.0
"""Ratio of the steps from which on a headline has a factor."""

LEAST_SHARE = 0.0005
"""A smaller change is 0.0%."""

WHOLE_SHARE = 0.095
"""From this change on, a headline has no decimals."""

TO_BE_SURE = f"To be sure, {TO_SETTLE[:1].lower()}{TO_SETTLE[1:]}"

CAUSE_SHARE = 0.01
"""A smaller change of the step has no main cause."""

ALIKE_SHARE = 0.9
"""Share of the largest change from which on another rank's step changes alike."""

MOST_SHARE = 0.5
"""A category with a larger share of the change is most of it."""

MOST_NAMED, LONGEST_VALUE = 4, 30
"""Differences of the sides in a sentence, and characters of a value."""

_IN_BYTES = {Differing.GPU_MEMORY: "GPU memory", Differing.MACHINE_MEMORY: "Memory of the machine"}
"""Their names beside sizes with units."""

UNNAMED = {
    Differing.COMMAND,
    Differing.LOADER_ITERATOR,
    Differing.DATASET_LENGTH,
    Differing.BATCH_COUNT,
    Differing.STEP_SOURCE,
}
"""Differences that follow from others, are no change of the program, or are too long: the table has them."""

RECORDED_AS = {"amp": ("autocast_dtype", "grad_scaler")}
"""Settings of fixes that a recording holds under other names. The others are parts of their names."""

LONGEST_PLACE = 100
"""Characters of a place in a sentence."""

SIDES = ("BASE", "HEAD")
LONGEST_SIDE = 24
"""Characters of a path that stands for a side."""


def side_names(comparison: Comparison) -> tuple[str, str]:
    """The paths of both sides as they were given, or the ends of long ones.

    BASE and HEAD if a side has several, or if a name does not stand in one line: names are also put into commands.
    """
    sides = comparison.base_paths, comparison.head_paths
    for parts in (0, 1, 2):
        names = [str(Path(*path.parts[-parts:])) for side in sides for path in side]
        is_short = all(len(name) <= LONGEST_SIDE and name.isprintable() for name in names)
        if len(set(names)) == len(SIDES) == len(names) and is_short:
            return names[0], names[1]
    return SIDES


def headline(comparison: Comparison) -> str:
    """The change in one sentence: that of the only run, or that of the run that decides."""
    if not comparison.runs:
        return _memory_headline(comparison.memory) or NOTHING
    if len(comparison.runs) == 1:
        (run,) = comparison.runs
        return f"{_other_scripts(run)}{verdict_sentence(run)}"
    decides = deciding_run(comparison)
    if decides is None or decides.change is None:
        return NO_STEP
    same = sum(run.change is not None and run.change.verdict is comparison.verdict for run in comparison.runs)
    counted = f"{same} of {number_of(len(comparison.runs), 'run')} {comparison.verdict.value}"
    return f"{counted}. {decides.name}: {_other_scripts(decides)}{verdict_sentence(decides)}"


def _other_scripts(run: ComparedRun) -> str:
    """A warning that both sides have different scripts or models; nothing if not."""
    if run.work.program is OtherProgram.MODEL:
        return "Not the same model: "
    if run.other_scripts is None or run.work.is_other_program:
        return ""
    base, head = run.other_scripts
    return f"Two different scripts, {base} and {head}: "


def _memory_headline(memory: Sequence[ComparedMemory]) -> str | None:
    """The change of the highest peak."""
    if not memory:
        return None
    base, head = max(one.base.peak_bytes for one in memory), max(one.head.peak_bytes for one in memory)
    change = f"{percent(abs(head / max(base, 1) - 1))} {'more' if head > base else 'less'}"
    return f"Memory peaks at {size(head)} instead of {size(base)}{f' ({change})' if head != base else ''}."


def verdict_sentence(run: ComparedRun) -> str:
    """The change and its certainty: ``186 -> 104 ms per step (44% less time), likely``; if busy, CPU time first."""
    change = run.change
    if change is None:
        return NO_STEP
    times = f"{from_to(change.base_step_ns, change.head_step_ns)} per {MEASURE[change.measure]}"
    if run.work.is_other_program:
        sides = "{} and {}".format(*(run.other_scripts or SIDES))
        if run.work.program is OtherProgram.UNKNOWN:
            return f"Not compared, {sides} may be two different programs: {times}"
        return f"Not compared, two different programs: {sides}, {times}"
    beside = "".join(f" {words}" for words in _other_work(run.work))
    if change.measure in PER_SAMPLE:
        each = f"{UNIT[run.work.unit]}{' of one rank' if run.work.ranks else ''}"
        size = f"{times}{beside}: {change_words(change)} per {each}"
    else:
        size = f"{times} ({change_words(change)}){beside}"
    if change.verdict is Verdict.NO_DIFFERENCE:
        size = f"No difference: {times}{beside}"
    wall = f"{size}, {VERDICT_CERTAINTY[change.certainty]}"
    if change.cpu is None:
        return wall
    by_cpu = _cpu_words(change.cpu, UNIT[run.work.unit] if change.measure in PER_SAMPLE else "step")
    if change.cpu.has(change.ratio):
        return f"{by_cpu}; wall time: {wall[:1].lower()}{wall[1:]}"
    wall = size if change.cpu.is_called else wall
    return f"{by_cpu}; wall time differs because other programs ran: {wall[:1].lower()}{wall[1:]}"


def _cpu_words(cpu: CpuChange, unit: str) -> str:
    says = cpu_time_words(unit, cpu.ratio, cpu.low, cpu.high, is_clear=cpu.is_called)
    certainty = VerdictCertainty.LIKELY if cpu.low is None else VerdictCertainty.SHOWN
    return f"{says}, {VERDICT_CERTAINTY[certainty]}" if cpu.is_called else says


def change_words(change: StepChange) -> str:
    """``44% less time``; ``4.4 times as fast`` for a large change."""
    if abs(change.change_share) < LEAST_SHARE:
        return "no change"
    if change.ratio > MOST_PERCENT:
        return f"{change.ratio:.1f} times as long"
    if change.ratio < 1 / MOST_PERCENT:
        return f"{1 / change.ratio:.1f} times as fast"
    return f"{_share(abs(change.change_share))} {'more' if change.ratio > 1 else 'less'} time"


def _other_work(work: WorkChange) -> Iterator[str]:
    """Differences in the work of a step: the batch, the sizes of a sample, ranks and GPUs."""
    if work.growth not in (None, 1.0):
        yield f"with {_times(work.growth)} the {UNITS[work.unit]}"
    if work.sizes:
        base, head = (" x ".join(map(str, sizes)) for sizes in work.sizes)
        yield f"on inputs of {head} instead of {base}"
    if work.ranks:
        yield f"on {work.ranks[1]} instead of {number_of(work.ranks[0], 'rank')}"
    if work.products:
        yield f"with {work.products[1]} instead of {work.products[0]} matrix products, perhaps other work"
    if work.devices:
        yield f"on another GPU ({clipped(work.devices[0], LONGEST_VALUE)} -> {clipped(work.devices[1], LONGEST_VALUE)})"


def _share(share: float) -> str:
    return whole_percent(share) if share >= WHOLE_SHARE else percent(share)


def certainty_sentences(change: StepChange, work: WorkChange) -> Iterator[str]:
    """The grounds of the certainty, and what would settle it."""
    if change.ratio_low is None or change.ratio_high is None:
        yield _without_interval(change, work)
        yield TO_BE_SURE if change.certainty is VerdictCertainty.LIKELY else TO_SETTLE
        return
    low, high = signed_percent(change.ratio_low - 1), signed_percent(change.ratio_high - 1)
    yield f"98% interval of the change: {between(low, high)}, from {_captures(change)}."
    if change.verdict is not Verdict.INCONCLUSIVE:
        return
    if change.captures_needed is None:
        yield "The captures differ too much among themselves to settle a change of this size."
    else:
        yield f"About {change.captures_needed} captures of each side would settle it."


def _without_interval(change: StepChange, work: WorkChange) -> str:
    least = change.smallest_visible_share
    if least is None:
        return "Not shown: a side has too few steps to know its own error."
    times = max(change.ratio, 1 / change.ratio)
    chance = (
        f"one step is {times:.2f} times the other. With {_captures(change)}, chance alone can make one step up to "
        f"{1 + least:.2f} times the other"
    )
    if change.because is not None:
        return _why_likely(change, chance)
    if work.products:
        return OTHER_PRODUCTS
    if change.is_crowded:
        return "Not shown, although large: the load of other programs alone can change a step as much."
    if least > 1:
        return f"Not shown: too few captures for steps that vary so much ({_captures(change)})."
    return f"Not shown: {chance}."


def _why_likely(change: StepChange, chance: str) -> str:
    if change.because is LikelyBecause.EXPLAINED:
        return "Likely: what was changed in the program explains the change, and the rest of the step is as before."
    if change.because is LikelyBecause.WITNESSED and change.witness_ratio:
        return (
            "Likely, beside the load of other programs: the work of the process itself per step, by its CPU time, "
            f"its GPU time or its operators, is {change.witness_ratio:.2f} times that of before. This shows the "
            "direction of the change, not its size."
        )
    return f"Likely: {chance}."


def _captures(change: StepChange) -> str:
    base, head = change.base_captures, change.head_captures
    sides = f"{number_of(base, 'capture')} a side" if base == head else f"{base} and {number_of(head, 'capture')}"
    return f"{sides} and {number_of(change.history_captures, 'earlier one')}" if change.history_captures else sides


def prediction_sentence(run: ComparedRun) -> str | None:
    """The step that the report on BASE predicted for the fixes that were made, or its limit; None if none was made."""
    if not run.predictions:
        return None
    (check,) = run.predictions
    smaller = {one.rule.id: f"{one.rule.id} ({smaller_words(one)})" for one in run.findings if one.head}
    predicted, rules = check.predicted, ", ".join(smaller.get(rule.id, rule.id) for rule in check.rules)
    if check.is_limit:
        return " ".join((_beside_limit(check, rules), *_reasons(run, check)))
    low, expected, high = map(duration, (predicted.low_ns, predicted.expected_ns, predicted.high_ns))
    measured = f"Measured: {duration(check.measured_step_ns)}, {AGREEMENT[check.agreement]}."
    return " ".join((f"Predicted with {rules} fixed: {around(expected, low, high)}.", measured, *_reasons(run, check)))


def _beside_limit(check: PredictionCheck, rules: str) -> str:
    """The measured saving beside its limit."""
    most_ns, saved_ns = (check.base_step_ns - ns for ns in (check.predicted.low_ns, check.measured_step_ns))
    limit, saved = duration(most_ns), duration(max(saved_ns, 0.0))
    if check.agreement is Agreement.MORE:
        return f"With {rules} fixed, measured more than the limit of {limit}: the step is {saved} shorter."
    within = AT_LIMIT if saved_ns > most_ns else "within the limit"
    says = AGREEMENT[check.agreement] if check.agreement is Agreement.NOT_SHORTER else within
    return f"Limit of the saving with {rules} fixed: {limit} per step. Measured: {saved}, {says}."


def predicted_peak(memory: ComparedMemory) -> str | None:
    """The peak that the report on BASE predicted for a fix, beside the measured one; None without."""
    if memory.gone is None:
        return None
    predicted, measured = size(memory.base.peak_bytes - memory.gone.saved_bytes), size(memory.head.peak_bytes)
    return (
        f'HEAD no longer needs the fix "{memory.gone.fix.summary}". With it alone, a peak of {predicted} was '
        f"predicted; measured: {measured}. A batch of another size changes the peak, too."
    )


def _reasons(run: ComparedRun, check: PredictionCheck) -> Iterator[str]:
    """Reasons why a measured step may not be as predicted: other differences, chance, and other code."""
    if check.agreement is Agreement.WITHIN:
        return
    fixes = [one.fix for one in run.findings if one.rule in check.rules]
    if other_values := [*_other_values(run, fixes)]:
        yield f"The report on BASE proposed another value: {listed(other_values)}."
    others = [
        one.name
        for one in run.differences
        if one.what not in UNNAMED
        and one.kind not in {DifferenceKind.CODE, DifferenceKind.EDIT}
        and not any(_sets(fix, one.name) for fix in fixes)
    ]
    if others:
        yield f"Also different, and perhaps the reason: {listed(others)}."
    end_ns = check.predicted.low_ns if check.agreement is Agreement.MORE else check.predicted.high_ns
    noise = run.change and run.change.noise_share
    if noise and end_ns and abs(log(check.measured_step_ns / end_ns)) <= log1p(noise):
        yield "Identical runs may differ by as much."
    if any(one.kind is DifferenceKind.EDIT for one in run.differences):
        yield "The edited lines may hold other changes, too."
        return
    yield (
        "Whether other code changed is not known."
        if others
        else ("No other setting that was recorded differs; whether other code changed is not known.")
    )


def _other_values(run: ComparedRun, fixes: Iterable[Fix]) -> Iterator[str]:
    """The numbers that fixes propose for settings which were changed to others: ``num_workers 9, HEAD has 1``."""
    changed = {one.name: one.head for one in run.differences if one.kind is DifferenceKind.SETTING}
    for name, value in {name: value for fix in fixes for name, value in fix.settings.items()}.items():
        if type(value) is int and name in changed and changed[name] != str(value):
            yield f"{name} {value}, HEAD has {changed[name]}"


def _sets(fix: Fix, name: str) -> bool:
    """Whether a fix changes a recorded setting."""
    return (
        name in (fix.change or "")
        or any(setting in name for setting in fix.settings)
        or any(name in RECORDED_AS.get(setting, ()) for setting in fix.settings)
    )


def hidden_sentence(run: ComparedRun) -> str | None:
    """The findings whose cause only costs no time now; None if there are none."""
    hidden = [one for one in run.findings if one.status is FindingStatus.HIDDEN]
    if not hidden:
        return None
    places = dict.fromkeys(location_words(one.base.locations[0]) for one in hidden if one.base and one.base.locations)
    return f"Not fixed, only hidden by loader workers: {listed([*places] or [one.rule.title for one in hidden])}."


def _times(growth: float) -> str:
    """``2 times``, ``1/8 of``, ``0.7 times``."""
    whole = round(1 / growth)
    return f"1/{whole} of" if whole > 1 and abs(whole * growth - 1) < 0.001 else f"{growth:.3g} times"


def changed_sentence(run: ComparedRun) -> str | None:
    """Differences between the programs: settings, versions and devices, then other signs of fixes.

    None for different programs, and where other work is all that differs: the headline has it.
    """
    if run.work.is_other_program:
        return None
    named = named_differences(run)
    listed_ = [difference_words(one) for one in named[:MOST_NAMED]] or [*_command_words(run)]
    signs = [
        f"{'Smaller' if one.head else 'Fixed'}: {one.rule.title} ({one.rule.id}): {SIGN[one.sign]}"
        f"{f' ({one.instead.id})' if one.instead else ''}."
        for one in run.findings
        if one.sign and (one.status is FindingStatus.GONE or (one.head and one.is_fixed))
        if one.sign not in {ChangeSign.SETTING, ChangeSign.LOADER} and one.base and one.base.part_of is None
    ]
    if not listed_ and not signs and not run.work.is_same:
        return None
    if not listed_ and not signs:
        return SAME_CODE if run.is_same_code and not run.differences else UNKNOWN_CODE
    more = len(named) - MOST_NAMED
    others = f" and {number_of(more, 'more difference')}" if more > 0 else ""
    changed = [f"Changed: {', '.join(listed_)}{others}."] if listed_ else []
    return " ".join((*changed, *signs))


def smaller_words(change: FindingChange) -> str:
    """``smaller: 55% -> 19%``, of the step of each side; of a limit, the limit."""
    shares = [_shown_share(state) for state in (change.base, change.head) if state]
    return f"smaller: {' -> '.join(map(_share, shares))}"


def _shown_share(state: FindingState) -> float:
    saving = state.saving
    return state.saving_share * (saving.high_ns / saving.expected_ns if saving.is_bound and saving.expected_ns else 1.0)


SAME_CODE = (
    "Nothing that is recorded was changed: the script and its own modules have the same lines, and all settings are "
    "the same."
)
UNKNOWN_CODE = "No change of the program shows in what was recorded: an edit may be in lines that no sample hit."


def difference_words(one: Difference) -> str:
    """``num_workers 0 -> 2``; ``train.py (2 lines removed, 1 added)``."""
    if one.kind is DifferenceKind.EDIT:
        return (
            f"{clipped_inside(one.name, LONGEST_VALUE)} ({number_of(int(one.base), 'line')} removed, {one.head} added)"
        )
    name, base, head = named_values(one)
    return f"{name} {clipped(base, LONGEST_VALUE)} -> {clipped(head, LONGEST_VALUE)}"


def named_values(one: Difference) -> tuple[str, str, str]:
    """The name of a difference and the values of both sides, sizes with their units."""
    if one.what is Differing.STEP_SOURCE:
        words = {source.value: said for source, said in STEP_SOURCE.items()}
        return one.name, words.get(one.base, one.base), words.get(one.head, one.head)
    if one.what not in _IN_BYTES:
        return one.name, one.base, one.head
    base, head = (size(int(text)) if text.isdecimal() else text for text in (one.base, one.head))
    return _IN_BYTES[one.what], base, head


def _command_words(run: ComparedRun) -> Iterator[str]:
    """The words in which the commands differ, without those that they share at their beginning and end."""
    for one in run.differences:
        if one.what is Differing.COMMAND:
            words = [one.base.split(), one.head.split()]
            for place in (0, -1):
                while all(words) and words[0][place] == words[1][place]:
                    words = [[*side[1:]] if place == 0 else [*side[:-1]] for side in words]
            base, head = (clipped(" ".join(side) or "nothing", LONGEST_VALUE) for side in words)
            yield f"command {base} -> {head}"


def named_differences(run: ComparedRun) -> Sequence[Difference]:
    """The differences that a sentence names, unless there are too many."""
    unnamed = UNNAMED if workers_differ(run) else UNNAMED - {Differing.LOADER_ITERATOR}
    beside = {Differing.GPU, Differing.GPU_MEMORY} if run.work.devices else set()
    beside |= {Differing.RANK_COUNT} if run.work.ranks else set()
    named = [one for one in run.differences if one.what not in unnamed | beside]
    # Most changes bring other operators along: these are named where nothing else is.
    return [one for one in named if one.what is not Differing.OPERATORS] or named


OTHER_CHANGE = "another change may have taken its time"
UNKNOWN_CHANGE = "what took its time was not recorded"


def why_lost(change: FindingChange, run: ComparedRun) -> str | None:
    """Why a finding that was not fixed is no longer found; None for others.

    Only a program that is known to be unchanged shows that a saving was too high.
    """
    if change.status is not FindingStatus.LOST:
        return None
    is_changed = bool(run.differences) or any(one.status is FindingStatus.GONE for one in run.findings)
    if is_changed or not run.is_same_code:
        return OTHER_CHANGE if is_changed else UNKNOWN_CHANGE
    is_limit = change.base is not None and change.base.saving.is_bound
    return f"its {'limit' if is_limit else 'saving'} was too high, for nothing that is recorded was changed"


def explanation_of(run: ComparedRun) -> StepExplanation | None:
    """The explanation of the rank whose step changed most.

    The steps of a job change alike on all ranks. Then it is the rank that works, not one that waits for it.
    """
    known = [rank.explanation for rank in run.ranks if rank.explanation]
    most_ns = max((abs(one.delta_ns) for one in known), default=0.0)
    alike = [one for one in known if abs(one.delta_ns) >= ALIKE_SHARE * most_ns]
    return max(alike, key=_own_change_ns, default=None)


def _own_change_ns(explained: StepExplanation) -> float:
    """The change outside communication, which also is the wait for another rank."""
    rows = (row for row in explained.categories if row.category is not Category.COMMUNICATION)
    return abs(sum(row.delta_ns for row in rows))


def deciding_run(comparison: Comparison) -> ComparedRun | None:
    """The surest run with the verdict, of these that with the largest change; None if nothing was compared."""
    same = [run for run in comparison.runs if run.change and run.change.verdict is comparison.verdict]
    surest = [run for run in same if run.change and run.change.certainty is comparison.certainty]
    return max(
        surest or comparison.runs, key=lambda run: abs(run.change.change_share) if run.change else 0.0, default=None
    )


def cause_sentence(run: ComparedRun) -> str | None:
    """The category and a line that changed most, in the direction of the step; None without a change of the step.

    Samples of undisturbed steps show their line in all categories. Without them, the line is one of the category.
    Recorded steps that changed in the other direction than undisturbed ones explain nothing.
    """
    explained = None if run.work.is_other_program else explanation_of(run)
    if explained is None or abs(explained.delta_ns) < CAUSE_SHARE * max(explained.base_step_ns, explained.head_step_ns):
        return None
    sign = 1 if explained.delta_ns > 0 else -1
    if run.change and sign * run.change.change_share < 0:
        return None
    category = max(explained.categories, key=lambda row: sign * row.delta_ns)
    how_much = "Most" if sign * category.delta_ns > MOST_SHARE * abs(explained.delta_ns) else "The largest part"
    name = f"the category {CATEGORY[category.category]}"
    change = f"{how_much} of the change is in {name}: {signed(category.delta_ns)} per step"
    if line := main_line(explained.sampled_lines, sign):
        where = line_words(line, workers_differ=workers_differ(run))
        return f"{change}. In undisturbed steps, the line with the largest change is {where}: {signed(line.delta_ns)}."
    origin = explained.by_category.get(category.category)
    if line := main_line(origin.lines if origin else None, sign):
        where = line_words(line, workers_differ=workers_differ(run))
        return f"{change}; its line with the largest change is {where}: {signed(line.delta_ns)}."
    return f"{change}."


def workers_differ(run: ComparedRun) -> bool:
    """Whether the sides have different numbers of loader workers."""
    return any(one.what is Differing.WORKER_COUNT for one in run.differences)


def main_line(table: LinesChange | None, sign: int) -> LineChange | None:
    """The user's line that changed most in a direction; None without one.

    A sampled change that is smaller than its error shows nothing.
    """
    rows = [row for row in table.rows if _is_shown(row, sign)] if table else []
    return max(rows, key=lambda row: sign * row.delta_ns, default=None)


def _is_shown(row: LineChange, sign: int) -> bool:
    place = row.head or row.base
    has_line = place is not None and place.line is not None
    return has_line and sign * row.delta_ns > max(row.error_ns or 0.0, row.hidden_ns)


def line_words(row: LineChange, *, workers_differ: bool = False) -> str:
    """The place in HEAD, and in BASE where its line moved.

    ``workers_differ``: whether the number of loader workers does: they may run the line on one side only, and samples
    do not see them.
    """
    where = "in the training process " if workers_differ else ""
    if row.base and row.head:
        moved = _moved_from(row.base, row.head)
        return f"{_place(row.head)} (before {moved})" if moved else _place(row.head)
    there, missing = SIDES if row.base else SIDES[::-1]
    if row.is_only_in_one:
        return f"{_place(row.base or row.head)} ({where}only in {there})"
    return f"{_place(row.base or row.head)} ({missing_words(row)} in {missing})"


def missing_words(row: LineChange) -> str:
    """Return the words on a side that may spend time in a line and does not list it."""
    return "not listed" if row.error_ns is None else "not sampled"


def _moved_from(base: CodePlace, head: CodePlace) -> str | None:
    """The user's lines of BASE; None if they are the same, or if a side tells their function only."""
    spots = ((base.line, head.line), (base.until, head.until), (base.inner, head.inner))
    known = [(ours, theirs) for ours, theirs in spots if ours and theirs and ours.is_line and theirs.is_line]
    differ = any((ours.file, ours.line) != (theirs.file, theirs.line) for ours, theirs in known)
    return clipped_inside(user_words(base), LONGEST_PLACE) if differ else None


def _place(place: CodePlace | None) -> str:
    return clipped_inside(place_words(place), LONGEST_PLACE) if place else ""


def signed(ns: float) -> str:
    """A difference of times with its sign."""
    if abs(ns) < 0.5:
        return "0 ns"
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


def signed_percent(share: float) -> str:
    """A change with its sign, ``+12.3%``; ``4.4 times`` for a large one."""
    if share + 1 > MOST_PERCENT:
        return f"{share + 1:.1f} times"
    return f"{share:+.1%}" if abs(share) >= LEAST_SHARE else "0%"
