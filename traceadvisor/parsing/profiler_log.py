"""What the profiler logged of its own recording, in the members ``ERROR``, ``WARNING`` and ``INFO``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LOGS = ("ERROR", "WARNING", "INFO")

_STOPPED_EARLY = re.compile(r"Exceeded max GPU buffer count|stopped early\? = [1-9]")
"""As kineto words it when CUPTI or ROCtracer asks for more memory than it may have (128 MB by default)."""

RECORD_LESS = (
    "Record fewer steps, or give the profiler more memory: set KINETO_CONFIG to a file with the line "
    "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1024."
)


def stopped_early(members: Mapping[str, Any]) -> bool:
    """Whether the driver's records had no more room, so that the rest of the device's work was not recorded."""
    logs = [log for name in LOGS if isinstance(log := members.get(name), list)]
    return any(isinstance(line, str) and _STOPPED_EARLY.search(line) for log in logs for line in log)
