"""Part 11: memory that runs out on purpose, the cost of the history, and classes beside torch's own counts."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.checks import Check, Found, run_checks
from benchmarks.gpu.part import LIGHT, Part
from traceadvisor.model.memory_figures import DeviceMemoryFigures

SCRIPT = str(Path(__file__).with_name("scripts") / "exhausted.py")
ROUNDS = 3


def run(part: Part) -> None:
    """Run all checks."""
    run_checks(
        part,
        (
            Check("memory that runs out", "the report says that 1 GiB was asked for", _runs_out, 30.0, on_cpu=False),
            Check("classes beside torch's counts", "each within 2%", _classes, 30.0, on_cpu=False),
            Check("cost of the history", "steps take at most 1.05 of the time without", _cost, 60.0, on_cpu=False),
        ),
    )


def _runs_out(part: Part) -> Found:
    device, _ = _captured(part, "exhausted")
    ran_out = device.out_of_memory
    holds = ran_out is not None and ran_out.asked_bytes == 1 << 30
    return Found(holds, f"{ran_out}")


def _classes(part: Part) -> Found:
    device, counted = _captured(part, "counted", "--stay")
    found = {one.kind.value: one.requested_bytes for one in device.classes} | {"peak_bytes": device.peak_bytes}
    ratios = {name: found.get(name, 0) / counted[name] for name in counted if name != "step_s"}
    holds = all(abs(ratio - 1) <= 0.02 for ratio in ratios.values())
    return Found(holds, ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items()))


def _cost(part: Part) -> Found:
    times: dict[str, list[float]] = {"off": [], "auto": []}
    for number in range(ROUNDS):
        for history, found in times.items():
            _, counted = _run(part, f"cost-{history}-{number}", "--stay", history=history)
            found.append(counted["step_s"])
    ratio = median(times["auto"]) / median(times["off"])
    return Found(ratio <= 1.05, f"{ratio:.3f} of the time without")


def _captured(part: Part, name: str, *options: str) -> tuple[DeviceMemoryFigures, dict[str, Any]]:
    bundle, counted = _run(part, name, *options)
    part.keep(name, bundle, [SCRIPT, *options], expect="memory by class")
    return part.report(bundle).memory[0].devices[0], counted


def _run(part: Part, name: str, *options: str, history: str = "auto") -> tuple[Path, dict[str, Any]]:
    """Capture the training; returns the bundle and what torch counted."""
    out = part.scratch / f"{name}.json"
    bundle = captures.capture(
        part.scratch / name,
        [SCRIPT, str(out), *options],
        (*LIGHT, "--memory-history", history),
        timeout_s=max(part.budget.left_s, 30.0),
    )
    counted: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return bundle, counted
