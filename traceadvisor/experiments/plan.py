"""What is to be measured: a plan as the user asked for it, and the experiments that follow from it."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

import msgspec

from traceadvisor.experiments.settings import Settings, Value
from traceadvisor.frozen import frozen

AS_IT_IS, SAME_AGAIN = "A", "A'"
"""Arms of every experiment: the base, and the same again, which shows the noise."""

MOST_ROUNDS = 12


@frozen
class Axis:
    """One setting and its values; without values they are chosen while measuring."""

    name: str
    values: tuple[Value, ...] = ()


@frozen
class Change:
    """Settings under a name: a fix of a report, or a combination."""

    name: str
    settings: dict[str, Value]


@frozen
class Plan:
    """What the user asked for."""

    script: tuple[str, ...]
    is_module: bool
    folder: str
    """Folder of the journal and of the files that the script saves meanwhile."""

    deadline_s: float
    """On the wall clock."""

    most_steps: int | None = None
    axes: tuple[Axis, ...] = ()
    switches: tuple[Axis, ...] = ()
    """Settings that are measured together, each value as an arm of one experiment."""

    all_switches: bool = False
    """Add every switch that this script and device have."""

    by_importance: bool = False
    """Measure first what matters most in this script, and leave out what the time is too short for."""

    combine: bool = True
    changes: tuple[Change, ...] = ()
    """Fixes of a report; then there are no axes."""

    block_s: float = 0.4
    separate_processes: bool = False
    """Measure each setting in processes of its own."""

    arm: dict[str, Value] | None = None
    """For interleaved processes: the only settings of this process."""

    arm_name: str = ""
    most_rounds: int = MOST_ROUNDS

    @property
    def journal(self) -> Path:
        """The file of the rows."""
        return Path(self.folder, "journal.jsonl")

    @property
    def scratch(self) -> Path:
        """Where files go that the script saves."""
        return Path(self.folder, "saved-by-the-script")

    def write(self, path: Path) -> None:
        """Write it for the training process."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read what :meth:`write` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


@frozen
class Experiment:
    """Arms that are alternated in rounds."""

    name: str
    axis: str
    """The setting that is varied; empty where several are."""

    base: Settings
    arms: dict[str, Settings]
    """Changed settings by name, in the order of a first trial; each is on top of the base."""

    rates: dict[str, Settings] = field(default_factory=dict)
    """Loaders to measure alone."""

    def settings(self, arm: str) -> Settings:
        """All settings of an arm."""
        return self.base.having(self.arms.get(arm, Settings()))

    @property
    def all_arms(self) -> tuple[str, ...]:
        """With the base and the same again."""
        return (AS_IT_IS, SAME_AGAIN, *self.arms)
