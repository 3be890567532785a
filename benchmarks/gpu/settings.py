"""The settings of a training that can be switched between blocks of steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """PyTorch's own defaults, but for TF32, which is off for convolutions too so that turning it on is one change."""

    workers: int = 0
    """Processes that load batches."""

    pinned: bool = False
    """Batches come in pinned memory and are copied without waiting."""

    log_every: int = 10
    """Steps between reads of the loss; 1 waits for the device in every step."""

    amp: bool = False
    """Autocast to bfloat16."""

    tf32: bool = False
    fused: bool = False
    """The optimizer's fused implementation."""

    channels_last: bool = False
    compiled: bool = False

    def document(self) -> dict[str, Any]:
        """As it stands in a JSON file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def arguments(self) -> list[str]:
        """Options of ``python -m benchmarks.gpu.train`` for what differs from the defaults."""
        default = Settings()
        changed = [field.name for field in fields(self) if getattr(self, field.name) != getattr(default, field.name)]
        return [word for name in changed for word in ("--set", f"{name}={int(getattr(self, name))}")]


def parsed(assignments: Iterable[str]) -> Settings:
    """Settings from texts such as ``workers=4`` and ``amp=1``.

    Raises:
        ValueError: a name is unknown or a value is no whole number.
    """
    changes: dict[str, Any] = {}
    known = {field.name: field.default for field in fields(Settings)}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in known or not value.isdecimal():
            raise ValueError(f"{assignment!r} is no setting; known are {', '.join(known)}, each with a whole number")
        changes[name] = bool(int(value)) if isinstance(known[name], bool) else int(value)
    return replace(Settings(), **changes)
