"""A callback of Lightning that captures a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceadvisor.integrations.blocks import Block

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:  # the same library under its older name
        from pytorch_lightning import Callback


class TraceAdvisorCallback(Callback):
    """Captures ``Trainer.fit``: ``Trainer(callbacks=[TraceAdvisorCallback()])``."""

    def __init__(self, folder: Path | str | None = None, **options: Any) -> None:
        """Prepare; see :func:`traceadvisor.capture` for folder and options."""
        self.block = Block(folder, options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        """Begin to capture, before loaders are made."""
        if stage == "fit":
            self.block.begin()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002  # as above
        """Write what was captured before the exception."""
        self.block.end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # as above
        """Write the capture."""
        self.block.end()
