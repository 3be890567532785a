"""``docs/rules/``: a page a rule and the index, made from the rules; which of them have fired on what is real.

``pytest --golden tests/test_rule_pages.py`` writes them anew; what is written of public recordings stays without them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tests import shared
from tests.shared import CHECKOUT, RECORDINGS, SNAPSHOTS
from traceadvisor import api
from traceadvisor.cli.rules_command import RulePage, ThresholdRow, rule_page
from traceadvisor.config import Settings
from traceadvisor.judging.catalogue import all_rules, group_of
from traceadvisor.model.report import FoundFigures
from traceadvisor.rendering.words import GROUPS
from traceadvisor.rules.base import Rule

FOLDER = CHECKOUT / "docs" / "rules"
FIRED = FOLDER / "fired.json"
PUBLIC = RECORDINGS + SNAPSHOTS
SAMPLES = tuple(f"sample_traces/{path.name}" for path in shared.SAMPLES)

Proofs = Mapping[str, tuple[str, ...]]
"""Recordings in which a rule found something, by its id."""

HEADINGS = {
    "How to fix it": "Do this now",
    "What it finds": "Finds",
    "Why it costs time": "Why",
    "How the saving is estimated": "Saving",
    "When it may be wrong": "Caution",
}
"""What a page calls the sections of a rule, in its order."""

_INTRODUCTION = """\
# Rules

**Do this now:** `traceadvisor rules explain ID` prints what a rule that a report names finds, how to fix it, when it
may be wrong (*Caution* on its page), what it replaces (*Hides*), and the allowed values.

TraceAdvisor runs these rules on every recording. MEM009 to MEM020 check allocations, of
[memory snapshots](../memory.md) and of traces with memory events. [Settings](../settings.md) change thresholds. You can
also [write your own rules](../writing-a-rule.md).

In the tables and on each page:

- A share is a share of the typical step, if its text names nothing else.
- A threshold whose name ends in `_share` takes a number from 0 to 1. Others take a number from 0, a whole one where
  they count something; `traceadvisor rules explain ID` has the allowed values. Pages name only other limits.
- *Simulated*: the step is replayed without the cost. If the simulation cannot be trusted, the saving is an upper limit:
  all the time that the fix could remove. [How savings are estimated](../how-savings-are-estimated.md) says when.
- *Found in*: the number of real recordings in which the rule found something, as [fired.json](fired.json) lists
  them and a test checks: [samples](../../sample_traces/README.md), public recordings of the projects kineto,
  HolisticTraceAnalysis and TraceLens, and public memory snapshots. Rules without any were only tested on synthetic
  traces.

The id HW006 is reserved for the cost of a run. No rule has it: reports show the cost of each recording and finding if a
[price](../settings.md#cost) is set ([why](../decisions/0012-cost-is-no-rule.md)).
"""


def _found(path: Path) -> list[str]:
    report = api.load(path, settings=Settings(plugins=False))
    found = {row.rule_id for row in report.outcomes if isinstance(row.outcome, FoundFigures)}
    memory = (*report.memory, *(one.device_memory for one in report.recordings if one.device_memory))
    fixes = (fix for one in memory for advice in one.advice for fix in advice.advice)
    return sorted(found | {fix.rule.id for fix in fixes})


def _written() -> dict[str, list[str]]:
    written: dict[str, list[str]] = json.loads(FIRED.read_text(encoding="utf-8")) if FIRED.is_file() else {}
    return written


def _proofs() -> Proofs:
    written = _written()
    return {
        rule.meta.id: tuple(recording for recording, found in written.items() if rule.meta.id in found)
        for rule in all_rules()
    }


def test_the_rules_that_fire_on_the_samples_are_as_written_down(golden: Callable[[Path, str], None]) -> None:
    public = {name: rules for name, rules in _written().items() if name in PUBLIC}
    golden(FIRED, _as_json({name: _found(CHECKOUT / name) for name in SAMPLES} | public))


@pytest.mark.nightly("traceadvisor")
def test_the_rules_that_fire_on_public_recordings_are_as_written_down(
    golden: Callable[[Path, str], None], shared_traces: Path
) -> None:
    samples = {name: rules for name, rules in _written().items() if name in SAMPLES}
    golden(FIRED, _as_json(samples | {name: _found(shared_traces / name) for name in PUBLIC}))


def _as_json(fired: dict[str, list[str]]) -> str:
    return json.dumps(fired, indent=2) + "\n"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.meta.id)
def test_each_rule_has_its_page(rule: Rule, golden: Callable[[Path, str], None]) -> None:
    page = rule_page(rule)
    golden(FOLDER / f"{page.id}.md", page_text(page))


def test_the_index_lists_every_rule(golden: Callable[[Path, str], None]) -> None:
    golden(FOLDER / "README.md", index(map(rule_page, all_rules()), _proofs()))


def test_there_are_no_pages_of_rules_that_are_gone() -> None:
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert pages == {rule.meta.id for rule in all_rules()}


def index(pages: Iterable[RulePage], proofs: Proofs) -> str:
    """``README.md``: all rules by group."""
    lines = [_INTRODUCTION]
    by_group: dict[str, list[RulePage]] = {group: [] for group in GROUPS}
    for page in pages:
        by_group[group_of(page.id)].append(page)
    for group, members in by_group.items():
        if members:
            lines += [f"## {group}: {GROUPS[group]}", "", "| rule | finds | found in |", "|---|---|---|"]
            lines += [_row(page, proofs.get(page.id, ())) for page in members]
            lines.append("")
    return "\n".join(lines)


def page_text(page: RulePage) -> str:
    """``<ID>.md``: what to do first."""
    texts = {section.title: section.text for section in page.sections}
    parts = [f"# {page.id} {page.name}: {page.title}", page.summary]
    parts += [f"**{heading}:** {texts[title]}" for title, heading in HEADINGS.items()]
    if page.needs or page.refines:
        parts.append(" ".join(_needs_and_hides(page)))
    if page.thresholds:
        parts.append("\n".join(["**Thresholds:**", "", *map(_threshold, page.thresholds)]))
    return "\n\n".join(parts) + "\n"


def _needs_and_hides(page: RulePage) -> Iterable[str]:
    if page.needs:
        yield f"**Needs:** {', '.join(page.needs)}."
    if page.refines:
        yield f"**Hides:** {', '.join(f'[{rule}]({rule}.md)' for rule in page.refines)} about the same time."


def _row(page: RulePage, proofs: tuple[str, ...]) -> str:
    return f"| [{page.id}]({page.id}.md) {page.name} | {page.title} | {len(proofs) or '-'} |"


def _threshold(row: ThresholdRow) -> str:
    usual = "a number from 0 to 1" if row.name.endswith("_share") else "a number from 0"
    allowed = "" if row.may_be.replace("whole ", "") == usual else f" Allowed: {row.may_be}."
    return f"- `{row.name}={row.value}`: {row.reason}{allowed}"
