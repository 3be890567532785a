"""What holds for every report: valid JSON, true sums, ordered bounds, and no control characters."""

from __future__ import annotations

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

ROUNDING_US = 0.001
"""Of a figure in the JSON."""


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
    failed = [f"{row.rule.id}: {row.outcome.error}" for row in report.outcomes if isinstance(row.outcome, Failed)]
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
        saving = finding["saving_us_per_step"]
        require(0 <= saving["low"] <= saving["expected"] <= saving["high"], f"bounds out of order: {saving}")


def _check_recording(recording: Any) -> None:
    steps = recording["steps"]
    for step in steps:
        _check_sum(step["breakdown_us"], step["duration_us"])
    if recording["mean_breakdown_us"]:
        _check_sum(recording["mean_breakdown_us"], recording["mean_step_us"])
    if steps:
        end = max(step["start_us"] + step["duration_us"] for step in steps)
        wall, together = end - steps[0]["start_us"], sum(step["duration_us"] for step in steps)
        rounding = ROUNDING_US * len(steps) + 2 * math.ulp(end)
        require(together <= wall + rounding, f"steps of {together} us in {wall} us")
    busy = recording["gpu_busy_share"]
    require(busy is None or 0 <= busy <= 1, f"a device {busy} busy")


def _check_sum(parts: dict[str, float | None], whole: float) -> None:
    present = [part for part in parts.values() if part is not None]
    require(all(part >= 0 for part in present), f"a negative part: {parts}")
    require(math.isclose(sum(present), whole, abs_tol=ROUNDING_US * len(present)), f"{parts} is not {whole}")


def _no_number(name: str) -> float:
    raise BrokenPromiseError(f"{name} in the JSON")


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
