"""What holds for every report: valid JSON, true sums, ordered bounds, and no control characters."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import jsonschema

from tests.shared import CHECKOUT
from traceadvisor.model.findings import Failed
from traceadvisor.model.report import Report, StepRow

SCHEMA = CHECKOUT / "docs" / "report.schema.json"

MOST_MARKDOWN_CHARACTERS = 60_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_NO_MEMORY = "reading it took all the memory"


class BrokenPromiseError(AssertionError):
    """A report that contradicts itself or its description."""


def require(holds: bool, otherwise: str) -> None:  # noqa: FBT001  # reads as an assertion
    """Raise BrokenPromiseError unless it holds."""
    if not holds:
        raise BrokenPromiseError(otherwise)


def check_steps(rows: Iterable[StepRow]) -> None:
    """Each step is the sum of its parts, and begins after the one before it."""
    end_ns = -math.inf
    for row in rows:
        parts = [part for part in row.breakdown.parts_ns.values() if part is not None]
        require(min(parts, default=0) >= 0, f"a negative part: {row}")
        require(sum(parts) == row.step.duration_ns, f"parts of {sum(parts)} ns in {row}")
        require(end_ns <= row.step.start_ns <= row.step.end_ns, f"a step in another one: {row}")
        end_ns = row.step.end_ns


def check_outcomes(report: Report) -> None:
    """No rule failed, and no file."""
    failed = [f"{row.rule_id}: {row.outcome.error}" for row in report.outcomes if isinstance(row.outcome, Failed)]
    memory = (*report.memory, *(one.device_memory for one in report.recordings if one.device_memory))
    checks = (check for one in memory for advice in one.advice for check in advice.checks)
    failed += [f"{one.rule.id}: {one.outcome.error}" for one in checks if isinstance(one.outcome, Failed)]
    require(not failed, f"a rule failed: {failed}")
    faults = [
        row.note.message for row in report.health_notes if row.note.code == "fault" or _NO_MEMORY in row.note.message
    ]
    require(not faults, f"a file failed: {faults}")


def check_texts(contents: Mapping[str, str]) -> None:
    """Texts by format: none is cut off, too long, or holds what a terminal obeys."""
    for name, content in contents.items():
        require(not _CONTROL.search(content), f"a control character in the {name}")
    require(contents.get("html", "</html>").rstrip().endswith("</html>"), "the page breaks off")
    require(len(contents.get("md", "")) < MOST_MARKDOWN_CHARACTERS, "the Markdown is too long")


def check_json(content: str) -> Any:
    """JSON without NaN and infinity; returns what it holds."""
    return json.loads(content, parse_constant=_no_number)


def check_document(document: Any, report: Report, *, with_schema: bool) -> None:
    """The JSON report follows its schema, and its figures agree with each other."""
    if with_schema:
        _validator().validate(document)
    require(len(document["recordings"]) == len(report.recordings), "recordings are missing")
    for recording in document["recordings"]:
        _check_recording(recording)
    for finding in document["findings"]:
        saving = finding["finding"]["saving"]
        require(0 <= saving["low_ns"] <= saving["expected_ns"] <= saving["high_ns"], f"bounds out of order: {saving}")


def _check_recording(recording: Any) -> None:
    steps = [row["step"] for row in recording["steps"]]
    for row, step in zip(recording["steps"], steps, strict=True):
        require(row["breakdown"]["duration_ns"] == step["end_ns"] - step["start_ns"], f"another duration: {row}")
        _check_sum(row["breakdown"])
    if mean := recording.get("mean_breakdown"):
        _check_sum(mean)
    if steps:
        wall = max(step["end_ns"] for step in steps) - steps[0]["start_ns"]
        together = sum(step["end_ns"] - step["start_ns"] for step in steps)
        require(together <= wall, f"steps of {together} ns in {wall} ns")
    busy = recording["figures"].get("busy_share")
    require(busy is None or 0 <= busy <= 1, f"a device {busy} busy")


def _check_sum(breakdown: dict[str, Any]) -> None:
    present = [part for part in breakdown["parts_ns"].values() if part is not None]
    require(all(part >= 0 for part in present), f"a negative part: {breakdown}")
    require(math.isclose(sum(present), breakdown["duration_ns"], abs_tol=len(present)), f"another sum: {breakdown}")


def _no_number(name: str) -> float:
    raise BrokenPromiseError(f"{name} in the JSON")


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
