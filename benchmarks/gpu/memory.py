"""Part 8: device memory of batches b, 2b and 4b: predicted from a capture with b, and measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.part import Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import TRUTH
from traceadvisor.analysis.memory.device_memory import PeakParts, peak_parts
from traceadvisor.model.memory_figures import SnapshotFigures

FACTORS = (1, 2, 4)
BATCHES = {"pictures": 48, "text": 8}
REDUCED_BATCH = 2
STEPS = 40
PLAIN_STEPS = 15
"""Steps of a run that only measures its peak."""


def run(part: Part) -> None:
    """For each workload, predict and measure."""
    for workload in BATCHES:
        part.attempt(workload, partial(_workload, part, workload))


def _workload(part: Part, workload: str) -> None:
    batch = REDUCED_BATCH if part.reduced else BATCHES[workload]
    script = part.train(workload, Settings(), steps=None if part.reduced else STEPS, batch_size=batch)
    expect = f"device memory of batch {batch}"
    bundle = part.capture(f"memory-{workload}", script, ("--no-stacks",), expect=expect)
    parts = at_peak(part.report(bundle).recordings[0].device_memory)
    if parts is None:
        part.outbox.skip(f"memory of {workload}", "the recording holds no device memory")
    for factor in FACTORS[:1] if part.reduced else FACTORS:
        measured = _measured(part, workload, factor * batch)
        row = {
            "workload": workload,
            "batch": batch,
            "factor": factor,
            "measured_bytes": measured["peak_bytes"],
            "reserved_bytes": measured["reserved_bytes"],
            "recorded": parts and asdict(parts),
            **(predictions(parts, factor) if parts else {}),
        }
        part.outbox.put("memory", [*part.outbox.document.get("memory", ()), row])
        if parts and row["measured_bytes"]:
            part.outbox.say(words(row))


def at_peak(memory: SnapshotFigures | None) -> PeakParts | None:
    """The parts of the recorded peak; None where the recording does not tell."""
    return peak_parts(memory.devices[0]) if memory else None


def predictions(parts: PeakParts, factor: int) -> dict[str, float]:
    """The peak of a batch so many times as large, in bytes, as rule MEM002 foresees it: both of its forecasts."""
    added = parts.peak_bytes - parts.state_bytes
    return {
        "all_grows_bytes": float(parts.state_bytes + factor * added),
        "activations_grow_bytes": float(parts.peak_bytes + (factor - 1) * parts.activations_bytes),
    }


def words(row: dict[str, Any]) -> str:
    """Predicted and measured in a line."""
    measured = row["measured_bytes"]
    errors = ", ".join(
        f"{name} {row[key] / 2**20:.0f} MiB ({row[key] / measured - 1:+.1%})"
        for name, key in (("all grows", "all_grows_bytes"), ("activations grow", "activations_grow_bytes"))
    )
    batch = row["batch"] * row["factor"]
    return f"{row['workload']}, batch {batch}: measured {measured / 2**20:.0f} MiB; predicted {errors}"


def _measured(part: Part, workload: str, batch: int) -> dict[str, Any]:
    truth_path = part.scratch / f"memory-{workload}-{batch}.json"
    script = part.train(workload, Settings(), steps=PLAIN_STEPS, batch_size=batch)
    environment = {TRUTH: str(truth_path)}
    captures.run([captures.PYTHON, *script], timeout_s=part.budget.left_s, environment=environment)
    document: dict[str, Any] = json.loads(truth_path.read_text(encoding="utf-8"))
    return document
