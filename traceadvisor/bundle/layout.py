"""The capture folder on disk: its files, its manifest, and the lines of its telemetry.

A capture writes one folder::

    manifest.json                          the command, how it ended, and every file with its rank and cycle
    <host>_<pid>.<ns>.pt.trace.json.gz     a rank's recording; TensorBoard and Perfetto open it as it is
    telemetry.<host>.jsonl                 samples of a node's devices, host and processes (:class:`Sample`)
    steps.<rank>.csv                       every step of the run, recorded or not (:mod:`.steps`)
    batches.<rank>.csv                     clock reads around the loading of batches (:mod:`.batches`), from format 2 on
    stacks.<rank>.jsonl                    samples of the training thread's Python stack (:mod:`.stacks`), from 3 on
    loader_stacks.<rank>.jsonl             samples of the stacks of its loader workers, in the same form
    memory.<rank>.pickle.gz                torch's snapshot of device memory: when it ran out, else at the end
    settings.<rank>.json                   what a trace does not hold (:mod:`.settings`)
    unfinished.<host>.<pid>.*              what a process has not finished; left behind only if the process was killed

The manifest is complete at any moment. Step times, batches and telemetry grow while the run goes on: a killed run
leaves all but the last second of them.

From format 3 on, steps have a monotonic clock and their time in checkpoints, and the manifest has each rank's start and
end.

All times are wall-clock nanoseconds since the epoch, except those called ``clock``: monotonic, from an arbitrary zero.
Unsupported and unknown values are null, never 0.

What recording imports from this package must not import numpy: it runs inside the user's process.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeAlias, get_args, get_type_hints

import msgspec

from traceadvisor.model.telemetry import DeviceColumn, NodeColumn
from traceadvisor.text.documents import cleaned_document

FORMAT = "traceadvisor.bundle/3"
READABLE_FORMATS = ("traceadvisor.bundle/1", "traceadvisor.bundle/2", FORMAT)
TELEMETRY_FORMAT = "traceadvisor.telemetry/1"
MANIFEST = "manifest.json"
UNFINISHED = "unfinished."
"""Beginning of the names of what processes use while they run. Readers ignore it."""

Figure: TypeAlias = float | None
"""A sampled figure; None if not supported or not readable."""


class FileKind(Enum):
    """Kinds of files in a bundle."""

    TRACE = "trace"
    TELEMETRY = "telemetry"
    STEPS = "steps"
    BATCHES = "batches"
    STACKS = "stacks"
    LOADER_STACKS = "loader_stacks"
    SETTINGS = "settings"
    MEMORY = "memory"
    """torch's snapshot of device memory, with the latest allocations."""


class Ending(Enum):
    """How the script ended."""

    COMPLETED = "completed"
    EXIT = "exit"
    """It called ``sys.exit`` with a code other than 0."""

    EXCEPTION = "exception"
    INTERRUPTED = "interrupted"
    """Ctrl-C."""

    STOPPED = "stopped"
    """Its recording was saved, and the command asked to end there."""

    TERMINATED = "terminated"
    """SIGTERM. Launchers send it when another rank died."""


class BundleFile(msgspec.Struct, frozen=True):
    """A file of the bundle."""

    path: str
    """Relative to the bundle."""

    kind: FileKind
    rank: int | None = None
    """None for files of a node."""

    cycle: int | None = None
    """Traces only: the repetition of the schedule, from 0."""

    host: str | None = None
    whole: bool | None = None
    """Traces only: whether it has all steps of the requested window; None if not recorded."""


class Schedule(msgspec.Struct, frozen=True):
    """The requested number of steps before, between and in the recorded windows."""

    skip_first: int
    wait: int
    warmup: int
    active: int
    repeat: int


class RankStart(msgspec.Struct, frozen=True):
    """When one rank's script, or its captured block, started."""

    rank: int
    wall_ns: int
    clock_ns: int


class RankEnding(msgspec.Struct, frozen=True):
    """How one rank's script ended."""

    rank: int
    ending: Ending
    exit_code: int
    steps: int
    """Number of training steps."""

    recorded_steps: int
    message: str | None = None
    wall_ns: int | None = None
    """When it ended; None before format 3, like the others."""

    clock_ns: int | None = None
    checkpoint_ns: int | None = None
    """Time to save checkpoints after the last step."""


class RankProcess(msgspec.Struct, frozen=True):
    """The process of a rank. Without an ending of its rank, it still runs or was killed."""

    rank: int
    host: str
    pid: int
    start_ticks: int | None = None
    """Start of the process, as ``/proc/<pid>/stat`` has it; tells it from a later process with the same id."""


class Repository(msgspec.Struct, frozen=True):
    """The Git repository of the script, when the run started. Unknown values are null."""

    root: str
    """Cleaned as other paths are."""

    commit: str | None = None
    branch: str | None = None
    """Null for a detached head."""

    dirty: bool | None = None
    """Whether tracked files differed from the commit."""

    folder: str | None = None
    """Folder of the script, relative to the root; ``.`` for the root itself. Null in older bundles."""


class Note(msgspec.Struct, frozen=True):
    """A remark on the capture that belongs in its report."""

    code: str
    message: str
    rank: int | None = None
    degrades: bool = True
    """False where all figures are valid."""


class Manifest(msgspec.Struct, frozen=True):
    """``manifest.json``."""

    format: str
    tool_version: str
    started_ns: int
    command: tuple[str, ...]
    """The arguments of ``python``: the script or ``-m module``, then the script's own."""

    schedule: Schedule
    world_size: int
    endings: tuple[RankEnding, ...] = ()
    files: tuple[BundleFile, ...] = ()
    notes: tuple[Note, ...] = ()
    starts: tuple[RankStart, ...] = ()
    """Empty before format 3."""

    job: str | None = None
    """The same in all processes of one attempt of a job, on all its nodes, and different in any other."""

    processes: tuple[RankProcess, ...] = ()
    repository: Repository | None = None


class Sample(msgspec.Struct, frozen=True, tag_field="record", tag="sample"):
    """One moment: a line of ``telemetry.<host>.jsonl`` after the header.

    A null figure is not supported or could not be read. An absent figure was not due in this sample, because expensive
    figures are read less often.
    """

    time_ns: int
    """Wall clock, nanoseconds since the epoch, as the clock gave it: it may go back."""

    interval_s: float
    """Time until the next sample is due."""

    devices: Mapping[str, Mapping[DeviceColumn, Figure]]
    """By UUID."""

    node: Mapping[NodeColumn, Figure]
    processes: Mapping[str, object]
    """Figures by :class:`~traceadvisor.model.telemetry.ProcessColumn`.

    If due, ``busiest`` lists the children with most CPU time, the busiest first: ``pid``, ``name`` of the main thread
    (``pt_data_worker`` for a ``DataLoader``'s worker), and figures by
    :class:`~traceadvisor.model.telemetry.WorkerColumn`."""


LARGEST_MANIFEST_BYTES = 1 << 24


def beginning(path: Path) -> bytes:
    """The bytes of a file, up to the size of the largest manifest.

    Raises:
        OSError: it cannot be read, or is no plain file: a pipe makes who reads it wait, and a device has no end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is no plain file")
    with path.open("rb") as file:
        return file.read(LARGEST_MANIFEST_BYTES)


def flag(value: object) -> bool | None:
    """A value of a file or a setting; None if it is neither true nor false."""
    return value if isinstance(value, bool) else None


def encode_telemetry_header(values: Mapping[str, object]) -> bytes:
    """Encode the first line of ``telemetry.<host>.jsonl``: what does not change.

    The values are named as the fields of :class:`~traceadvisor.model.telemetry.Telemetry` and, under ``devices``, of
    :class:`~traceadvisor.model.telemetry.DeviceTelemetry`.
    """
    return msgspec.json.encode(cleaned_document({"record": "header", "format": TELEMETRY_FORMAT, **values}))


class Private(Enum):
    """The kind of a private text, as an annotation of its field; ``scrub`` replaces it."""

    NAME = "name"
    FILE = "file"


@cache
def private_fields(kind: type) -> dict[str, Private]:
    """The private fields of a type."""
    hints = get_type_hints(kind, include_extras=True)
    marks = {name: [each for each in get_args(hint) if isinstance(each, Private)] for name, hint in hints.items()}
    return {name: found[0] for name, found in marks.items() if found}
