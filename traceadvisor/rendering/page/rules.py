"""What the rules of a report check: the places that their ids link to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from traceadvisor.frozen import frozen
from traceadvisor.model.report import Report
from traceadvisor.model.rule_text import RuleSection
from traceadvisor.text.cleaning import clipped

LONGEST_TEXT = 1_200
"""Characters of a paragraph. Those of our own rules are shorter."""

MOST_RULES = 300
"""A page must stay small whatever plugins add."""

_ID = re.compile(r"[A-Z][A-Z0-9]{1,30}[0-9]{3}")


@frozen
class RuleView:
    """A rule and what it checks."""

    id: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...]


def rule_views(report: Report) -> Mapping[str, RuleView]:
    """The rules of a report by their ids, those with a finding first; without ids that no rule can have."""
    rules = sorted((rule for rule in report.rules if _ID.fullmatch(rule.id)), key=lambda rule: not rule.sections)
    return {
        rule.id: RuleView(
            rule.id,
            clipped(rule.title, LONGEST_TEXT),
            clipped(rule.summary, LONGEST_TEXT),
            tuple(RuleSection(one.title, clipped(one.text, LONGEST_TEXT)) for one in rule.sections),
        )
        for rule in rules[:MOST_RULES]
    }
