"""``journal.jsonl``: what an experiment has measured so far, one row per line, flushed as it is written.

The training process writes it. It survives a crash, a kill and Ctrl-C, and the next process goes on where it ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec

from traceadvisor.experiments.settings import Value
from traceadvisor.model.patch import Apart
from traceadvisor.text.documents import cleaned_document


class Row(msgspec.Struct, frozen=True, tag_field="row"):
    """One line."""


class Facts(Row, frozen=True, tag="facts"):
    """The settings of the script itself."""

    device: str
    """Type of the device: ``cpu`` or ``cuda``."""

    device_name: str | None
    memory_bytes: int | None
    """Memory of the device, or what this process may use of the machine's."""

    loader: dict[str, Value]
    """Its own loader settings, by the names of :data:`~traceadvisor.experiments.settings.KNOBS`."""

    unavailable: dict[str, str]
    """Settings that cannot be changed in this script while it runs, with reasons."""

    dataset_length: int | None
    optimizer: str
    torch: str
    cores: int
    batches_per_step: int
    """Batches between two steps of the optimizer."""

    step_s: float
    """First idea of the time between two batches."""

    loader_share: float | None = None
    """Share of it that cached batches save at the start; None if that was not measured."""

    state_bytes: int | None = None
    """Memory of the GPU in use between two steps; None without a GPU, as the next two."""

    peak_bytes: int | None = None
    available_bytes: int | None = None
    """Memory that the process holds, and free memory."""

    half: str = "bfloat16"
    """The 16-bit type in which the device computes without emulation."""


class Begin(Row, frozen=True, tag="begin"):
    """A block begins; the last one before a crash names its cause."""

    experiment: str
    arm: str


class Round(Row, frozen=True, tag="round"):
    """One block of each arm, in random order."""

    experiment: str
    seconds: dict[str, float]
    """Seconds per sample, or per batch where the batch size is unknown."""

    step_s: dict[str, float]
    samples: dict[str, float]
    """Samples in a batch."""

    peak_bytes: dict[str, int]
    steps: int
    """Batches that the loop took in the round, discarded ones included."""

    gpu_shares: dict[str, float] = msgspec.field(default_factory=dict)
    """Share of the time in which a kernel ran; empty without NVML."""

    watts: dict[str, float] = msgspec.field(default_factory=dict)
    """Power of the GPU."""

    cpu_s: dict[str, float] = msgspec.field(default_factory=dict)
    """CPU seconds of the training process, per sample or batch as ``seconds``; other programs hardly change them."""

    others: dict[str, float] = msgspec.field(default_factory=dict)
    """Share of the machine's cores that other programs kept busy."""

    retries: dict[str, int] = msgspec.field(default_factory=dict)
    """Allocations for which torch had to free its cache; arms without any are left out."""


class Finished(Row, frozen=True, tag="finished"):
    """No more rounds of an experiment are needed."""

    experiment: str


class Rate(Row, frozen=True, tag="rate"):
    """The loader alone: batches that nobody uses."""

    experiment: str
    arm: str
    batches_per_s: float
    samples_per_s: float


class Void(Row, frozen=True, tag="void"):
    """An arm that does not count: its setting did not take effect, or (``for_time``) the time was too short for it."""

    experiment: str
    arm: str
    reason: str
    for_time: bool = False


class Failed(Row, frozen=True, tag="failed"):
    """An arm with which the script fails."""

    experiment: str
    arm: str
    reason: str
    out_of_memory: bool = False


class Loss(Row, frozen=True, tag="loss"):
    """The loss of each arm over some steps from one restored state."""

    experiment: str
    losses: dict[str, float | None]
    """Mean; None if it is not finite."""

    allowed: float
    """Largest difference that another choice of batches makes."""


class FirstLosses(Row, frozen=True, tag="first_losses"):
    """The losses of the first steps of an arm, from the same state and batches as those of other arms."""

    experiment: str
    arm: str
    losses: tuple[float | None, ...]
    """None for one that is not finite."""


class KeptApart(Row, frozen=True, tag="kept_apart"):
    """Changed code cannot alternate in one process."""

    reason: Apart
    at: str
    """The function or the file."""


class Note(Row, frozen=True, tag="note"):
    """Something to tell."""

    text: str


class Ended(Row, frozen=True, tag="ended"):
    """The end of a process of the script."""

    reason: str
    """``done``, ``budget``, ``script``, ``failed``, ``refused``, ``other``: it left the loop for one over a loader."""

    detail: str = ""


AnyRow: TypeAlias = (
    Facts | Begin | Round | Finished | Rate | Void | Failed | Loss | FirstLosses | KeptApart | Note | Ended
)

_DECODER: msgspec.json.Decoder[AnyRow] = msgspec.json.Decoder(AnyRow)


class Journal:
    """Appends rows to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[AnyRow] = read(path)

    @property
    def of_loop(self) -> list[AnyRow]:
        """The rows of the training loop."""
        return since_other(self.rows)

    def add(self, row: AnyRow) -> None:
        """Write a row at once, with its texts cleaned."""
        line = msgspec.json.encode(cleaned_document(msgspec.to_builtins(row)))
        with self._path.open("ab") as file:
            file.write(line + b"\n")
        self.rows.append(_DECODER.decode(line))


def read(path: Path) -> list[AnyRow]:
    """All whole rows; a line that was cut off by a kill is left out."""
    rows: list[AnyRow] = []
    for text in path.read_bytes().splitlines() if path.exists() else ():
        try:
            rows.append(_DECODER.decode(text))
        except ValueError:
            continue
    return rows


def since_other(rows: list[AnyRow]) -> list[AnyRow]:
    """The rows since the script left a loop that was not the training loop; all rows without such a loop."""
    others = [number for number, row in enumerate(rows, 1) if isinstance(row, Ended) and row.reason == "other"]
    return rows[max(others, default=0) :]


def facts_of(rows: list[AnyRow]) -> Facts | None:
    """The first facts."""
    return next((row for row in since_other(rows) if isinstance(row, Facts)), None)


def left_out(rows: list[AnyRow], experiment: str) -> dict[str, str]:
    """Arms of an experiment that are void or fail, with reasons."""
    out = (row for row in since_other(rows) if isinstance(row, Void | Failed))
    return {row.arm: row.reason for row in out if row.experiment == experiment}


def is_finished(rows: list[AnyRow], experiment: str) -> bool:
    """Whether an experiment needs no more rounds."""
    return any(isinstance(row, Finished) and row.experiment == experiment for row in rows)


def rounds_of(rows: list[AnyRow], *experiments: str) -> list[Round]:
    """The rounds of some experiments."""
    return [row for row in rows if isinstance(row, Round) and row.experiment in experiments]
