"""What a JSON report predicts for a change, as a share of the step that the prediction is of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

Document = dict[str, Any]

ALL_FIXES = "all fixes"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The step after a change over the step before it."""

    status: str
    """found, folded (into another finding, which the rule below names), clear, skipped or absent."""

    rule: str
    method: str | None = None
    low: float | None = None
    """The shortest step; a bound has no expected one."""

    expected: float | None = None
    high: float | None = None
    reason: str | None = None
    """Why the rule found nothing, or why its saving is a bound."""

    def document(self) -> Document:
        """As it stands in a JSON file."""
        return asdict(self)


def predict(report: Document, rules: Sequence[str]) -> Prediction:
    """The prediction of the first of some rules that found something, alone or folded; else why none did."""
    for rule in rules:
        for finding in report["findings"]:
            if finding["rule_id"] == rule and finding["step_us"]:
                return _of(finding, rule, "found")
    for rule in rules:
        for finding in report["findings"]:
            if rule in finding["also"] and finding["step_us"]:
                own = [one for one in finding.get("folded", ()) if one["rule_id"] == rule]
                saving = own[0]["saving_us_per_step"] if own else None
                return _of(finding, finding["rule_id"], "folded", saving)
    outcomes = [row for rule in rules for row in report["outcomes"] if row["rule_id"] == rule]
    for status in ("clear", "skipped", "failed"):
        for row in outcomes:
            if row["status"] == status:
                return Prediction(status, row["rule_id"], reason=row["reason"])
    return Prediction("absent", rules[0])


def predict_all_fixes(report: Document) -> Prediction:
    """The joint replay of all fixes of the first recording."""
    replay = report["recordings"][0]["replay"]
    step, joint = replay["baseline_step_us"], replay["joint_step_us"]
    if not step or joint is None:
        return Prediction("absent", ALL_FIXES, reason=replay["reason"])
    return Prediction("found", ALL_FIXES, "replay", expected=joint / step, reason=replay["device_reason"])


def proposed_workers(report: Document) -> int | None:
    """The number of loader workers that the report proposes, None where it proposes none."""
    for finding in report["findings"]:
        numbers = re.findall(r"num_workers=(\d+)", finding["fix"]["change"] or "")
        if numbers:
            return int(numbers[-1])
    return None


def found_rules(report: Document) -> list[str]:
    """Ids of the rules that found something."""
    return sorted({row["rule_id"] for row in report["outcomes"] if row["status"] == "found"})


def _of(finding: Document, rule: str, status: str, own_saving: Document | None = None) -> Prediction:
    """The prediction of a finding, or of one folded into it, from the saving of its own fix."""
    step, saving = finding["step_us"], own_saving or finding["saving_us_per_step"]
    shortest, longest = (max(1 - saving[end] / step, 0.0) for end in ("high", "low"))
    if saving["method"] != "replay":
        return Prediction(status, rule, saving["method"], shortest, None, longest, saving["reason"])
    return Prediction(status, rule, saving["method"], shortest, max(1 - saving["expected"] / step, 0.0), longest)
