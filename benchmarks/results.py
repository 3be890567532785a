"""What was read by whom, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contenders import GZIP, Contender
from benchmarks.measuring import Series


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace to read."""

    path: Path
    json_bytes: int
    event_count: int

    @property
    def size(self) -> str:
        """Of the JSON."""
        return f"{self.json_bytes / 1e6:.0f} MB" if self.json_bytes < 1e9 else f"{self.json_bytes / 1e9:.2f} GB"


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long something took as something else."""

    wall: float
    cpu: float
    """By processor time, which a busy machine distorts less."""


@dataclass(slots=True)
class Results:
    """The series of each contender on each workload; those that were left out have none."""

    series: dict[tuple[Workload, Contender], Series] = field(default_factory=dict)

    def of(self, workload: Workload, contender: Contender) -> Series | None:
        """The runs, if there are any."""
        found = self.series.get((workload, contender))
        return found if found and found.runs else None

    def in_g(self, workload: Workload, contender: Contender) -> Ratio | None:
        """Time as a multiple of what gunzip takes for the same file; None where either was not measured."""
        return self.ratio(workload, contender, workload, GZIP)

    def growth(self, small: Workload, large: Workload, contender: Contender) -> Ratio | None:
        """Time on the large workload as a multiple of that on the small one; None where not measured."""
        return self.ratio(large, contender, small, contender)

    def ratio(
        self, workload: Workload, contender: Contender, to_workload: Workload, to_contender: Contender
    ) -> Ratio | None:
        """Time as a multiple of another; None where either was not measured."""
        one, other = self.of(workload, contender), self.of(to_workload, to_contender)
        return Ratio(one.wall_s / other.wall_s, one.cpu_s / other.cpu_s) if one and other else None
