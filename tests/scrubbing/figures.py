"""The figures of a report, without its texts about folders, hosts and users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traceadvisor.api import load
from traceadvisor.results.report_json import render

_CHANGED = frozenset({"path", "paths", "command", "file", "change"})
"""Keys whose texts name files."""


def figures(path: Path) -> Any:
    """All that the JSON report holds but the texts that a copy changes; of these, whether they are there."""
    found = _without_changed(json.loads(render(load(path, processes=1))))
    for recording in found["recordings"]:
        if telemetry := recording.get("captured", {}).get("telemetry"):
            del telemetry["host"]
    return found


def _without_changed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_changed(each) for each in value]
    if isinstance(value, dict):
        return {
            key: each is None if key in _CHANGED and not isinstance(each, dict) else _without_changed(each)
            for key, each in value.items()
        }
    return value
