"""Warnings of secrets in the files that a capture stores beside its traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from traceadvisor.bundle.layout import MANIFEST, Manifest, RankEnding
from traceadvisor.model.health import HealthNote
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.text.secret_members import secrets_in


def secret_notes(name: str, members: Mapping[str, Any]) -> tuple[HealthNote, ...]:
    """A note if some of a file's texts look like secrets."""
    warning = secrets_in(name, members)
    return (HealthNote("secrets", warning, degrades=False),) if warning else ()


def secrets_of_run(
    manifest: Manifest,
    ending: RankEnding | None,
    stacks: tuple[str, StackSamples | None],
    telemetry: tuple[str, Telemetry | None],
) -> Iterator[HealthNote]:
    """Yield a note for each file of a run whose texts look like secrets; that on the settings is made where it is read.

    Args:
        manifest: the manifest.
        ending: the end of the rank.
        stacks: name and content of the file of samples.
        telemetry: name and content of the file of telemetry.
    """
    texts: dict[str, Any] = {
        "command": list(manifest.command),
        "message": ending and ending.message,
        "notes": [note.message for note in manifest.notes],
        "repository": manifest.repository and msgspec.to_builtins(manifest.repository),
    }
    yield from secret_notes(MANIFEST, texts)
    if stacks[1]:
        yield from secret_notes(stacks[0], {"file": list({frame.file: None for frame in stacks[1].frames})})
    if found := telemetry[1]:
        named = [device.name for device in found.devices] + [worker.name for worker in found.workers]
        yield from secret_notes(
            telemetry[0], {"host": found.host, "name": named, "nvml_unavailable": found.devices_missing}
        )
