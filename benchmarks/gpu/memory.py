"""Part 8: device memory of batches b, 2b and 4b: predicted from a capture with b, and measured."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.part import Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import TRUTH
from traceadvisor.analysis.memory.scaling import GrowthLaw, guessed_law
from traceadvisor.facts import Facts
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

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
    law = growth(bundle)
    if law is None:
        part.outbox.skip(f"memory of {workload}", "the recording holds no device memory")
    for factor in FACTORS[:1] if part.reduced else FACTORS:
        measured = _measured(part, workload, factor * batch)
        row = {
            "workload": workload,
            "batch": batch,
            "factor": factor,
            "measured_bytes": measured["peak_bytes"],
            "reserved_bytes": measured["reserved_bytes"],
            **({"predicted_bytes": law.peak_bytes(factor)} if law else {}),
        }
        part.outbox.put("memory", [*part.outbox.document.get("memory", ()), row])
        if law and row["measured_bytes"]:
            part.outbox.say(words(row))


def growth(bundle: Path) -> GrowthLaw | None:
    """How the memory of a capture grows with the batch, as rule MEM002 foresees it; None where it was not recorded."""
    trace = read_trace(Origin(min(bundle.glob(captures.TRACES)), "", "", ""))
    recorded = Facts(trace, trace.device_indices[0], "").allocations if trace.device_indices else None
    return guessed_law(recorded) if recorded else None


def words(row: dict[str, Any]) -> str:
    """Predicted and measured in a line."""
    measured, predicted = row["measured_bytes"], row["predicted_bytes"]
    error = f"{predicted / 2**20:.0f} MiB ({predicted / measured - 1:+.1%})"
    batch = row["batch"] * row["factor"]
    return f"{row['workload']}, batch {batch}: measured {measured / 2**20:.0f} MiB; predicted {error}"


def _measured(part: Part, workload: str, batch: int) -> dict[str, Any]:
    truth_path = part.scratch / f"memory-{workload}-{batch}.json"
    script = part.train(workload, Settings(), steps=PLAIN_STEPS, batch_size=batch)
    environment = {TRUTH: str(truth_path)}
    captures.run([captures.PYTHON, *script], timeout_s=part.budget.left_s, environment=environment)
    document: dict[str, Any] = json.loads(truth_path.read_text(encoding="utf-8"))
    return document
