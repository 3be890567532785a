"""Part 7: the demo's faults singly, and all fixed: predicted against measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.captures import RunFailedError
from benchmarks.gpu.experiment import Change
from benchmarks.gpu.machine import usable_workers
from benchmarks.gpu.part import Part
from benchmarks.gpu.predictions import proposed_workers
from benchmarks.gpu.settings import Settings
from traceadvisor.model.report import Report

FAULTY = Settings(log_every=1)

RULES = {
    "workers": ("DATA002", "DATA001"),
    "pinned": ("H2D001", "H2D002"),
    "sync": ("IDLE001",),
    "precision": ("GPU001",),
}


def run(part: Part) -> None:
    """Measure each fix beside the other faults, then each fault beside the other fixes."""
    report = _demo(part, "demo-as-it-is", ())
    workers = (report and proposed_workers(report)) or usable_workers(reduced=part.reduced)
    texts = {
        "workers": f"`num_workers=0` -> `{workers}`",
        "pinned": "pageable copies -> pinned memory, `non_blocking=True`",
        "sync": "`.item()` every step -> every 10 steps",
        "precision": "float32 -> bfloat16 autocast",
    }
    fixes: dict[str, dict[str, Any]] = {
        "workers": {"workers": workers},
        "pinned": {"pinned": True},
        "sync": {"log_every": 10},
        "precision": {"amp": True},
    }
    every_fix = {name: value for fix in fixes.values() for name, value in fix.items()}
    fixed = replace(FAULTY, **every_fix)
    single = [Change(f"fix-{name}", texts[name], replace(FAULTY, **fixes[name]), RULES[name]) for name in fixes]
    single.append(Change("fix-all", "all four faults fixed", fixed, ()))
    budget = part.budget.part_of(part.budget.left_s * 0.6)
    predicted = {"": report} if report else {}
    part.attempt(
        "fixed singly",
        lambda: part.experiment("fixed singly", "faults", FAULTY, single, budget, reports=predicted),
    )

    reports: dict[str, Report] = {}
    for name in fixes if not part.reduced else ():
        others = tuple(other for other in fixes if other != name)
        made = _demo(part, f"demo-only-{name}", others)
        if made:
            reports[f"only-{name}"] = made
    faulty = {name: {key: getattr(FAULTY, key) for key in fix} for name, fix in fixes.items()}
    planted = [
        Change(f"only-{name}", texts[name], replace(fixed, **faulty[name]), RULES[name], planted=True) for name in fixes
    ]
    part.experiment("planted singly", "faults", fixed, planted, part.budget, reports=reports)


def _demo(part: Part, name: str, fixes: tuple[str, ...]) -> Report | None:
    """Run ``traceadvisor demo`` with some faults fixed; None where that failed, which is said."""
    folder = part.scratch / name
    words = [word for fix in fixes for word in ("--fix", fix)]
    steps = ["--steps", "30"] if part.reduced else []
    command = [sys.executable, "-m", "traceadvisor", "demo", "-o", str(folder), "--device", part.device, *steps, *words]
    try:
        bundle = _made(part, command, folder, name)
        part.keep(name, bundle, ["train.py", *_arguments(bundle)], expect=f"the demo with {_left(fixes)}")
        return part.report(bundle)
    except RunFailedError as error:
        part.outbox.say(f"{name}: {error}")
        return None


def _made(part: Part, command: list[str], folder: Path, name: str) -> Path:
    """Run the demo and return its capture under the name. Its own HTML report may fail without its libraries."""
    failed: RunFailedError | None = None
    try:
        captures.run(command, timeout_s=min(120.0, part.budget.left_s))
    except RunFailedError as error:
        failed = error
    found = sorted((folder / "runs").glob("*/manifest.json"))
    if not found:
        raise failed or RunFailedError(f"{name}: the demo wrote no capture")
    if failed:
        part.outbox.say(f"{name}: captured, but the demo went on to fail: {str(failed)[-300:]}")
    return found[0].parent.rename(folder / name)


def _arguments(bundle: Path) -> list[str]:
    return [str(word) for word in captures.manifest(bundle).get("command", [])[1:]]


def _left(fixes: tuple[str, ...]) -> str:
    left = [name for name in RULES if name not in fixes]
    return f"the fault{'s' if len(left) > 1 else ''} {', '.join(left)}"
