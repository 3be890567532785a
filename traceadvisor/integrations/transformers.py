"""A callback of Hugging Face's Trainer that captures a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from traceadvisor.integrations.blocks import Block


class TraceAdvisorCallback(TrainerCallback):
    """Captures ``Trainer.train``: ``Trainer(callbacks=[TraceAdvisorCallback()])``.

    The Trainer tells callbacks of no exception: after one, the capture ends with the process.
    """

    def __init__(self, folder: Path | str | None = None, **options: Any) -> None:
        """Prepare; see :func:`traceadvisor.capture` for folder and options."""
        self.block = Block(folder, options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin to capture."""
        self.block.begin()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write the capture."""
        self.block.end()
