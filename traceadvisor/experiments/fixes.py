"""Turns the fixes of a report into settings of an experiment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from traceadvisor.errors import UsageError
from traceadvisor.experiments.ledger import Proposal
from traceadvisor.experiments.plan import Change
from traceadvisor.experiments.planner import ALL_FIXES
from traceadvisor.experiments.settings import Value
from traceadvisor.model.findings import Method
from traceadvisor.model.report import RankedFinding, Report

_COMMENT = re.compile(r"#.*$", re.MULTILINE)

LONGEST_CHANGE = 10_000
"""Characters of a change that are looked at; a report that is read back may come from anyone."""

MOST = {"workers": 256, "prefetch": 256, "batch_size": 1 << 20}
"""Largest values that are tried."""

_NUMBERS = {
    "workers": re.compile(r"num_workers=(\d{1,9})(?!\d)"),
    "prefetch": re.compile(r"prefetch_factor=(\d{1,9})(?!\d)"),
    "batch_size": re.compile(r"batch_size=(\d{1,9})(?!\d)"),
}
_WORDS: tuple[tuple[str, str, Value], ...] = (
    (r"pin_memory=True", "pin_memory", True),
    (r"persistent_workers=True", "persistent_workers", True),
    (r"fused=True", "fused", True),
    (r"foreach=True", "foreach", True),
    (r"zero_grad\(.{0,200}set_to_none=True", "set_to_none", True),
    (r"torch\.channels_last", "channels_last", True),
    (r"cudnn\.benchmark = True", "cudnn_benchmark", True),
    (r"set_float32_matmul_precision\(|fp32_precision|allow_tf32", "tf32", True),
    (r"autocast\(.{0,200}float16(?<!bfloat16)", "amp", "float16"),
    (r"autocast\((?!.{0,200}[^b]float16)", "amp", "bfloat16"),
    (r"torch\.compile\(", "compile", True),
)


def settings_of(change: str | None) -> dict[str, Value]:
    """The settings that a change has; empty if it changes the script's code otherwise."""
    code = _COMMENT.sub("", (change or "")[:LONGEST_CHANGE])
    found: dict[str, Value] = {}
    for name, pattern in _NUMBERS.items():
        if numbers := pattern.findall(code):
            found[name] = int(numbers[-1])
    return found | {name: value for pattern, name, value in _WORDS if re.search(pattern, code)}


def proposals(report: Report, wanted: Iterable[str] = ()) -> tuple[tuple[Proposal, ...], dict[str, str]]:
    """What a report proposes that is a setting, and for the other fixes why they are none.

    Args:
        report: its findings are taken in their order.
        wanted: ids or names of rules; all by default.

    Raises:
        UsageError: a wanted rule found nothing in this report.
    """
    names = {word.upper() if any(c.isdigit() for c in word) else word for word in wanted}
    found = [one for one in report.findings if not names or {one.finding.rule.id, one.finding.rule.name} & names]
    known = {word for one in report.findings for word in (one.finding.rule.id, one.finding.rule.name)}
    if missing := sorted(names - known):
        there = ", ".join(one.finding.rule.id for one in report.findings) or "none"
        raise UsageError(f"The report has no finding {missing[0]}. Its findings: {there}.")
    taken: list[Proposal] = []
    others: dict[str, str] = {}
    for one in found:
        finding = one.finding
        settings = settings_of(finding.fix.change)
        if not settings:
            others[finding.rule.id] = f"“{finding.fix.summary}” changes code of the script, not a setting"
        elif too_large := [name for name, most in MOST.items() if int(settings.get(name, 0)) > most]:
            name = too_large[0]
            others[finding.rule.id] = f"it proposes {name}={settings[name]}; at most {MOST[name]} are tried"
        elif any(settings == earlier.settings for earlier in taken):
            first = next(earlier for earlier in taken if earlier.settings == settings)
            others[finding.rule.id] = f"it proposes the same settings as {first.fix}"
        else:
            low, expected, high = _predicted(one)
            change = finding.fix.change
            taken.append(Proposal(finding.rule.id, finding.rule.title, settings, low, expected, high, change))
    return (*taken, *_together(report, taken)), others


def changes(found: Iterable[Proposal]) -> tuple[Change, ...]:
    """The proposals as arms; all fixes together is made of them while measuring."""
    return tuple(Change(one.fix, dict(one.settings)) for one in found if one.fix != ALL_FIXES)


def _predicted(one: RankedFinding) -> tuple[float | None, float | None, float | None]:
    """Predicted step over the step: low, expected and high; an upper limit of the saving has no expected one."""
    saving, step_ns = one.finding.saving, one.step_ns
    if not step_ns or not saving.high_ns:
        return None, None, None
    low, high = (max(1 - saved / step_ns, 0.0) for saved in (saving.high_ns, saving.low_ns))
    if saving.method is Method.BOUND:
        return low, None, 1.0
    return low, max(1 - saving.expected_ns / step_ns, 0.0), high


def _together(report: Report, taken: list[Proposal]) -> Iterator[Proposal]:
    """All fixes, with the joint simulation where it holds just these fixes."""
    if len(taken) < 2:
        return
    settings: dict[str, Value] = {}
    for one in reversed(taken):
        settings |= one.settings
    replay = report.recordings[0].replay if report.recordings else None
    joint = replay.joint_step_ns / replay.baseline_step_ns if replay and replay.joint_step_ns else None
    simulated = [one for one in report.findings if one.finding.saving.method is Method.REPLAY]
    same = {one.finding.rule.id for one in simulated} == {one.fix for one in taken}
    yield Proposal(ALL_FIXES, "All of these together", settings, None, joint if same else None, None)
