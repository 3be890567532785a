"""The plan of a measurement as the user asked for it, and the experiments that follow from it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import field, replace
from itertools import chain, count
from pathlib import Path
from typing import IO

from traceadvisor.experiments.settings import Settings, Value, value_shown
from traceadvisor.frozen import frozen
from traceadvisor.system.processes import understood, written
from traceadvisor.text.secrets import REDACTED, secret_words

AS_IT_IS, SAME_AGAIN = "A", "A'"
"""Arms of every experiment: the base, and the same again, which shows the noise."""

LONGEST_GRACE_S = 10.0
JOURNAL = "journal.jsonl"
MOST_ROUNDS = 12
STEPS_TO_FIND = 12
"""Steps of an optimizer after which a loop without a loader counts as the training loop."""


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
    """The request of the user."""

    script: tuple[str, ...] = ()
    is_module: bool = False
    folder: str = ""
    """Folder of the journal and of the files that the script saves meanwhile."""

    deadline_s: float = 0.0
    """On the monotonic clock, which all processes of a machine share."""

    grace_s: float = LONGEST_GRACE_S
    """Time for the script to end by itself once everything is measured, or the budget is spent."""

    budget_s: float = 0.0
    """Time that the user gave for everything; 0 if unknown."""

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
    withheld: dict[str, Value] = field(default_factory=dict)
    """Values of settings that no file may show, by setting and value as shown."""

    most_rounds: int = MOST_ROUNDS
    until_decided: bool = False
    """Measure more rounds than that as long as an arm is undecided and time is left."""

    code: dict[str, str] = field(default_factory=dict)
    """For changed functions: the file with the new content, by file."""

    copies: dict[str, str] = field(default_factory=dict)
    """For changed files in processes of their own: the folder of the copy in which an arm runs."""

    changed: tuple[str, ...] = ()
    """The files that differ between these copies."""

    copy: str = ""
    """The copy of this process."""

    @property
    def journal(self) -> Path:
        """The file of the rows."""
        return Path(self.folder, JOURNAL)

    @property
    def scratch(self) -> Path:
        """Folder of the files that the script saves."""
        return Path(self.folder, "saved-by-the-script")

    def withholding(self) -> Plan:
        """The plan with each value of a setting as files may show it."""
        withheld: dict[str, Value] = {}

        def shown(name: str, value: Value) -> Value:
            first = value_shown(name, value)
            alike = chain([first], (f"{first}-{number}" for number in count(2)))
            free = next(one for one in alike if withheld.get(f"{name}={one}", value) == value)
            withheld[f"{name}={free}"] = value
            return free

        def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(Axis(one.name, tuple(shown(one.name, value) for value in one.values)) for one in given)

        def settings(given: dict[str, Value]) -> dict[str, Value]:
            return {name: shown(name, value) for name, value in given.items()}

        changes = tuple(Change(one.name, settings(one.settings)) for one in self.changes)
        return replace(self, axes=axes(self.axes), switches=axes(self.switches), changes=changes, withheld=withheld)

    @property
    def secrets(self) -> frozenset[str]:
        """Words that no text about the experiment may repeat."""
        hidden = {str(one) for key, one in self.withheld.items() if REDACTED in key}
        return secret_words(self.script, os.environ) | hidden

    def real(self, settings: Settings) -> Settings:
        """The settings to put in force for those as shown."""
        return Settings(tuple((name, self.withheld.get(f"{name}={value}", value)) for name, value in settings.values))

    def write(self, file: IO[bytes]) -> None:
        """Write it for the training process. It holds secrets of the user, so the file must have no name."""
        file.write(written(self).encode())
        file.flush()
        file.seek(0)

    @classmethod
    def read(cls, file: IO[bytes]) -> Plan:
        """Read what :meth:`write` wrote."""
        return understood(file.read(), cls)


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

    def counted(self, names: Iterable[str]) -> dict[str, Settings]:
        """The arms of these names, without the base."""
        return {name: self.arms[name] for name in names if name in self.arms}

    @property
    def all_arms(self) -> tuple[str, ...]:
        """With the base and the same again."""
        return (AS_IT_IS, SAME_AGAIN, *self.arms)
