"""Which devices this process may use, and by which number: ``CUDA_VISIBLE_DEVICES``, read as CUDA reads it.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visibility:
    """What can be told of one device; None where it cannot."""

    visible: bool | None
    cuda_index: int | None


_UNKNOWN = Visibility(visible=None, cuda_index=None)
_HIDDEN = Visibility(visible=False, cuda_index=None)


def visibilities(uuids: Sequence[str], names: Sequence[str | None], environment: Mapping[str, str]) -> list[Visibility]:
    """One :class:`Visibility` for each device, in the driver's order (that of the PCI bus).

    CUDA numbers the fastest device first unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``: where the devices are not all
    of one kind, numbers cannot be told from here.
    """
    same_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(names)) <= 1
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [Visibility(visible=True, cuda_index=index if same_order else None) for index in range(len(uuids))]
    entries = [entry.strip() for entry in listed.split(",")]
    by_number = any(entry.isdecimal() for entry in entries)
    if any(entry.startswith("MIG-") for entry in entries) or (by_number and not same_order):
        return [_UNKNOWN] * len(uuids)
    chosen = _chosen(entries, uuids)
    return [
        Visibility(visible=True, cuda_index=chosen.index(index)) if index in chosen else _HIDDEN
        for index in range(len(uuids))
    ]


def _chosen(entries: Sequence[str], uuids: Sequence[str]) -> list[int]:
    """The devices listed, in that order, up to the first entry that names none or one again."""
    chosen: list[int] = []
    for entry in entries:
        index = _device(entry, uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _device(entry: str, uuids: Sequence[str]) -> int | None:
    """The device that an entry names: a number, or a UUID or the beginning of just one."""
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    alike = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return alike[0] if len(alike) == 1 else None
