"""Runs a rule on the snapshot of a training on the model of the allocator."""

import pickle
import tempfile
from pathlib import Path
from typing import Any

from tests.memory.allocator import Device, snapshot
from tests.memory.programs import Training
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Skipped
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
from traceadvisor.rules.base import MemoryFinding, SnapshotRule


def facts(source: Training | dict[str, Any] | Path) -> SnapshotFacts:
    """The facts of the first device, read as a user's file."""
    if isinstance(source, Path):
        return SnapshotFacts.of(read_snapshot(source))[0]
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(source.snapshot() if isinstance(source, Training) else source))
        file.flush()
        return SnapshotFacts.of(read_snapshot(Path(file.name)))[0]


def without_stacks() -> SnapshotFacts:
    """A history that was recorded without stacks."""
    device = Device()
    device.free(device.alloc(1 << 20))
    return facts(snapshot(device))


def finding(rule: SnapshotRule, memory: SnapshotFacts) -> MemoryFinding:
    found = rule.advise(memory)
    assert isinstance(found, MemoryFinding), found
    return found


def clear(rule: SnapshotRule, memory: SnapshotFacts) -> Clear:
    found = rule.advise(memory)
    assert isinstance(found, Clear), found
    return found


def skipped(rule: SnapshotRule, memory: SnapshotFacts) -> str:
    found = rule.advise(memory)
    assert isinstance(found, Skipped), found
    return found.reason
