"""Capture folders and log folders in which one thing grows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.growth.events import Events
from tests.growth.recordings import BODY, SHAPES, plain_step
from traceadvisor.bundle.layout import FORMAT, encode_telemetry_header
from traceadvisor.model.telemetry import DeviceColumn, NodeColumn, ProcessColumn

START_NS = 1_700_000_000 * 10**9
STEP_NS = 1_000_000
_RECORDED = 4
_USUAL = 40
"""Steps of a rank's run, and samples of its host, unless they are what grows."""

FOLDERS: dict[str, Callable[[Path, int], Path]] = {}
"""Writes the folder of a size, by what grows."""


def folder_case(what: str) -> Callable[[Callable[[Path, int], Path]], Callable[[Path, int], Path]]:
    """Add a case."""

    def added(write: Callable[[Path, int], Path]) -> Callable[[Path, int], Path]:
        FOLDERS[what] = write
        return write

    return added


def capture(
    folder: Path, *, ranks: int = 1, steps: int = _USUAL, samples: int = _USUAL, batches: int = 0, notes: int = 0
) -> Path:
    """Write a capture; all ranks run on one host."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[dict[str, Any]] = [{"path": "telemetry.node.jsonl", "kind": "telemetry", "host": "node"}]
    (folder / "telemetry.node.jsonl").write_bytes(_telemetry(samples))
    for rank in range(ranks):
        trace, table, settings = f"node_{rank}.1.pt.trace.json", f"steps.{rank}.csv", f"settings.{rank}.json"
        recorded(_RECORDED, late=float(rank % 7)).write(folder / trace, rank=rank, world_size=ranks)
        (folder / table).write_text(_steps(steps))
        (folder / settings).write_text(json.dumps(_SETTINGS))
        files += [
            {"path": trace, "kind": "trace", "rank": rank, "cycle": 0, "host": "node", "whole": True},
            {"path": table, "kind": "steps", "rank": rank, "host": "node"},
            {"path": settings, "kind": "settings", "rank": rank, "host": "node"},
        ]
        if batches:
            (folder / f"batches.{rank}.csv").write_text(_batches(batches))
            files.append({"path": f"batches.{rank}.csv", "kind": "batches", "rank": rank, "host": "node"})
    manifest = {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "started_ns": START_NS,
        "command": ["train.py"],
        "schedule": {"skip_first": 5, "wait": 5, "warmup": 3, "active": 8, "repeat": 1},
        "world_size": ranks,
        "starts": [{"rank": rank, "wall_ns": START_NS, "clock_ns": 0} for rank in range(ranks)],
        "endings": [
            {"rank": rank, "ending": "completed", "exit_code": 0, "steps": steps, "recorded_steps": _RECORDED}
            for rank in range(ranks)
        ],
        "files": files,
        "notes": [{"code": f"note-{at}", "message": f"Note {at}.", "rank": at % ranks} for at in range(notes)],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def recorded(steps: int, *, late: float = 0.0) -> Events:
    """A recording of a few steps; its collectives end later by some microseconds."""
    events = Events()
    for number in range(steps):
        start = 100 + number * (BODY + late)
        events.step(number + 1, start, start + BODY + late - 1)
        plain_step(events, start)
    return events


@folder_case("ranks by four")
def _ranks(folder: Path, size: int) -> Path:
    """At least 16: up to eight are all judged in full, which takes longer than three of more."""
    return capture(folder / "capture", ranks=4 * size)


@folder_case("files")
def _files(folder: Path, size: int) -> Path:
    for number in range(size):
        recorded(3).write(folder / "logs" / f"host{number}.1.pt.trace.json")
    return folder / "logs"


def small(number: int) -> Events:
    """A recording of 10 kB: three steps with a batch, a copy to the GPU and a few launches each."""
    events, length = Events(), 200 + number % 7
    for step in range(3):
        start = 100 + step * length
        events.step(step + 1, start, start + length - 1)
        events.loader(start, start + 20 + number % 7)
        events.op("aten::to", start + 30, start + 50)
        events.copy(start + 32, start + 48, (start + 34, start + 46))
        for at in range(4):
            begin = start + 60 + 25 * at
            events.python("model.py(20): forward", begin, begin + 24)
            events.op("aten::addmm", begin + 1, begin + 20, dims=SHAPES)
            events.launch(begin + 2, begin + 6, (begin + 8, begin + 30))
        events.annotation("Optimizer.step#SGD.step", start + 170, start + 190)
    return events


@folder_case("recordings of 10 kB")
def _small(folder: Path, size: int) -> Path:
    for number in range(size):
        small(number).write(folder / "logs" / f"host{number:05}.1.pt.trace.json")
    return folder / "logs"


@folder_case("GPUs of a process")
def _devices(folder: Path, size: int) -> Path:
    """Each operator launches one kernel on every GPU: 80 in all."""
    events, slot = Events(), 2.0 * size + 8
    for step in range(_RECORDED):
        start = 100 + 20 * step * slot
        events.step(step + 1, start, start + 20 * slot - 1)
        for at in range(20):
            begin = start + at * slot
            events.op("aten::mm", begin, begin + 2 * size + 2, dims=SHAPES)
            for device in range(size):
                call = begin + 1 + 2 * device
                events.launch(call, call + 1.5, (begin + 2 * size + 1, begin + 2 * size + 7), device=device)
    events.write(folder / "logs" / "host0.1.pt.trace.json")
    return folder / "logs"


@folder_case("captures")
def _captures(folder: Path, size: int) -> Path:
    for number in range(size):
        capture(folder / "runs" / f"capture{number}", steps=4, samples=4)
    return folder / "runs"


@folder_case("telemetry rows")
def _telemetry_rows(folder: Path, size: int) -> Path:
    return capture(folder / "capture", samples=size, steps=size)


@folder_case("steps of a run")
def _run_steps(folder: Path, size: int) -> Path:
    return capture(folder / "capture", steps=size)


@folder_case("batches of a loader")
def _run_batches(folder: Path, size: int) -> Path:
    return capture(folder / "capture", batches=size, steps=size)


@folder_case("notes of a capture")
def _notes(folder: Path, size: int) -> Path:
    return capture(folder / "capture", notes=size, ranks=4)


_SETTINGS = {
    "loader": {"batch_size": 8, "num_workers": 2, "file": "train.py", "line": 41},
    "cpu_count": 4,
    "torch_version": "2.13.0",
    "devices": [{"uuid": "GPU-1"}],
}


def _steps(count: int) -> str:
    lines = ["step,start_ns,duration_ns,loader_ns,fetches,state"]
    for number in range(count):
        length = STEP_NS + (number % 13) * 1000 + (number % 50 == 7) * STEP_NS
        state = "recorded" if 10 <= number < 10 + _RECORDED else "plain"
        lines.append(f"{number},{START_NS + number * 3 * STEP_NS},{length},60000,1,{state}")
    return "\n".join(lines) + "\n"


def _batches(count: int) -> str:
    lines = ["worker,start_ns,fetch_ns,fetch_cpu_ns,collate_ns,collate_cpu_ns,core_wait_ns,process_cpu_ns"]
    lines += [f"{at % 2},{START_NS + at * STEP_NS},50000,40000,5000,4000,10,60000" for at in range(count)]
    return "\n".join(lines) + "\n"


def _telemetry(count: int) -> bytes:
    device = {"uuid": "GPU-1", "memory_bytes": 80 << 30, "max_sm_clock_mhz": 1980}
    device |= {"max_link_generation": 4, "max_link_width": 16, "power_limit_watts": 400}
    lines = [encode_telemetry_header({"host": "node", "cpu_count": 4, "devices": [device]})]
    for at in range(count):
        sample = {
            "record": "sample",
            "time_ns": START_NS + at * 3 * STEP_NS,
            "interval_s": 0.003,
            "devices": {"GPU-1": dict.fromkeys(DeviceColumn, 4 + at % 9)},
            "node": dict.fromkeys(NodeColumn, 20 + at % 9),
            "processes": dict.fromkeys(ProcessColumn, 30 + at % 9),
        }
        lines.append(json.dumps(sample).encode())
    return b"\n".join(lines) + b"\n"
