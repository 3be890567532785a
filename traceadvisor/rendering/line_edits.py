"""The line to edit for a fix, in words."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.findings import LineEdit
from traceadvisor.rendering.document.blocks import Mark, Span


def edit_words(edit: LineEdit, *, with_arguments: bool) -> Iterator[str | Span]:
    """``, which constructs the DataLoader``, or also ``: set num_workers=4 there``; they follow the place."""
    yield f", where {edit.through} constructs the " if edit.through else ", which constructs the "
    yield Span(edit.name, Mark.CODE)
    if not edit.is_recorded:
        yield " (found in the file, not recorded)"
    if with_arguments and edit.keywords:
        yield ": set "
        yield Span(", ".join(f"{name}={value!r}" for name, value in edit.keywords.items()), Mark.CODE)
        by = f" by way of {edit.through}" if edit.through else " there"
        yield from (" in its ", Span(edit.takes, Mark.CODE)) if edit.takes else (by,)
        if edit.unchanged:
            yield f" ({edit.unchanged})"
