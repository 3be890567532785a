"""Writes the snapshots of the tutorials, ``docs/tutorials/snapshots``: ``python -m tests.memory.tutorials``.

They come from the model of the allocator, so that everybody can try the tutorials, and get the figures that they show.
Their frames are those of the program that the tutorial on memory shows.
"""

import gzip
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.memory.programs import Training, transformer
from tests.shared import CHECKOUT

FOLDER = CHECKOUT / "docs" / "tutorials" / "snapshots"
NAMES = {"batch-8": (8, False), "batch-16": (16, False), "batch-16-fused": (16, True)}
"""The batch size of each snapshot, and whether attention keeps no scores."""

PAGE = FOLDER.parent / "memory.md"
PROGRAM = "train.py"
FUNCTIONAL = "site-packages/torch/nn/functional.py"
SHOWN = {
    ("softmax", 7): ("softmax", FUNCTIONAL),
    ("forward", 8): ("attention", "F.softmax(scores"),
    ("einsum", 40): ("einsum", "site-packages/torch/functional.py"),
    ("forward", 41): ("forward", 'torch.einsum("bte'),
    ("silu", 41): ("silu", FUNCTIONAL),
    ("forward", 42): ("forward", "F.silu("),
    ("norm", 42): ("layer_norm", FUNCTIONAL),
    ("forward", 43): ("forward", "F.layer_norm("),
    ("scaled_dot_product_attention", 60): ("einsum", "site-packages/torch/functional.py"),
    ("forward", 61): ("attention", "scores = "),
    ("__init__", 10): ("__init__", "self.up = "),
    ("main", 5): ("main", "Block() for"),
    ("main", 20): ("main", "x = block(x)"),
    ("cross_entropy", 17): ("cross_entropy", FUNCTIONAL),
    ("main", 21): ("main", "F.cross_entropy("),
    ("main", 24): ("main", "optimizer.step()"),
    ("<module>", 99): ("<module>", "\nmain()"),
}
"""For each frame of the model's program, by function and line: its function, and its file or a part of its line."""

WITHOUT = ("forward", 90)
"""The frame of the whole model, which the shown program has no class for."""


def _without(value: Any) -> Any:
    """A part of a snapshot without the frames that the shown program lacks."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without(one) for one in value if not (isinstance(one, dict) and _place(one) == WITHOUT)]
    return value


def _place(frame: dict[str, Any]) -> tuple[object, object]:
    return frame.get("name"), frame.get("line")


def _frames(value: Any) -> Iterator[dict[str, Any]]:
    """All frames in a part of a snapshot."""
    if isinstance(value, dict) and "filename" in value:
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _frames(one)


def _as_shown(taken: dict[str, Any]) -> dict[str, Any]:
    """The snapshot with the frames of the shown program."""
    page = PAGE.read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    of_program = {id(one): one for one in _frames(taken) if one["filename"].startswith("project/")}
    for one in of_program.values():
        one["name"], place = SHOWN[one["name"], one["line"]]
        if place.endswith(".py"):
            one["filename"] = place
        else:
            assert program.count(place) == 1, place
            one["filename"], one["line"] = PROGRAM, program[: program.index(place)].count("\n") + 1 + place.count("\n")
    return taken


def snapshot(batch: int, *, fused: bool = False) -> bytes:
    """Two steps of a small language model with this batch size; the same bytes each time."""
    one = transformer(tokens=256)
    (block, *_), saved = one.layers, one.layers[0].saved
    larger = replace(
        block, saved={name: size * batch for name, size in saved.items()}, scores=0 if fused else block.scores * batch
    )
    training = Training((larger,) * 8, logits=one.logits * batch).build().steps(2)
    return gzip.compress(pickle.dumps(_as_shown(_without(training.snapshot()))), mtime=0)


def main(folder: Path = FOLDER) -> None:
    """Write all of them."""
    for name, (batch, fused) in NAMES.items():
        (folder / f"{name}.pickle.gz").write_bytes(snapshot(batch, fused=fused))


if __name__ == "__main__":
    main()
