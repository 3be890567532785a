"""The result of checking one part of an installation."""

from __future__ import annotations

from enum import Enum
from importlib.util import find_spec

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen


class CheckState(Enum):
    """The outcome of a check."""

    OK = "ok"
    LIMITED = "limited"
    """It works with limits."""

    MISSING = "missing"
    BROKEN = "broken"
    """Reports need it, so none can be made."""


@frozen
class Check:
    """One checked part."""

    subject: str
    state: CheckState
    found: str
    cost: str | None = None
    """Features that do not work because of it; None if everything does."""

    remedy: str | None = None
    """The remedy; None if nothing is lost or nothing helps."""


def check_installed(*names: str, otherwise: str = "", extra: str = "capture") -> None:
    """Raise a UsageError that names the command to install them if some of these modules are missing.

    ``otherwise``: what works without them. ``extra``: the extra of the package that has them.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise UsageError(
            f"{' and '.join(missing)} {is_or_are} not installed. Run: pip install 'traceadvisor[{extra}]'{otherwise}"
        )
