"""Part 12: trainings as they are and fixed, by their own clock, beside what a default capture predicts.

``TRAININGS`` names a folder of scripts; by default, the kit's own. Each script takes ``--fixed``, ``--device``,
``--steps`` and ``--small``, and its last line is a JSON object with the mean step, ``overall_ms``, or with ``skipped``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.figures import around
from benchmarks.gpu.part import Part

OWN = Path(__file__).with_name("scripts") / "trainings"
STEPS, SKIPPED_STEPS = 80, 13
"""The script's clock begins after 15 steps, with a synchronisation; the recording begins after it."""

LONGEST_S = 120.0
"""Of one run."""

Row = dict[str, Any]


def run(part: Part) -> None:
    """Measure each script, then the cost of an attached CUPTI on those that were captured."""
    rows: list[Row] = []
    for script in scripts(Path(os.environ.get("TRAININGS", OWN))):
        part.attempt(script.stem, lambda script=script: rows.append(_measured(part, script)))  # type: ignore[misc]
        part.outbox.put("trainings", rows)
    inside = [row["inside"] for row in rows if row.get("inside") is not None]
    part.outbox.say(f"{sum(inside)} of {len(inside)} measured savings lie in the interval of the first finding")


def scripts(folder: Path) -> list[Path]:
    """The trainings of a folder, by name; what they share is none."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    return [path for path, text in texts.items() if ".fixed" in text and "__main__" in text]


def _measured(part: Part, script: Path) -> Row:
    """The mean steps of a script as it is and fixed, the first prediction, and steps around recordings."""
    plain = _clocked(part, script)
    if "skipped" in plain:
        return {"name": script.stem, "skipped": plain["skipped"]}
    fixed, bundle = _clocked(part, script, "--fixed"), _captured(part, script, script.stem)
    row = {"name": script.stem, "before_ms": plain["overall_ms"], "fixed_ms": fixed["overall_ms"]}
    row |= _predicted(part, bundle, 1 - fixed["overall_ms"] / plain["overall_ms"])
    detached = _captured(part, script, f"{script.stem}-detached", {"TEARDOWN_CUPTI": "1"})
    for name, found in (("attached", bundle), ("detached", detached)):
        before_ns, after_ns = around(captures.step_rows(found))
        row[f"after_over_before_{name}"] = after_ns / before_ns
    part.outbox.say(", ".join(f"{name} {_shown(value)}" for name, value in row.items()))
    return row


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _predicted(part: Part, bundle: Path, saved: float) -> Row:
    """The interval of the first finding, and whether it holds what was saved; shares of the step."""
    first = next((row for row in part.report(bundle).findings if row.step_ns), None)
    if first is None or not first.step_ns:
        return {"saved": saved, "rule": None, "inside": None}
    saving = first.finding.saving
    low, high = saving.low_ns / first.step_ns, saving.high_ns / first.step_ns
    ends = {"low": low, "expected": saving.expected_ns / first.step_ns, "high": high}
    return {"saved": saved, "rule": first.finding.rule.id, **ends, "inside": low <= saved <= high}


def _clocked(part: Part, script: Path, *options: str) -> Row:
    """What a run without a capture says of itself in its last line."""
    output = captures.run([captures.PYTHON, *_command(part, script), *options], timeout_s=_left_s(part))
    said: Row = json.loads(output.strip().splitlines()[-1])
    return said


def _captured(part: Part, script: Path, name: str, environment: dict[str, str] | None = None) -> Path:
    bundle, options = part.scratch / name, ("--skip-first", str(SKIPPED_STEPS), "--wait", "3")
    command = _command(part, script)
    captures.capture(bundle, command, options, timeout_s=_left_s(part), environment=environment)
    return part.keep(name, bundle, command, options, expect="the fault of the training")


def _command(part: Part, script: Path) -> list[str]:
    words = [str(script.resolve()), "--steps", str(STEPS), "--device", part.device]
    return [*words, *(["--small"] if part.reduced else [])]


def _left_s(part: Part) -> float:
    return min(LONGEST_S, max(part.budget.left_s, 10.0))
