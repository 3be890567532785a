"""Record the sample traces again, and remove everything that identifies the machine.

    python sample_traces/record.py [NAME]...

Replaces host names, process and thread numbers, and addresses of objects. Changes nothing else.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceadvisor.demo.run import TRAINING, Demo, Fault

HERE = Path(__file__).resolve().parent

UNEVEN = HERE / "uneven.py"


@dataclass(frozen=True, slots=True)
class Sample:
    """A script with its arguments and the options of its capture."""

    script: Path
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()
    ranks: int = 1

    @property
    def launcher(self) -> tuple[str, ...]:
        """The command that starts one process per rank; empty for a single rank."""
        if self.ranks == 1:
            return ()
        return (sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", str(self.ranks))


def _demo(*fixed: Fault) -> Sample:
    return Sample(TRAINING, tuple(Demo(Path(), "cpu", frozenset(fixed)).arguments))


SAMPLES = {
    "loader-bound": _demo(),
    "well-fed": _demo(*Fault),
    "stumbling-loader": Sample(UNEVEN, ("--steps=240", "--pause-every=40", "--pause-ms=900")),
    "one-core": Sample(UNEVEN, ("--steps=120", "--steps-per-epoch=30", "--workers=4", "--sample-ms=1", "--one-core")),
    "two-ranks": Sample(HERE / "ranks.py", (), ("--no-stacks",), ranks=2),
    "left-on": Sample(UNEVEN, ("--steps=60", "--detect-anomaly"), ("--no-stacks",)),  # stacks come with anomaly mode
}

SMALL = ("--no-memory", "--no-shapes")
"""Options that keep the files small."""

HOST = "host"
_ADDRESS = re.compile(r"0x[0-9a-f]{8,16}\b")


def record(name: str, sample: Sample) -> None:
    """Capture the script in a temporary folder, then publish the capture."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(sample.script, folder)
        script = (sample.script.name, *sample.arguments)
        capture = (sys.executable, "-m", "traceadvisor", "capture", *SMALL, *sample.options, "-o", name, "--", *script)
        subprocess.run((*sample.launcher, *capture), cwd=folder, check=True)
        target = HERE / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        publish(Path(folder, name), target)


def publish(bundle: Path, target: Path) -> None:
    """Copy a capture and remove everything that identifies the machine."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    traces = [file for file in manifest["files"] if file["kind"] == "trace"]
    documents = {file["path"]: _read(bundle / file["path"]) for file in traces}
    numbers = _numbers(documents.values())
    for file in manifest["files"]:
        source, file["host"] = bundle / file["path"], HOST
        match file["kind"]:
            case "trace":
                document = documents[file["path"]]
                file["path"] = f"{HOST}_{_neutral(file['path'], numbers)}"
                _write(_published(document, numbers, file["path"]), target / file["path"])
            case "telemetry":
                file["path"] = f"telemetry.{HOST}.jsonl"
                lines = source.read_text(encoding="utf-8").splitlines()
                published = [_dumped(_telemetry(json.loads(line), numbers)) for line in lines]
                (target / file["path"]).write_text("\n".join(published) + "\n", encoding="utf-8")
            case _:
                shutil.copyfile(source, target / file["path"])
    (target / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def _write(document: dict[str, Any], path: Path) -> None:
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        file.write(_dumped(document).encode())


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _numbers(documents: Any) -> dict[int, int]:
    """New numbers for processes and threads; numbers below 100 keep their special meaning."""
    events = [event for document in documents for event in document["traceEvents"]]
    found = {value for event in events for key in ("pid", "tid") if isinstance(value := event.get(key), int)}
    return {old: 1000 + place for place, old in enumerate(sorted(number for number in found if number > 99))}


def _neutral(name: str, numbers: Mapping[int, int]) -> str:
    """The trace file name without the host, with the new process number."""
    pid, _, rest = name.rpartition("_")[2].partition(".")
    return f"{numbers[int(pid)]}.{rest}"


def _published(document: dict[str, Any], numbers: Mapping[int, int], name: str) -> dict[str, Any]:
    addresses: dict[str, str] = {}

    def numbered(address: re.Match[str]) -> str:
        return addresses.setdefault(address[0], f"0x{len(addresses) + 1:08x}")

    events = [_event(event, numbers) for event in document["traceEvents"]]
    for event in events:
        event["name"] = _ADDRESS.sub(numbered, event["name"])
    return document | {"traceEvents": events, "traceName": name.removesuffix(".gz"), "host_name": HOST}


def _event(event: dict[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    changed: dict[str, Any] = {key: numbers.get(event[key], event[key]) for key in ("pid", "tid") if key in event}
    if event.get("ph") == "M":
        changed["args"] = {key: _described(value, numbers) for key, value in event["args"].items()}
    return event | changed


def _described(value: str | int, numbers: Mapping[int, int]) -> str | int:
    """The label or sort index of a process or thread with its new number."""
    if isinstance(value, int):
        return numbers.get(value, value)
    return re.sub(r"\b\d+\b", lambda number: str(numbers.get(int(number[0]), number[0])), value)


def _telemetry(line: dict[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    if "host" in line:
        line["host"] = HOST
    for place, worker in enumerate(line.get("processes", {}).get("busiest", ()), start=1):
        worker["pid"] = numbers.get(worker["pid"], 2000 + place)
    return line


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAMPLES:
        record(chosen, SAMPLES[chosen])
