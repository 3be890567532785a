"""``settings.<rank>.json``: what a trace does not hold.

Each value is declared once: in :class:`~traceadvisor.model.run.RunSettings`, or here if no report uses it yet. The file
calls some of them by PyTorch's names (``num_workers``) and groups those of the optimizer.

``constructed`` lists where the script constructs its loader, optimizer, model, gradient scaler, the module whose
gradients no optimizer uses and embedding tables: ``role``, ``name`` of the class, ``file``, ``line``, ``function``, the
library ``through`` which the line constructs it, and the ``source`` of the call, it begins after ``start`` characters
of the first line, and ends after ``end`` of the last one. Tables have ``rows`` and ``width``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from numbers import Integral, Real
from operator import attrgetter
from typing import Any

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.model.location import Constructed, PlaceKind
from traceadvisor.model.run import LoaderLoops, LoaderSettings, Pause, RepeatedResult, RunSettings
from traceadvisor.text.cleaning import clean
from traceadvisor.text.documents import cleaned_document

RECORDED_ENV = (
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
)
"""Environment variables that change how training runs. No others are recorded, because some hold secrets."""

THREAD_POOLS: Mapping[str, tuple[str, ...]] = {
    "OpenBLAS": ("libopenblas", "libscipy_openblas"),
    "MKL": ("libmkl_rt", "libmkl_core", "mkl_rt"),
    "BLIS": ("libblis",),
    "libgomp": ("libgomp",),
    "libiomp5": ("libiomp5",),
    "OpenCV": ("cv2.", "libopencv_core"),
    "tokenizers": ("tokenizers.",),
    "Arrow": ("libarrow.so", "libarrow."),
    "Polars": ("polars.", "_polars_runtime"),
    "TBB": ("libtbb",),
}
"""Beginnings of the file names of native libraries that compute in threads of their own, by name."""

MOST = 1 << 53
"""Every count is smaller."""

MOST_LOADERS = 16
"""Loaders whose loops are described: a script may make one for each epoch."""

LONGEST_TEXT = 1000

_OPTIMIZER = {
    "name": "optimizer",
    "fused": "optimizer_fused",
    "foreach": "optimizer_foreach",
    "groups": "optimizer_groups",
    "tensors": "optimizer_tensors",
    "parameter_count": "parameter_count",
    "parameter_bytes": "parameter_bytes",
}
"""Keys of the file's ``optimizer``, and the fields that they hold."""


MOST_LONG_PAUSES = 2000
MOST_PLACES = 32
"""Places of repeated results."""

_texts_of = attrgetter("file", "function", "reason")

_PLACE = ("file", "line", "function")
"""Keys of a place."""


@frozen(kw_only=True)
class RecordedLoader(LoaderSettings):
    """The training ``DataLoader``'s arguments, as recorded."""

    shuffled: bool | None = None


@frozen(kw_only=True)
class RecordedSettings(RunSettings):
    """The settings of a run, as recorded."""

    device_name: str | None = None
    cpu_affinity: int | None = None
    """CPUs that the process may run on. As recorded, ``cpu_quota`` is the control group's alone."""

    parameter_bytes: int | None = None


def encode_settings(settings: RecordedSettings) -> bytes:
    """Encode settings as the file holds them, with their texts cleaned."""
    content = msgspec.to_builtins(settings, enc_hook=_plain)
    del content["ranks_on_host"]  # follows from the manifest
    content["own_code"] = None if settings.own_code is None else sorted(settings.own_code)
    optimizer = {key: content.pop(name) for key, name in _OPTIMIZER.items()}
    content["optimizer"] = optimizer if settings.optimizer else None
    if loader := content["loader"]:
        loader["num_workers"] = loader.pop("worker_count")
        place = loader.pop("location") or {}
        loader |= {key: place.get(key) for key in _PLACE}
    for one in content["constructed"]:
        place = one.pop("place")
        one |= {key: place[key] for key in _PLACE}
        if one["source"] and clean(one["source"]) != one["source"]:
            one["source"] = None
    return msgspec.json.format(msgspec.json.encode(cleaned_document(content)), indent=2)


def _plain(value: object) -> int | float | None:
    """Return a number of another library as Python's own: scripts pass them on, as numpy's to ``nn.Embedding``."""
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def decode_settings(content: bytes) -> RunSettings:
    """Decode the content of a file; impossible numbers become None.

    Raises:
        ValueError: a capture does not write such a file (msgspec's errors are ValueErrors).
    """
    found = _possible(msgspec.json.decode(content, type=dict[str, Any]))
    optimizer = _object(found.get("optimizer"))
    found |= {name: optimizer.get(key) for key, name in _OPTIMIZER.items()}
    if loader := _object(found.get("loader")):
        loader["batch_size"] = loader.get("batch_size") or None
        loader["worker_count"] = loader.get("num_workers")
        loader["location"] = loader if loader.get("file") and loader.get("line") else None
        pads_at = _object(loader.get("pads_at"))
        loader["pads_at"] = {key: pads_at.get(key) for key in _PLACE} if pads_at.get("line") else None
        found["loader"] = loader
    found["constructed"] = [*_constructed(found.get("constructed"))]
    for name in ("padding", "unused_gradients", "ignored_targets"):
        if None in _object(found.get(name)).values():
            found[name] = None
    found["repeated_results"] = _repeated(found.get("repeated_results"))
    if found.get("loops") is not None:
        found["loops"] = [*_loops(found["loops"])]
    found["thread_pools"] = [
        one for one in THREAD_POOLS if one in msgspec.convert(found.get("thread_pools") or (), list[Any])
    ]
    found["pauses"] = [*_pauses(found.get("pauses"))]
    settings = msgspec.convert(found, RunSettings)
    limits = (settings.cpu_quota, msgspec.convert(found.get("cpu_affinity"), int | None))
    environment = {name: text[:LONGEST_TEXT] for name, text in settings.environment.items() if name in RECORDED_ENV}
    return replace(
        settings,
        cpu_quota=min((limit for limit in limits if limit is not None), default=None),
        environment=environment,
    )


def _constructed(found: object) -> Iterator[dict[str, Any]]:
    """The objects of the training whose place is whole."""
    for one in msgspec.convert(found or (), list[Any]):
        with suppress(ValueError):
            given = _possible(_object(one))
            given["place"] = {key: given.get(key) for key in _PLACE} | {"kind": PlaceKind.CONSTRUCTED.value}
            msgspec.convert(given, Constructed)
            yield given


def _repeated(found: object) -> dict[str, Any] | None:
    """The results that a step repeats, at the places that are whole."""
    given, places = _object(found), list[Any]()
    for one in msgspec.convert(given.get("places") or (), list[Any])[:MOST_PLACES]:
        with suppress(ValueError):
            places.append(msgspec.convert(_possible(_object(one)), RepeatedResult))
    return {"places": places, "are_drawn": given.get("are_drawn") is True} if given else None


def _loops(found: object) -> Iterator[dict[str, Any]]:
    """The loops over each loader whose times are possible."""
    for one in msgspec.convert(found or (), list[Any])[:MOST_LOADERS]:
        with suppress(ValueError):
            given = _possible(_object(one))
            if msgspec.convert(given, LoaderLoops).count:
                yield given


def _pauses(found: object) -> Iterator[Pause]:
    """The possible pauses."""
    for one in msgspec.convert(found or (), list[Any])[:MOST_LONG_PAUSES]:
        with suppress(ValueError):
            pause = msgspec.convert(one, Pause)
            if all(0 <= number <= MOST for number in (pause.clock_ns, pause.duration_ns, pause.line or 0)):
                file, function, reason = (text and text[:LONGEST_TEXT] for text in _texts_of(pause))
                yield replace(pause, file=file, function=function, reason=reason)


def _object(value: object) -> dict[str, Any]:
    """A JSON object; empty if the value is null."""
    return msgspec.convert(value or {}, dict[str, Any])


def _possible(content: dict[str, Any]) -> dict[str, Any]:
    """The same with None for impossible numbers: negative ones, counts that are too large, shares above 1."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found[name] = _possible(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value if 0 <= value <= (1 if name.endswith("_share") else MOST) else None
        else:
            found[name] = value
    return found
