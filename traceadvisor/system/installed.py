"""Whether the extra for captures is installed."""

from __future__ import annotations

from importlib.util import find_spec

from traceadvisor.errors import UsageError


def check_installed(*names: str) -> None:
    """Raise a UsageError that names the command to install them if some of these modules are missing."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise UsageError(f"{' and '.join(missing)} {is_or_are} not installed. Run: pip install 'traceadvisor[capture]'")
