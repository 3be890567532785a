"""A folder whose every text was written by somebody who means harm: recordings, a capture, the names of files.

The same folder with a plain word in the place of the hostile one is what reports are compared with.
"""

import json
from pathlib import Path
from typing import Any

from tests.build import AUTOGRAD, Generation, TraceBuilder
from tests.build_report import CANARY
from traceadvisor.bundle.layout import FORMAT
from traceadvisor.model.telemetry import DeviceColumn, NodeColumn

HOSTILE = (
    f"{CANARY} \"'><script>document.documentElement.dataset.pwned=1</script></style></title></svg><svg onload=alert(1)>"
    "<link rel=stylesheet href=http://canary.invalid/x.css><iframe src=http://canary.invalid></iframe>{{7*7}}{% x %}"
    "--> ]]> &amp; url(http://canary.invalid/y) javascript:alert(1) =cmd|' /C calc'!A0 \x07\x9b2J\u2028\r\n# heading"
    " /home/ada/secret @everyone password=hunter2hunter2"
)
PLAIN = "plain word; ghp_0123456789abcdefghijABCDEFGHIJ012345 /home/ada/secret password=hunter2hunter2"
"""With what is to be redacted as well, so that as much is said of it."""

ZERO_NS = 1_800_000_000_000_000_000
STEP_NS = 100_000_000


def write_hostile_input(folder: Path, word: str) -> Path:
    """Recordings of a log dir and of a capture, and a file that cannot be read; returns the folder."""
    name = word.replace("/", "|").encode()[:180].decode(errors="ignore").replace("\0", "")
    log = folder / f"log {name}"
    _recording(word, Generation.CURRENT, rank=0).write(log / f"worker{name}.1.pt.trace.json")
    _recording(word, Generation.Y2021, rank=1).write(log / f"worker {name}.2.pt.trace.json")
    (log / f"broken {name}.3.pt.trace.json").write_text("")
    _capture(folder / f"run {name}", word)
    return folder


def _recording(word: str, generation: Generation, *, rank: int) -> TraceBuilder:
    """Steps of 100 ms in which a loader, launches, waits and copies each cost something, so that rules speak."""
    builder = TraceBuilder(generation, origin_us=ZERO_NS // 1000).thread_name(word)
    for member in ("INFO", "WARNING", "traceName", "username", word):
        builder.member(member, [word, {word: word}])
    builder.member("env", {word: word, "API_KEY": word})
    builder.device(0, name=f"NVIDIA H100 {word}", totalGlobalMem=80 << 30, computeMajor=9, computeMinor=0, numSms=132)
    builder.distributed(rank, 4, backend=f"nccl {word}")
    for number in range(4):
        _step(builder, number, 100_000 * number, word)
    builder.event(ph="X", cat=f"unheard of {word}", name=word, pid=word, tid=word, ts=ZERO_NS // 1000, dur=1)
    return builder


def _step(builder: TraceBuilder, number: int, at: int, word: str) -> None:
    one_line = " ".join(word.split())
    frames = [f"/home/ada/{one_line}/train.py(41): step {one_line}", f"train.py(7): {one_line}"]
    builder.step(number, at, at + 100_000)
    builder.loader(at, at + 30_000, kind=f"_SingleProcessDataLoaderIter{word}")
    builder.op(f"aten::mm {word}", at + 30_000, at + 60_000, stack=frames, types=["float", word], dims=[[8, 8], [8, 8]])
    for launched in range(8):
        start = at + 30_500 + 1_000 * launched
        kernel = (start + 500, start + 900)
        builder.launch(start, start + 400, kernel=kernel, name=f"gemm<{word}>", blocks_per_sm=0.5, occupancy_percent=25)
    builder.copy(at + 61_000, at + 62_000, on_device=(at + 62_000, at + 70_000), byte_count=1 << 20)
    builder.op(f"autograd::engine::evaluate_function: {word}", at + 70_000, at + 75_000, thread=AUTOGRAD)
    builder.item(at + 76_000, at + 90_000, copy=(at + 85_000, at + 85_100), stack=frames)
    builder.optimizer(at + 91_000, at + 99_000, name=f"SGD.step {word}")
    builder.memory(at + 95_000, 1 << 30, total_allocated=60 << 30)


def _capture(folder: Path, word: str) -> None:
    folder.mkdir(parents=True)
    _recording(word, Generation.CURRENT, rank=0).write(folder / "trace.pt.trace.json")
    rows = (
        f"{n},{ZERO_NS + n * STEP_NS},{STEP_NS},{STEP_NS // 3},1,{'recorded' if n < 4 else 'plain'}" for n in range(40)
    )
    steps = "\n".join(["step,start_ns,duration_ns,loader_ns,fetches,state", *rows, f"41,1,1,1,1,{_csv(word)}", ""])
    (folder / "steps.csv").write_text(steps, encoding="utf-8", newline="")
    (folder / "settings.json").write_text(json.dumps(_settings(word)))
    (folder / "telemetry.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in _telemetry(word)))
    (folder / "manifest.json").write_text(json.dumps(_manifest(word)))


def _csv(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _manifest(word: str) -> dict[str, Any]:
    kinds = {
        "trace": "trace.pt.trace.json",
        "steps": "steps.csv",
        "settings": "settings.json",
        "telemetry": "telemetry.jsonl",
    }
    files = [
        {"path": path, "kind": kind, "rank": 0, "cycle": 0 if kind == "trace" else None, "host": word}
        for kind, path in kinds.items()
    ]
    return {
        "format": FORMAT,
        "tool_version": word,
        "started_ns": ZERO_NS,
        "command": [f"{word}.py", "--api-key", f"abc{word}", word],
        "schedule": {"skip_first": 5, "wait": 5, "warmup": 3, "active": 8, "repeat": 1},
        "world_size": 1,
        "endings": [
            {"rank": 0, "ending": "exception", "exit_code": 1, "steps": 40, "recorded_steps": 4, "message": word}
        ],
        "files": [*files, {"path": f"missing {word}", "kind": "settings", "rank": 7}],
        "notes": [{"code": f"note {word}", "message": word}],
    }


def _settings(word: str) -> dict[str, Any]:
    loader = {"batch_size": 32, "num_workers": 0, "pin_memory": False, "file": f"/home/ada/{word}.py", "line": 41}
    return {
        "loader": {**loader, "function": word, "dataset_length": 10_000},
        "optimizer": {"name": f"SGD {word}"},
        "autocast_dtype": word,
        "matmul_tf32": False,
        "cudnn_benchmark": False,
        "torch_version": word,
        "cuda_version": word,
        "python_version": word,
        "device_name": word,
        "devices": [{"uuid": word, "pci_bus_id": word}],
        "cpu_count": 8,
    }


def _telemetry(word: str) -> list[dict[str, Any]]:
    device = {
        "uuid": word,
        "index": 0,
        "pci_bus_id": word,
        "name": word,
        "memory_bytes": 80 << 30,
        "power_limit_watts": 700,
    }
    header = {
        "record": "header",
        "format": f"traceadvisor.telemetry/1{word}",
        "time_ns": ZERO_NS,
        "host": word,
        "cpu_count": 8,
        "devices": [device],
        "nvml_unavailable": word,
    }
    return [header, *(_sample(number, word) for number in range(80))]


def _sample(number: int, word: str) -> dict[str, Any]:
    return {
        "record": "sample",
        "time_ns": ZERO_NS + number * STEP_NS // 2,
        "interval_s": 0.05,
        "devices": {word: {column.value: 40 + number for column in DeviceColumn}},
        "node": {column.value: 20 + number % 50 for column in NodeColumn},
        "processes": {"process_count": 2, "cpu_percent": 100, "busiest": [{"pid": 7, "name": word, "cpu_percent": 90}]},
        word: word,
    }
