"""Runs the sampler in another process, with a stand-in for NVIDIA's driver."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.children import run

PROGRAM = """
import os, sys, time
from pathlib import Path
from traceadvisor.recording.telemetry.sampler import TelemetrySampler
os.environ["STAND_IN_PID"] = str(os.getpid())
sampler = TelemetrySampler(Path(sys.argv[1]), interval_s=0.05)
sampler.start()
{during}
sampler.stop()
if sampler.error: raise sampler.error
"""

LONG_ENOUGH = "time.sleep(1.3)"
"""For two samples with expensive figures."""


@dataclass(frozen=True)
class Recorded:
    """What the sampler wrote."""

    header: dict[str, Any]
    samples: list[dict[str, Any]]

    def figures(self, uuid: str, name: str) -> list[Any]:
        """One of a device's figures, in the samples in which it was due."""
        devices = [sample["devices"][uuid] for sample in self.samples]
        return [device[name] for device in devices if name in device]


def read(path: Path) -> Recorded:
    header, *samples = [json.loads(line) for line in path.read_text().splitlines()]
    return Recorded(header, samples)


def record(folder: Path, *, driver: Path | None, during: str = LONG_ENOUGH, **environment: str) -> Recorded:
    """Sample while ``during`` runs; ``driver`` is the folder of the library."""
    path = folder / "telemetry.jsonl"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "STAND_IN_"))}
    library = {"LD_LIBRARY_PATH": str(driver)} if driver else {}
    run(
        *(sys.executable, "-c", PROGRAM.format(during=during), path),
        env=kept | library | environment,
        check=True,
    )
    return read(path)
