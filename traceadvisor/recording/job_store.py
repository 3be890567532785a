"""How the ranks of a job learn of each other: through the store by which ``torch.distributed`` connected them."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.recording.bundle_writer import read_manifest
from traceadvisor.recording.devices import wait_for_devices
from traceadvisor.recording.script.launch import AGREED, Launch
from traceadvisor.system.processes import understood, written


def job_store() -> Any:
    """The store of the default process group; None without one, and in a group of one rank."""
    distributed = sys.modules.get("torch.distributed")
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    get: Callable[[], Any] | None = getattr(module, "_get_default_store", None)
    if distributed is None or get is None:
        return None
    with suppress(Exception):
        return get() if distributed.is_initialized() and distributed.get_world_size() > 1 else None
    return None


class SamePhases:
    """Agrees on the length of each phase; after an error each rank goes its own way."""

    def __init__(self, launch: Launch) -> None:
        self._prefix = f"traceadvisor/phase/{launch.restart}.{launch.block}"
        self._store: Any = None
        self._failed = False

    @property
    def are_connected(self) -> bool:
        """Whether several ranks agree on the length of the current phase."""
        return self._store is not None and not self._failed

    def starts(self, phase: int, steps: int) -> None:
        """The phase with this number starts, and needs so many steps on this rank."""
        if self._failed:
            return
        try:
            self._store = job_store()
            if self._store is not None:
                longest = ""
                while not longest or int(longest) < steps:
                    longest = self._store.compare_set(f"{self._prefix}/{phase}", longest, str(steps)).decode()
        except Exception:  # noqa: BLE001  # such as a store that is gone, or one of another version
            self._failed = True

    def longest(self, phase: int, steps: int) -> int:
        """Steps that the phase needs on all ranks together; ``steps`` on this one."""
        if self._failed or self._store is None:
            return steps
        try:
            wait_for_devices()
            return max(steps, int(self._store.get(f"{self._prefix}/{phase}")))
        except Exception:  # noqa: BLE001  # as above
            self._failed = True
            return steps


_KEY = "traceadvisor/bundle"


class Proposal(msgspec.Struct, frozen=True):
    """Folder in which a rank would write."""

    job: str
    folder: str
    """The first bundle of the command, as an absolute path."""

    place: str
    """A folder that exists while processes of the command run: who sees it shares the file system."""

    @property
    def is_visible(self) -> bool:
        """Whether this process sees the folder of the rank that proposed it."""
        if Path(self.place).is_dir():
            return True
        found = read_manifest(Path(self.folder))
        return found is not None and found.job == self.job


def agreed(launch: Launch, folder: Path, place: Path) -> Proposal:
    """The proposal of the first rank that asks; the other ranks get the same, without waiting for one another.

    Ranks that torch.distributed does not connect have the id of their launcher in common.
    """
    alone = Proposal(launch.job, str(folder), str(place))
    with suppress(Exception):  # such as a store that is gone, or one of another version
        if launch.world_size > 1 and (store := job_store()) is not None:
            mine = msgspec.structs.replace(alone, job=f"{launch.job}{AGREED}{secrets.token_hex(8)}")
            found = store.compare_set(f"{_KEY}/{launch.restart}.{launch.block}", "", written(mine))
            return understood(found, Proposal)
    return alone
