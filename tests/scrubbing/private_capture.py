"""A capture that tells about people and machines at every place where a capture can."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.build import TraceBuilder
from traceadvisor.bundle.layout import FORMAT, TELEMETRY_FORMAT
from traceadvisor.bundle.stacks import STACKS_FORMAT

PRIVATE = "zq"
"""Part of every text that must not be in a copy."""

TOKEN = f"ghp_{PRIVATE * 18}"
"""It has the form of the name of a class."""

CHECKSUMS = (11_184_811, 14_540_253)
"""Of lines of the script: who guesses a line can tell by them that it is there."""

ZERO_NS = 1_800_000_000_000_000_000
HOME = "/home/zqada/zqlab"
HOST = "zqnode-7"


def private_trace(names: Iterable[str] = ()) -> TraceBuilder:
    """Two steps on a GPU with stacks, and further ranges."""
    builder = TraceBuilder(origin_us=ZERO_NS // 1000).thread_name(f"thread 7 ({HOST})")
    builder.thread_name("zqthread", thread=8)
    for member in ("host_name", "username", "traceName", "env", "zqmember"):
        builder.member(member, {"zqkey": ["zqvalue"]})
    builder.device(0, name="NVIDIA H100", totalGlobalMem=80 << 30, computeMajor=9, computeMinor=0, uuid="zquuid")
    builder.distributed(0, 2, backend="nccl").member("args", ["--password", "zqpassword"])
    frames = [f"{HOME}/train.py(41): step", "/opt/zqenv/lib/python3.11/site-packages/zqpackage/core.py(3): call"]
    for at in builder.steps(2, 1000):
        builder.op("aten::mm", at + 10, at + 400, stack=frames, types=["float", "zq/type"])
        builder.launch(at + 20, at + 30, kernel=(at + 40, at + 300), name="gemm_kernel").loader(at + 400, at + 500)
        builder.python(f"{HOME}/train.py(41): step", at, at + 900, called=f"{HOME}/train.py:77")
        builder.python("zqmodule/net.py(7): forward", at, at + 800, called=f"{HOME}/train.py:43")
        builder.python("/scratch/torchinductor_zqada/ab/cab.py(9): call", at, at + 700)
        builder.annotation(f"load {HOME}/data from https://zqserver/x", at, at + 50)
        builder.annotation("mail zqada@zqmail.org 10.11.12.13", at, at + 40)
    for number, name in enumerate(names):
        builder.annotation(name, number, number + 1)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python zqscript.py --key zq"}},
        {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "args": {"labels": "zqlabel"}},
        {"ph": "X", "cat": "zqcategory", "name": "zqname", "pid": "zqhost", "tid": "zqthread", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::load", "pid": 1, "tid": "zqthread", "ts": ZERO_NS // 1000, "dur": 1,
         "args": {"Concrete Inputs": ["zqfile.bin", "3", "[1, 2]"], "zqargument": "zq", "Input type": ["zq type!"],
                  "Process Group Ranks": "zqranks", "dtype": "zq/dtype", "stream": "zqstream", "bytes": "zqbytes"}},
        {"ph": "i", "name": "zqinstant", "pid": "zqhost", "tid": "zqthread", "ts": 5, "args": {"zqargument": "zq"}},
        {"ph": "M", "name": "thread_name", "pid": "zqhost", "tid": 0, "args": {"name": "zq", "labels": "zqlabel"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::type", "pid": 1, "tid": 1, "ts": ZERO_NS // 1000, "dur": 1,
         "args": {"Input type": [TOKEN], "dtype": TOKEN}},
        {"ph": "s", "name": "zqflow", "id": 1, "ts": 5},
    ]  # fmt: skip
    for event in events:
        builder.event(**event)
    return builder


def write_private_capture(folder: Path, names: Iterable[str] = ()) -> Path:
    """Write it with ranges of these names; returns the folder."""
    folder.mkdir()
    private_trace(names).write(folder / f"{HOST}_7.1.pt.trace.json")
    rows = "\n".join(f"{n},{ZERO_NS + n * 10**6},{10**6},1000,1,plain,zqcell" for n in range(20))
    (folder / "steps.0.csv").write_text(f"step,start_ns,duration_ns,loader_ns,fetches,state,zqcolumn\n{rows}\n")
    (folder / "batches.0.csv").write_text("worker,start_ns,zqcolumn\n0,1,zqcell\nzqcell,1,1\n")
    _write_lines(folder / "stacks.0.jsonl", _stacks())
    _write_lines(folder / f"telemetry.{HOST}.jsonl", _telemetry())
    (folder / "settings.0.json").write_text(json.dumps(_settings()))
    (folder / "zqother.txt").write_text("zq")
    (folder / "manifest.json").write_text(json.dumps(_manifest()))
    return folder


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "zqdamaged\n")


def _stacks() -> list[dict[str, Any]]:
    frame = {"record": "frame", "function": "step", "line": 41, "user": True, "zqkey": "zq"}
    return [
        {"record": "header", "format": STACKS_FORMAT, "squares_ns2": 1.0, "late_ns": 0, "late_by_ns": 0, "cpu_ns": 5},
        {**frame, "file": f"{HOME}/train.py"},
        {"record": "stack", "frames": [0], "samples": {"plain": [10, 2], "zqstate": [1, 1]}, "zqkey": "zq"},
        {"record": "other", "samples": {}},
        {
            "record": "call",
            "file": f"{HOME}/train.py",
            "function": "step",
            "first_line": 40,
            "last_line": 50,
            "name": "item",
            "line": 41,
            "zqkey": "zq",
        },
    ]


def _telemetry() -> list[dict[str, Any]]:
    device = {
        "uuid": "GPU-zqserial",
        "pci_bus_id": "zqbus",
        "index": 0,
        "name": "NVIDIA H100",
        "memory_bytes": 80 << 30,
        "zqkey": "zq",
    }
    busiest = [{"pid": 7, "name": "zqprocess", "cpu_percent": 90}, {"pid": 8, "name": "pt_data_worker"}]
    sample = {"interval_s": 0.1, "node": {"cpu_percent": 50, "zqkey": 1}, "zqkey": "zq"}
    return [
        {"record": "header", "format": TELEMETRY_FORMAT, "time_ns": ZERO_NS, "host": HOST, "devices": [device],
         "nvml_unavailable": f"no {HOME}/libnvml.so on {HOST}", "driver_version": "570.1", "zqkey": "zq"},
        *({"record": "sample", "time_ns": ZERO_NS + n * 10**8, "devices": {"GPU-zqserial": {"power_watts": 300 + n}},
           "processes": {"process_count": 2, "zqkey": "zq", "busiest": busiest}, **sample} for n in range(5)),
    ]  # fmt: skip


def _settings() -> dict[str, Any]:
    return {
        "loader": {
            "batch_size": 32,
            "num_workers": 2,
            "file": f"{HOME}/train.py",
            "line": 41,
            "zqkey": "zq",
            "pads_at": {"file": f"{HOME}/data.py", "line": 7, "function": "collate", "zqkey": "zq"},
        },
        "optimizer": {"name": "SGD", "fused": True, "zqkey": "zq"},
        "constructed": [
            {
                "role": "loader",
                "name": "DataLoader",
                "file": f"{HOME}/train.py",
                "line": 30,
                "function": "main",
                "through": "through_/home/zqada/lab",
                "source": 'loader = DataLoader(Set("zqpath"))',
                "start": 9,
                "end": 34,
                "zqkey": "zq",
            },
        ],
        "torch_version": f"2.13.0+{HOST}",
        "cuda_version": "13.0 zq",
        "autocast_dtype": "zqtype",
        "padding": {"padded_share": 0.5, "surplus_share": 0.1, "longest": 9, "batch_count": 1, "source": "zq sign"},
        "python_version": "3.11 zq",
        "device_name": "NVIDIA H100",
        "devices": [{"uuid": "GPU-zqserial", "pci_bus_id": "zqbus", "zqkey": "zq"}],
        "own_code": ["train.py", "zqmodule"],
        "own_lines": {"train.py": [*CHECKSUMS]},
        "environment": {"OMP_NUM_THREADS": "4", "ZQ_KEY": "zq"}
        | dict.fromkeys(("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_DISTRIBUTED_DEBUG"), "zqword")
        | {"PYTORCH_CUDA_ALLOC_CONF": "zqword", "PYTORCH_ALLOC_CONF": "expandable_segments:True,backend:zqword"},
        "zqkey": "zq",
    }


def _manifest() -> dict[str, Any]:
    kinds = {
        "trace": f"{HOST}_7.1.pt.trace.json",
        "steps": "steps.0.csv",
        "batches": "batches.0.csv",
        "stacks": "stacks.0.jsonl",
        "telemetry": f"telemetry.{HOST}.jsonl",
        "settings": "settings.0.json",
    }
    files = [
        {"path": path, "kind": kind, "rank": None if kind == "telemetry" else 0, "host": HOST}
        | ({"cycle": 0} if kind == "trace" else {})
        for kind, path in kinds.items()
    ]
    message = f"ValueError: no file {HOME}/zqdata on {HOST}.zqlab.internal"
    return {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "started_ns": ZERO_NS,
        "command": [f"{HOME}/train.py", "--password", "zqpassword", "zqargument", "zqrun-17"],
        "schedule": {"skip_first": 5, "wait": 5, "warmup": 3, "active": 8, "repeat": 1},
        "world_size": 2,
        "endings": [
            {"rank": 0, "ending": "exception", "exit_code": 1, "steps": 20, "recorded_steps": 2, "message": message}
        ],
        "files": files,
        "notes": [{"code": "note", "message": f"telemetry.{HOST}.jsonl and {HOME}/data/zqset.csv, see {message}"}],
        "starts": [{"rank": 0, "wall_ns": ZERO_NS, "clock_ns": 1}],
        "job": f"{HOST} 7",
        "processes": [{"rank": 0, "host": HOST, "pid": 7, "start_ticks": 5}],
        "repository": {"root": HOME, "commit": "zqcommit", "branch": "zqbranch", "dirty": True},
    }
