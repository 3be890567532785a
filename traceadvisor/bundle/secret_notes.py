"""Warnings of secrets in the files that a capture stores beside its traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from traceadvisor.bundle.layout import MANIFEST, Manifest, Note, RankEnding
from traceadvisor.model.health import HealthNote
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.text.secret_members import secrets_in

Notes = tuple[HealthNote, ...]


def secret_notes(name: str, members: Mapping[str, Any]) -> Notes:
    """A note if some of a file's texts look like secrets."""
    warning = secrets_in(name, members)
    return (HealthNote("secrets", warning, degrades=False),) if warning else ()


def secrets_of_manifest(manifest: Manifest, ending: RankEnding | None, notes: Iterable[Note]) -> Notes:
    """A note if the texts of a rank in the manifest look like secrets."""
    texts: dict[str, Any] = {
        "command": list(manifest.command),
        "message": ending and ending.message,
        "notes": [note.message for note in notes],
        "repository": manifest.repository and msgspec.to_builtins(manifest.repository),
    }
    return secret_notes(MANIFEST, texts)


def secrets_of_stacks(name: str, samples: StackSamples) -> Notes:
    """A note if files' names in samples of stacks look like secrets."""
    return secret_notes(name, {"file": list({frame.file: None for frame in samples.frames})})


def secrets_of_telemetry(name: str, telemetry: Telemetry) -> Notes:
    """A note if the texts of telemetry look like secrets."""
    named = [device.name for device in telemetry.devices] + [worker.name for worker in telemetry.workers]
    return secret_notes(name, {"host": telemetry.host, "name": named, "nvml_unavailable": telemetry.devices_missing})
