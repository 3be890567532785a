"""Turns the fixes of a report into settings of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap

from traceadvisor.errors import UsageError
from traceadvisor.experiments.next_experiment import ALL_FIXES
from traceadvisor.experiments.plan import Change
from traceadvisor.experiments.settings import KNOBS, OF_THIS_TOOL, is_valid
from traceadvisor.frozen import frozen
from traceadvisor.model.experiment import LedgerRow, Section
from traceadvisor.model.findings import Estimate, Fix, Method, RuleMeta
from traceadvisor.model.report import RankedFinding, Report
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.results.redaction import redacted
from traceadvisor.text.cleaning import one_line

MOST = {"num_workers": 256, "native_threads": 256, "prefetch_factor": 256, "batch_size": 1 << 20}
"""Largest values that are tried; a report that is read back may come from anyone."""


def proposals(report: Report, wanted: Iterable[str] = ()) -> tuple[tuple[Proposal, ...], dict[str, str]]:
    """The proposals of a report that are settings, and why the other fixes are none.

    ``report``: its findings are taken in their order, each before those that were merged into it. Of these, only
    settings count unless they are wanted: the report lists no code change of theirs either. ``wanted``: ids or names of
    rules; all by default.

    Raises:
        UsageError: a wanted rule found nothing in this report.
    """
    report = _in_lines(redacted(report))  # a report that is read back may come from anyone
    names = {word.upper() if any(c.isdigit() for c in word) else word for word in wanted}
    fixes = [one for row in report.findings for one in _fixes_of(row)]
    found = [one for one in fixes if {one.rule.id, one.rule.name} & names or (not names and one.counts)]
    known = {word for one in fixes for word in (one.rule.id, one.rule.name)}
    if missing := sorted(names - known):
        there = ", ".join(dict.fromkeys(one.rule.id for one in fixes)) or "none"
        raise UsageError(f"The report has no finding {missing[0]}. Its findings: {there}.")
    taken: dict[str, Proposal] = {}
    others: dict[str, str] = {}
    for one in found:
        rule, settings = one.rule.id, dict(one.fix.settings)
        if rule in taken:  # of another recording
            continue
        if reason := _why_not(one.fix, settings, taken.values()):
            others.setdefault(rule, reason)
        else:
            low, expected, high = _predicted(one)
            taken[rule] = Proposal(rule, one.rule.title, settings, low, expected, high, one.fix.change)
    reasons = {rule: reason for rule, reason in others.items() if rule not in taken}
    return (*taken.values(), *_together(report, list(taken.values()))), reasons


@frozen(eq=False)
class _Proposed:
    """A fix of a finding, or of one that was merged into it."""

    rule: RuleMeta
    fix: Fix
    saving: Estimate
    step_ns: float | None
    is_merged: bool

    @property
    def counts(self) -> bool:
        """Whether it counts where no rule is named."""
        return not self.is_merged or bool(self.fix.settings)


def _fixes_of(row: RankedFinding) -> Iterator[_Proposed]:
    finding = row.finding
    yield _Proposed(finding.rule, finding.fix, finding.saving, row.step_ns, is_merged=False)
    for one in row.folded:
        yield _Proposed(one.rule, one.fix, one.saving, row.step_ns, is_merged=True)


def _why_not(fix: Fix, settings: dict[str, SettingValue], taken: Iterable[Proposal]) -> str | None:
    """Why a fix is not tried; None if it is."""
    if unknown := sorted(settings.keys() - (KNOBS.keys() - OF_THIS_TOOL)):
        return f"it proposes {one_line(unknown[0])}, a setting that `try` cannot change"
    if not settings:
        return f"“{one_line(fix.summary)}” changes code of the script, not a setting"
    if problem := next(filter(None, starmap(_problem, settings.items())), None):
        return problem
    same = next((earlier for earlier in taken if earlier.settings == settings), None)
    return f"it proposes the same settings as {same.fix}" if same else None


def _problem(name: str, value: SettingValue) -> str | None:
    """Why a proposed value is not tried; None if it is."""
    if not is_valid(name, value):
        return f"it proposes no valid value of {name}"
    if isinstance(value, int) and value > MOST.get(name, value):
        return f"it proposes more than {MOST[name]} for {name}, the most that is tried"
    return None


def _in_lines(report: Report) -> Report:
    """The report with ids and titles of rules in one line each."""

    def in_line(rule: RuleMeta) -> RuleMeta:
        return replace(rule, id=one_line(rule.id), name=one_line(rule.name), title=one_line(rule.title))

    def lined(row: RankedFinding) -> RankedFinding:
        folded = tuple(replace(one, rule=in_line(one.rule)) for one in row.folded)
        return replace(row, finding=replace(row.finding, rule=in_line(row.finding.rule)), folded=folded)

    return replace(report, findings=tuple(map(lined, report.findings)))


def changes(found: Iterable[Proposal]) -> tuple[Change, ...]:
    """The proposals as arms; all fixes together is made of them while measuring."""
    return tuple(Change(one.fix, dict(one.settings)) for one in found if one.fix != ALL_FIXES)


def _predicted(one: _Proposed) -> tuple[float | None, float | None, float | None]:
    """Predicted step over the step: low, expected and high; an upper limit of the saving has no expected one."""
    saving, step_ns = one.saving, one.step_ns
    if not step_ns or not saving.high_ns:
        return None, None, None
    low, high = (max(1 - saved / step_ns, 0.0) for saved in (saving.high_ns, saving.low_ns))
    if saving.is_bound:
        return low, None, 1.0
    return low, max(1 - saving.expected_ns / step_ns, 0.0), high


def _together(report: Report, taken: list[Proposal]) -> Iterator[Proposal]:
    """All fixes, with the joint simulation where it holds just these fixes."""
    if len(taken) < 2:
        return
    settings: dict[str, SettingValue] = {}
    for one in reversed(taken):
        settings |= one.settings
    replay = report.recordings[0].replay if report.recordings else None
    joint = replay.joint_step_ns / replay.baseline_step_ns if replay and replay.joint_step_ns else None
    simulated = [one for one in report.findings if one.finding.saving.method is Method.REPLAY]
    same = {one.finding.rule.id for one in simulated} == {one.fix for one in taken}
    yield Proposal(ALL_FIXES, "All of these together", settings, None, joint if same else None, None)


@frozen
class Proposal:
    """A fix of a report as settings, with what the report predicts."""

    fix: str
    title: str
    settings: dict[str, SettingValue]
    low: float | None
    """Step time with the fix over that without it."""

    expected: float | None
    high: float | None
    change: str | None = None
    """The code that the report proposes."""


NOT_REACHED = "the budget was spent before it was measured", "the script ended before it was measured"
"""Why a setting was not measured: without an error, and with one."""


def ledger(
    proposals: Sequence[Proposal],
    sections: Sequence[Section],
    unavailable: Mapping[str, str],
    why_not: str = NOT_REACHED[False],
    *,
    is_whole: bool,
) -> tuple[LedgerRow, ...]:
    """A row for each proposal, with what was measured for it or why nothing was.

    An arm belongs to a proposal by its name, or by its settings if they were measured against the script as it is.

    ``unavailable``: settings that cannot be switched, with reasons; a proposal is measured without them. ``why_not``:
    why other settings have no arm. ``is_whole``: whether proposals without an arm have a row, too.
    """
    by_name = {arm.name: arm for section in sections for arm in section.arms}
    by_settings = {_key(arm.settings): arm for section in sections if not section.base for arm in section.arms}
    rows = []
    for one in proposals:
        settings = {name: value for name, value in one.settings.items() if name not in unavailable}
        arm = by_name.get(one.fix) or by_settings.get(_key(settings))
        if arm is None and not is_whole:
            continue
        reasons = [unavailable[name] for name in one.settings if name in unavailable]
        problem = next(iter(reasons), arm.problem if arm else why_not) if arm is None or arm.problem else None
        rows.append(
            LedgerRow(
                fix=one.fix,
                title=one.title,
                settings=arm.settings if arm else one.settings,
                predicted_low=one.low,
                predicted=one.expected,
                predicted_high=one.high,
                measured=arm.measured if arm and not arm.problem else None,
                problem=problem,
                change=one.change,
            )
        )
    return tuple(rows)


def _key(settings: Mapping[str, SettingValue]) -> frozenset[tuple[str, SettingValue]]:
    return frozenset(settings.items())
