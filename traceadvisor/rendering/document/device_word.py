"""The word for a device: users of an NPU do not call it a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from traceadvisor.rendering.document.blocks import Code

T = TypeVar("T")

GPU = "GPU"
_GPU = re.compile(r"\b([Aa] )?GPU(s?)\b")
_SPOKEN_WITH_A_VOWEL = "AEFHILMNORSX"


def with_device_word(document: T, device: str) -> T:
    """Return the document, or a text of it, with another word for a GPU in all texts but code."""
    if device == GPU:
        return document

    def word(found: re.Match[str]) -> str:
        article, plural = found[1] or "", found[2]
        if article and device[0] in _SPOKEN_WITH_A_VOWEL:
            article = f"{article[0]}n "
        is_first = not found.start() and not article
        return f"{article}{device[0].upper() if is_first else device[0]}{device[1:]}{plural}"

    changed: T = reworded(document, lambda text: _GPU.sub(word, text) if GPU in text else text)
    return changed


def reworded(value: Any, change: Callable[[str], str]) -> Any:
    """A document or a part of it with every text but code changed; the same object if none changes."""
    match value:
        case str():
            return change(value)
        case Code():
            return value
        case tuple():
            parts = tuple(reworded(one, change) for one in value)
            return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)
        case _ if is_dataclass(value) and not isinstance(value, type):
            kept = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            new = {name: reworded(old, change) for name, old in kept.items()}
            changed = {name: one for name, one in new.items() if one is not kept[name]}
            return replace(value, **changed) if changed else value
    return value
