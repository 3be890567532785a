"""Part 10: CUDA graphs, streams, shared devices, several ranks and waits: what captures of them say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.captures import RunFailedError
from benchmarks.gpu.carried import ROOT
from benchmarks.gpu.part import LIGHT, Part
from benchmarks.gpu.settings import Settings

SCRIPTS = Path(__file__).with_name("scripts")
LAUNCHER = (sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2")
SHOWN_CHARACTERS = 300


def run(part: Part) -> None:
    """Run every case; one that fails does not stop the others."""
    cases: dict[str, Callable[[Part], dict[str, Any]]] = {
        "waits": waits,
        "graphs": graphs,
        "streams": streams,
        "two processes": two_processes,
        "ddp": lambda given: ranks(given, "ddp"),
        "fsdp": lambda given: ranks(given, "fsdp"),
    }
    found: dict[str, Any] = {}
    for name, case in cases.items():
        if name in ("graphs", "streams") and part.device != "cuda":
            part.outbox.skip(name, "no CUDA device")
            continue
        if part.budget.left_s < 20:
            part.outbox.skip(name, "no time left")
            continue
        try:
            found[name] = case(part)
        except Exception as error:  # noqa: BLE001  # the other cases are worth running
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
            part.failures.append(f"{name}: {type(error).__name__}")
            part.outbox.say(f"{name} failed: {type(error).__name__}: {str(error)[-SHOWN_CHARACTERS:]}")
        part.outbox.put("special", found)


def waits(part: Part) -> dict[str, Any]:
    """`.item()` in every step: is the wait found, and its line?"""
    script = SCRIPTS / "waits.py"
    words = [captures.relative(script), "--device", part.device]
    bundle = part.capture("item-each-step", words, ("--no-memory",), expect="the line that waits for the loss")
    report = part.report(bundle)
    findings = [row for row in report.findings if "IDLE001" in (row.finding.rule.id, *row.also)]
    lines = [line_of(script, place.line) for row in findings for place in row.finding.locations]
    if part.device != "cuda":
        part.outbox.skip("the source line of .item()", "nothing waits for a device without one")
    elif any(".item()" in line for line in lines):
        part.outbox.say(f"IDLE001 names the line: {lines[0]}")
    else:
        part.outbox.say(f"IDLE001 does not name the line of .item(): {lines or 'no finding'}")
    return {"found": bool(findings), "lines": lines}


def graphs(part: Part) -> dict[str, Any]:
    """Forward and backward pass as CUDA graphs: are their kernels part of the steps?"""
    words = [captures.relative(SCRIPTS / "graphs.py")]
    return _summary(part, part.capture("cuda-graphs", words, LIGHT, expect="kernels launched by CUDA graphs"))


def streams(part: Part) -> dict[str, Any]:
    """Copies and computation on streams of their own."""
    words = [captures.relative(SCRIPTS / "streams.py")]
    return _summary(part, part.capture("several-streams", words, LIGHT, expect="copies hidden by another stream"))


def two_processes(part: Part) -> dict[str, Any]:
    """Two trainings on one device at the same time."""
    script = part.train("pictures", Settings(workers=2, pinned=True))
    bundles = [part.scratch / f"shared-device-{side}" for side in ("one", "two")]
    running = [
        subprocess.Popen(  # commands of our own
            captures.capture_command(bundle, script, LIGHT),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for bundle in bundles
    ]
    try:
        errors = [process.communicate(timeout=max(min(120.0, part.budget.left_s), 1.0))[1] for process in running]
    finally:
        for process in running:
            captures.kill_tree(process.pid)
    if any(process.returncode for process in running):
        raise RunFailedError(" / ".join(text[-SHOWN_CHARACTERS:] for text in errors))
    part.keep(bundles[0].name, bundles[0], script, LIGHT, expect="a device that another process uses too")
    summary = _summary(part, bundles[0])
    if part.device != "cuda":
        part.outbox.skip("HW003 on a shared device", "no CUDA device")
    return summary


def ranks(part: Part, kind: str) -> dict[str, Any]:
    """Two ranks on one device: over NCCL where it allows that, else over gloo."""
    result: dict[str, Any] = {}
    if part.device != "cuda":
        part.outbox.skip(f"{kind} over NCCL", "no CUDA device")
    for backend in ("nccl", "gloo") if part.device == "cuda" else ("gloo",):
        name = f"{kind}-{backend}"
        words = [captures.relative(SCRIPTS / "ranks.py"), "--kind", kind, "--backend", backend]
        words += ["--device", part.device]
        try:
            expect = f"{kind.upper()} over {backend}, two ranks on one device"
            bundle = part.capture(
                name, words, LIGHT, LAUNCHER, expect=expect, minutes=1.0 if backend == "nccl" else 2.0
            )
        except RunFailedError as error:
            reason = refusal(error.output or str(error))
            result[backend] = {"refused": reason}
            part.outbox.say(f"{kind} over {backend} with two ranks on one device does not run: {reason}")
            continue
        result[backend] = _summary(part, bundle)
        part.outbox.say(f"{kind} over {backend} with two ranks on one device runs")
        break
    return result


def refusal(output: str) -> str:
    """The line of a launcher's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for telling in ("Duplicate GPU", "ncclInvalidUsage", "NCCL error", "Error:", "did not end"):
        for line in lines:
            if telling in line:
                return line if len(line) <= SHOWN_CHARACTERS else f"...{line[-SHOWN_CHARACTERS:]}"
    return lines[-1][:SHOWN_CHARACTERS] if lines else "no output"


def line_of(script: Path, number: int) -> str:
    """A line of a script, without its indent; empty where there is none of that number."""
    lines = script.read_text(encoding="utf-8").splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _summary(part: Part, bundle: Path) -> dict[str, Any]:
    report = part.report(bundle)
    recording, mean = report.recordings[0], report.recordings[0].mean_breakdown
    replay = recording.replay
    summary = {
        "recordings": len(report.recordings),
        "steps": len(recording.steps),
        "step_source": recording.step_source.value,
        "mean_step_ns": recording.mean_step_ns,
        "totals_ns": mean and asdict(mean.totals),
        "replay": replay.status.value if replay else "not_run",
        "replay_error_share": replay and replay.baseline_error_share,
        "notes": [note.code for note in report.health.notes],
    }
    busy, error = recording.figures.busy_share, replay and replay.baseline_error_share
    shown_busy = "not measured" if busy is None else f"{busy:.0%}"
    shown_error = "none" if error is None else f"{error:.1%}"
    part.outbox.say(f"{bundle.name}: {summary['steps']} steps, device busy {shown_busy}, replay error {shown_error}")
    return summary
