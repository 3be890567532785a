"""Findings as SARIF 2.1.0, for GitHub's code scanning and other viewers.

The standard: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. What GitHub reads of it:
https://docs.github.com/en/code-security/reference/code-scanning/sarif-support-for-code-scanning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from traceadvisor.model.findings import RuleMeta, Severity
from traceadvisor.model.location import Location
from traceadvisor.model.report import SCHEMA, Report, RuleText
from traceadvisor.rendering.alerts.alert import Alert, alerts_of
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import one_line

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

LEVEL = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}

BASE = "SRCROOT"
"""Stands for the root of the repository, which consumers fill in."""

MOST_NOTES = 20
"""Notes on the recording; GitHub reads no more notifications of a run."""

LONGEST_TEXT = 1_000

READING = {
    "DATA": "https://docs.pytorch.org/docs/stable/data.html",
    "H2D": "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    "IDLE": "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    "GPU": "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    "MEM": "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    "DIST": "https://docs.pytorch.org/docs/stable/notes/ddp.html",
    "HW": "https://docs.nvidia.com/deploy/nvidia-smi/index.html",
}
"""Documentation of what the fixes use, by group of rules. The rule's own page is in the file."""

_GROUP = re.compile(r"([A-Z0-9]+?)\d{3}")
_LINK = re.compile(r"\](?=\()")
_PLACEHOLDER = re.compile(r"\{(?=\d)")


def render(report: Report) -> bytes:
    """The findings as UTF-8 JSON."""
    clean = shortened(redacted(report), LONGEST_TEXT)
    notes = tuple(dict.fromkeys(one_line(row.note.message) for row in clean.health_notes if row.note.degrades))
    return sarif(alerts_of(report), clean.tool_version, notes, clean.rules)


def sarif(
    alerts: Sequence[Alert], tool_version: str, notes: Sequence[str] = (), texts: Sequence[RuleText] = ()
) -> bytes:
    """Alerts as a SARIF log with one run.

    ``alerts``: the most important first. ``notes``: what makes them less certain, a sentence each. ``texts``: what the
    rules check.
    """
    order = list(Severity)
    rules = {alert.rule.id: alert.rule for alert in alerts}
    mildest_first = sorted(alerts, key=lambda alert: -order.index(alert.severity))
    worst = {alert.rule.id: alert.severity for alert in mildest_first}
    text_of = {text.id: text for text in texts}
    numbers = {rule_id: number for number, rule_id in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "TraceAdvisor",
                "semanticVersion": tool_version,
                "rules": [_rule(rule, worst[rule.id], text_of.get(rule.id)) for rule in rules.values()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": _message(note)}} for note in notes[:MOST_NOTES]
                ],
            }
        ],
        "automationDetails": {"id": "traceadvisor/"},
        "columnKind": "unicodeCodePoints",
        "results": [_result(alert, numbers) for alert in alerts],
        "properties": {"schema": SCHEMA},
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n"


def _rule(rule: RuleMeta, severity: Severity, text: RuleText | None) -> dict[str, Any]:
    group = _GROUP.fullmatch(rule.id)
    reading = READING.get(group[1]) if group else None
    summary = text.summary if text else rule.title
    paragraphs = [(section.title, section.text) for section in text.sections] if text else []
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in re.split("[^A-Za-z0-9]+", rule.name)) or rule.id,
        "shortDescription": {"text": _message(f"{rule.title.rstrip('.')}.")},
        "fullDescription": {"text": _message(summary)},
        "help": {
            "text": "\n\n".join((summary, *(f"{title}: {body}" for title, body in paragraphs))),
            "markdown": "\n\n".join((summary, *(f"**{title}**\n\n{body}" for title, body in paragraphs))),
        }
        if text
        else {"text": _message(summary)},
        **({"helpUri": reading} if reading else {}),
        "defaultConfiguration": {"level": LEVEL[severity]},
        "properties": {"tags": ["performance"]},
    }


def _result(alert: Alert, numbers: Mapping[str, int]) -> dict[str, Any]:
    related = [{"id": number, **_location(place)} for number, place in enumerate(alert.related, start=1)]
    return {
        "ruleId": alert.rule.id,
        "ruleIndex": numbers[alert.rule.id],
        "level": LEVEL[alert.severity],
        "rank": round(100 * min(max(alert.saving_share, 0.0), 1.0), 1),
        "message": {"text": _message(alert.text)},
        "locations": [_location(alert.place)],
        **({"relatedLocations": related} if related else {}),
        "partialFingerprints": {
            "primaryLocationLineHash": alert.fingerprint,
            "traceadvisorPlace/v1": alert.place_fingerprint,
        },
        "properties": {"confidence": alert.confidence.value},
    }


def _location(place: Location) -> dict[str, Any]:
    functions = [{"name": place.function, "kind": "function"}] if place.function else []
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(place.file, safe="/"), "uriBaseId": BASE},
            "region": {"startLine": place.line},
        },
        **({"logicalLocations": functions} if functions else {}),
    }


def _message(text: str) -> str:
    """Plain text without what SARIF reads in messages: links (section 3.11.6) and placeholders (3.11.5)."""
    return _PLACEHOLDER.sub("{ ", _LINK.sub("] ", one_line(text)))
