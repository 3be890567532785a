"""The pages of ``docs/rules/``, made from the rules themselves and from what they found in real recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from traceadvisor.cli.rule_page import RulePage, ThresholdRow
from traceadvisor.judging.catalogue import GROUPS, group_of

Proofs = Mapping[str, tuple[str, ...]]
"""Recordings in which a rule found something, by its id."""

SYNTHETIC = "synthetic traces only"

_HEAD = ("| id | name | finds | needs | proven on |", "|---|---|---|---|---|")

_INTRODUCTION = """\
# Rules

TraceAdvisor runs these rules on every recording. Each page is the documentation of one rule;
`traceadvisor rules explain ID` prints the same text. [Settings](../settings.md) change thresholds. You can also
[write your own rules](../writing-a-rule.md).

A rule is proven when it found something in a real recording: one of the [samples](../../sample_traces/README.md) or
a public recording (`formats/...` and `tensorboard-logs/...`, from the projects kineto, HolisticTraceAnalysis and
TraceLens). The other rules were only tested on synthetic traces. [fired.json](fired.json) lists the findings in each
recording, and a test checks the list.

If a page says that the step is simulated, but the simulation cannot be trusted, the saving is an upper limit: all
the time that the fix could remove. See [how savings are estimated](../how-savings-are-estimated.md).

The id HW006 is reserved for the cost of a run. No rule has it: reports show the cost of each recording and finding if a
[price](../settings.md#cost) is set ([why](../decisions/0012-cost-is-no-rule.md)).
"""


def index(pages: Iterable[RulePage], proofs: Proofs) -> str:
    """``README.md``: all rules by group."""
    lines = [_INTRODUCTION]
    by_group: dict[str, list[RulePage]] = {group: [] for group in GROUPS}
    for page in pages:
        by_group[group_of(page.id)].append(page)
    for group, members in by_group.items():
        if members:
            lines += [
                f"## {group}: {GROUPS[group]}",
                "",
                "| id | name | finds | needs | proven on |",
                "|---|---|---|---|---|",
            ]
            lines += [_row(page, proofs.get(page.id, ())) for page in members]
            lines.append("")
    return "\n".join(lines)


def page_text(page: RulePage, proofs: tuple[str, ...]) -> str:
    """``<ID>.md``."""
    parts = [f"# {page.id} {page.name}: {page.title}", page.summary]
    for section in page.sections:
        parts += [f"## {section.title}", section.text]
    parts += ["## Needs", _sentence(page.needs) if page.needs else "No input in particular."]
    if page.refines:
        links = ", ".join(f"[{rule}]({rule}.md)" for rule in page.refines)
        parts += ["## Hides findings of", f"{links} about the same time."]
    if page.thresholds:
        parts += ["## Thresholds", "\n".join(_thresholds(page.thresholds))]
    parts += ["## Tested on", _list(proofs)]
    return "\n\n".join(parts) + "\n"


def _row(page: RulePage, proofs: tuple[str, ...]) -> str:
    proven = f"{len(proofs)} recording{'s' if len(proofs) > 1 else ''}" if proofs else SYNTHETIC
    return f"| [{page.id}]({page.id}.md) | {page.name} | {page.title} | {', '.join(page.needs)} | {proven} |"


def _thresholds(rows: Iterable[ThresholdRow]) -> list[str]:
    lines = ["| name | default | allowed values | why |", "|---|---|---|---|"]
    return lines + [f"| `{row.name}` | {row.value} | {row.may_be} | {row.reason} |" for row in rows]


def _list(proofs: tuple[str, ...]) -> str:
    if not proofs:
        return "Synthetic traces only: this rule has no finding on a real recording yet."
    return "\n".join(f"- `{recording}`" for recording in proofs)


def _sentence(needs: tuple[str, ...]) -> str:
    text = ", ".join(needs)
    return f"{text[0].upper()}{text[1:]}."
