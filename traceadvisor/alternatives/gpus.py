"""Finds GPUs by short names, in the table of devices and in a file of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from traceadvisor.errors import InputError, UsageError
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import DeviceRow, Pcie, Precision, device_rows, model_words, sources
from traceadvisor.model.whatif import Rates
from traceadvisor.text.toml import decoded_toml

LARGEST_BYTES = 1 << 20
"""Largest file of devices."""

LEAST_FIGURE, MOST_FIGURE = 0.01, 1_000_000
"""Figures of a device: with others, the times of its kernels could overflow."""

_MEMORY = re.compile(r"^(\d{1,4})gi?b?$")


@frozen
class Gpu:
    """A GPU by the name that the user gave."""

    row: DeviceRow
    memory_gb: int
    """Its memory: the size in the name, else the smallest one that is sold."""

    others: tuple[str, ...] = ()
    """Further rows that the name fits."""

    @property
    def name(self) -> str:
        """The name of the row, with the size of its memory where several are sold."""
        sizes = self.row.memory_gb
        return self.row.name if len(sizes) == 1 else f"{self.row.name} {self.memory_gb} GB"

    @property
    def rates(self) -> Rates:
        """The published figures."""
        row, known = self.row, sources()
        rates = {one.value: rate for one, rate in row.tflops.items()}
        titles = tuple(known[one].title for one in row.sources if one in known)
        return Rates(self.name, self.memory_gb, row.bandwidth_gb_per_s, rates, titles, self.others)


def find_gpu(name: str, own: Sequence[DeviceRow] = ()) -> Gpu:
    """Return the GPU with a name, or the first one in the table that has all words of it.

    ``own``: rows of the user's own, which come first.

    Raises:
        UsageError: no row fits.
    """
    rows = (*own, *device_rows())
    words = [word for word in re.split(r"[\s_/-]+", model_words(name)) if word]
    sizes = [int(found[1]) for word in words if (found := _MEMORY.match(word))]
    wanted = {word for word in words if not _MEMORY.match(word)}
    exact = [row for row in rows if wanted and model_words(name) in map(model_words, (row.name, *row.names))]
    fitting = exact or [row for row in rows if wanted and wanted <= _words(row)]
    fitting = [row for row in fitting if not sizes or sizes[0] in row.memory_gb] if sizes else fitting
    if not fitting:
        names = [row.name for row in rows]
        near = get_close_matches(name, names, 1, 0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"No published rates of a GPU {name!r}.{hint} Known: {', '.join(names)}. Give others with --device-file."
        )
    row, *others = fitting
    return Gpu(row, sizes[0] if sizes else min(row.memory_gb), tuple(one.name for one in others))


def _words(row: DeviceRow) -> set[str]:
    texts = (row.name, *row.names)
    return {word for text in texts for word in re.split(r"[\s_/\[\]-]+", model_words(text))}


@frozen
class _OwnDevice:
    """A table ``[[device]]`` of the user's own file."""

    name: str
    memory_gb: int
    bandwidth_gb_per_s: float
    tflops: dict[Precision, float]
    pcie: Pcie | None = None
    peer_gb_per_s: float | None = None


@frozen
class _OwnFile:
    device: tuple[_OwnDevice, ...]


def read_device_file(path: Path) -> tuple[DeviceRow, ...]:
    """Return the GPUs of a TOML file with tables ``[[device]]``.

    Raises:
        InputError: the file cannot be read, or a figure is missing or out of range.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe makes who reads it wait
            raise _wrong(path, "is no plain file")
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise _wrong(path, f"has more than {LARGEST_BYTES} bytes")
        found = msgspec.convert(decoded_toml(content), _OwnFile)
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # also what msgspec refuses
        raise _wrong(path, f"is no such file ({error})") from error
    return tuple(_row(path, one) for one in found.device)


def _row(path: Path, own: _OwnDevice) -> DeviceRow:
    figures = (own.memory_gb, own.bandwidth_gb_per_s, own.peer_gb_per_s, *own.tflops.values())
    if not own.tflops or not all(one is None or LEAST_FIGURE <= one <= MOST_FIGURE for one in figures):
        ends = f"below {LEAST_FIGURE:g} or above {MOST_FIGURE:,}"
        raise _wrong(path, f"has a figure of {own.name!r} that is missing, {ends}")
    if own.pcie and (own.pcie.generation not in range(1, 7) or not 0 < own.pcie.lanes <= 64):
        raise _wrong(path, f"has an unknown PCIe link of {own.name!r}")
    return DeviceRow(
        own.name,
        (own.name,),
        (own.memory_gb,),
        own.tflops,
        own.bandwidth_gb_per_s,
        (),
        pcie=own.pcie,
        peer_gb_per_s=own.peer_gb_per_s,
    )


def _wrong(path: Path, found: str) -> InputError:
    return InputError(
        path,
        found,
        expected="tables [[device]] with name, memory_gb, bandwidth_gb_per_s and tflops",
        remedy="See docs/whatif.md.",
    )
