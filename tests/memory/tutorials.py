"""Writes the snapshots of the tutorials, ``docs/tutorials/snapshots``: ``python -m tests.memory.tutorials``.

They come from the model of the allocator, so that everybody can try the tutorials, and get the figures that they show.
"""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from pathlib import Path

from tests.memory.programs import Training, transformer
from tests.shared import CHECKOUT

FOLDER = CHECKOUT / "docs" / "tutorials" / "snapshots"
BATCHES = (8, 16)


def snapshot(batch: int) -> bytes:
    """Two steps of a small language model with this batch size; the same bytes each time."""
    one = transformer(tokens=256)
    (block, *_), saved = one.layers, one.layers[0].saved
    larger = replace(block, saved={name: size * batch for name, size in saved.items()}, scores=block.scores * batch)
    training = Training((larger,) * 8, logits=one.logits * batch).build().steps(2)
    return gzip.compress(pickle.dumps(training.snapshot()), mtime=0)


def main(folder: Path = FOLDER) -> None:
    """Write all of them."""
    for batch in BATCHES:
        (folder / f"batch-{batch}.pickle.gz").write_bytes(snapshot(batch))


if __name__ == "__main__":
    main()
