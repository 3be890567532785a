"""Scrubs a memory snapshot: paths and names in its frames, ranges and settings."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.snapshot.snapshot_file import read_whole
from traceadvisor.scrubbing.output import Writable
from traceadvisor.scrubbing.texts import Texts

_WORD = re.compile(r"[\w.]{1,60}")
"""Names of actions, states and settings."""

_SETTINGS = re.compile(r"[\w:.,\[\]<>=-]{0,1000}")
_DEEPEST = 16
"""Lists and dicts in one another; torch writes six."""

PROTOCOL = 4
"""torch's."""


def scrub_snapshot(path: Path, written: Writable, texts: Texts, limits: Limits = LIMITS) -> int:
    """Write a copy; returns the number of its events.

    Raises:
        InputError: the snapshot cannot be read.
    """
    root: Any = read_whole(path, limits)
    texts.learn_from("\n".join(sorted(set(_files(root, set(), 0)))))
    written.write(pickle.dumps(_Scrubbed(texts).value(root, "", 0), PROTOCOL))
    traces = root.get("device_traces") if isinstance(root, dict) else None
    return sum(len(one) for one in traces or () if isinstance(one, list))


def _files(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if not isinstance(value, dict | list) or id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    for one in value.values() if isinstance(value, dict) else value:
        yield from _files(one, seen, depth + 1)
    if isinstance(value, dict) and isinstance(file := value.get("filename"), str):
        yield file


class _Scrubbed:
    """Copies values; what stands in several places does in the copy, too."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._copies: dict[int, Any] = {}

    def value(self, value: Any, key: str, depth: int) -> Any:
        """The copy of a value; ``key``: its name in the dict around it."""
        if isinstance(value, str):
            return self._text(value, key)
        if not isinstance(value, dict | list):
            return value if isinstance(value, bool | int | float | tuple) else None
        if depth > _DEEPEST:
            return None
        if id(value) not in self._copies:
            if isinstance(value, dict):
                known = (name for name in value if not isinstance(name, str) or _WORD.fullmatch(name))
                copy: Any = {name: self.value(value[name], str(name), depth + 1) for name in known}
            else:
                copy = [self.value(one, key, depth + 1) for one in value]
            self._copies[id(value)] = copy
        return self._copies[id(value)]

    def _text(self, text: str, key: str) -> str:
        match key:
            case "filename":
                return text if text == "??" else self._texts.file(text)
            case "name":
                return self._texts.name(text)
            case "action" | "state" | "stage" | "segment_type" | "compile_context" if _WORD.fullmatch(text):
                return text
            case "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" if _SETTINGS.fullmatch(text):
                return text
            case _:
                return self._texts.free(text)
