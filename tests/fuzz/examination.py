"""What must hold for whatever is read: a report that keeps its promises, or an error that is meant for the user."""

from __future__ import annotations

import json
import math
import re
from enum import Enum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema

from tests.shared import CHECKOUT
from traceadvisor.api import load, scrub, to_frame, write
from traceadvisor.bundle.folder import is_bundle
from traceadvisor.errors import InputError
from traceadvisor.judging.breakdown import breakdown
from traceadvisor.model.findings import Failed
from traceadvisor.model.report import Report

SCHEMA = CHECKOUT / "docs" / "report.schema.json"
DRAWN_EVERY = 3
"""How many reports pass between two that are also drawn as HTML and Markdown, which takes half of the time."""

MOST_MARKDOWN_CHARACTERS = 60_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_NO_MEMORY = "reading it took all the memory"

ROUNDING_US = 0.001
"""Of a figure in the JSON."""


class Verdict(Enum):
    """What came of an input."""

    REPORT = "report"
    REFUSED = "refused"
    """With an error that says why."""


class BrokenPromiseError(AssertionError):
    """A report that contradicts itself or its description."""


def examine(path: Path, *, with_pdf: bool = False) -> Verdict:
    """Read, judge and draw what is there.

    Raises:
        BrokenPromiseError: what came out is not what a report is.
        Exception: whatever the tool raised that is not meant for a user.
    """
    try:
        report = load(path, processes=1)
    except InputError as error:
        if error.__cause__ and isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from error
        _require(error.path.startswith(str(path.parent)), f"the message names no file: {error}")
        _require(bool(error.found and error.expected and error.remedy), f"a message with parts missing: {error}")
        return Verdict.REFUSED
    failed = [f"{row.rule.id}: {row.outcome.error}" for row in report.outcomes if isinstance(row.outcome, Failed)]
    _require(not failed, f"a rule failed: {failed}")
    faults = [
        row.note.message for row in report.health_notes if row.note.code == "fault" or _NO_MEMORY in row.note.message
    ]
    _require(not faults, f"a file failed: {faults}")
    to_frame(report)
    with TemporaryDirectory() as folder:
        drawn = ("html", "md") if with_pdf or _size_bytes(path) % DRAWN_EVERY == 0 else ()
        _examine_files(write(report, Path(folder), (*drawn, "json", *(["pdf"] if with_pdf else []))), report)
    _examine_copy(path)
    return Verdict.REPORT


def _size_bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in ([path] if path.is_file() else path.iterdir()))


def _examine_copy(path: Path) -> None:
    """A copy to share has the same steps."""
    if path.is_dir() and not is_bundle(path):
        return
    with TemporaryDirectory() as folder:
        try:
            copy = scrub(path, Path(folder) / "copy").path
        except InputError:
            return
        if not path.is_dir():
            _require(_steps(copy) == _steps(path), "a copy has other steps")


def _steps(path: Path) -> Any:
    """Duration and categories of each step, by device; None if there are no events that a report needs."""
    try:
        found = breakdown(path)
    except InputError:
        return None
    return {device: [(row.step, row.breakdown.parts_ns) for row in rows] for device, rows in found.items()}


def _examine_files(written: dict[str, Path], report: Report) -> None:
    content = {name: path.read_bytes() for name, path in written.items()}
    _examine_document(json.loads(content["json"], parse_constant=_no_number), report)
    _require(content.get("html", b"</html>").decode().rstrip().endswith("</html>"), "the page breaks off")
    _require(len(content.get("md", b"").decode()) < MOST_MARKDOWN_CHARACTERS, "the Markdown is too long")
    for name in content.keys() & {"html", "md", "json"}:
        _require(not _CONTROL.search(content[name].decode()), f"a control character in the {name}")
    _require(content.get("pdf", b"%PDF").startswith(b"%PDF"), "no PDF")


def _examine_document(document: Any, report: Report) -> None:
    _validator().validate(document)
    _require(len(document["recordings"]) == len(report.recordings), "recordings are missing")
    for recording in document["recordings"]:
        _examine_recording(recording)
    for finding in document["findings"]:
        saving = finding["saving_us_per_step"]
        _require(0 <= saving["low"] <= saving["expected"] <= saving["high"], f"bounds out of order: {saving}")


def _examine_recording(recording: Any) -> None:
    steps = recording["steps"]
    for step in steps:
        _examine_sum(step["breakdown_us"], step["duration_us"])
    if recording["mean_breakdown_us"]:
        _examine_sum(recording["mean_breakdown_us"], recording["mean_step_us"])
    if steps:
        end = max(step["start_us"] + step["duration_us"] for step in steps)
        wall, together = end - steps[0]["start_us"], sum(step["duration_us"] for step in steps)
        rounding = ROUNDING_US * len(steps) + 2 * math.ulp(end)
        _require(together <= wall + rounding, f"steps of {together} us in {wall} us")
    busy = recording["gpu_busy_share"]
    _require(busy is None or 0 <= busy <= 1, f"a device {busy} busy")


def _examine_sum(parts: dict[str, float | None], whole: float) -> None:
    present = [part for part in parts.values() if part is not None]
    _require(all(part >= 0 for part in present), f"a negative part: {parts}")
    _require(math.isclose(sum(present), whole, abs_tol=ROUNDING_US * len(present)), f"{parts} is not {whole}")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001  # reads as an assertion
    if not holds:
        raise BrokenPromiseError(otherwise)


def _no_number(name: str) -> float:
    raise BrokenPromiseError(f"{name} in the JSON")


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
