"""The telemetry of a node in the bundle: one process of a job writes it, and takes it along to the job's bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.telemetry.sampler import TelemetrySampler

TELEMETRY_INTERVAL_S = 0.1


class NodeTelemetry:
    """Samples into the bundle of a writer while this process is the one that does so for its node."""

    def __init__(self, writer: BundleWriter, lost: Callable[[Exception], None]) -> None:
        """Prepare; nothing is sampled yet.

        Args:
            writer: this process's access to the bundle.
            lost: called when something could not be written, in any thread.
        """
        self.name = f"telemetry.{writer.host}.jsonl"
        self._writer = writer
        self._lost = lost
        self._sampler: TelemetrySampler | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether this process samples, or has sampled until it stopped."""
        return self._sampler is not None

    @property
    def error(self) -> Exception | None:
        """The error that ended the sampling early."""
        return self._sampler.error if self._sampler else None

    def start(self, *, ranks: int) -> None:
        """Sample into a file that is not yet part of the bundle.

        Args:
            ranks: of the job. If there are several, all children of their common parent are sampled.
        """
        roots = (os.getppid() if ranks > 1 else os.getpid(),)
        try:
            path = self._writer.stage(self.name)
            sampler = TelemetrySampler(path, pids=lambda: roots, interval_s=TELEMETRY_INTERVAL_S, lost=self._lost)
            sampler.start()
            self._sampler = sampler
        except OSError as error:
            self._lost(error)

    def stop(self) -> None:
        """Sample no more."""
        if self._sampler:
            self._sampler.stop()

    def leave_to_parent(self) -> None:
        """Let go of the file in a forked child."""
        if self._sampler:
            self._sampler.leave_to_parent()

    def move(self, folder: Path, *, samples: bool) -> None:
        """Write to another bundle from now on, and take along the samples so far.

        Args:
            folder: the bundle; the writer writes to it, too.
            samples: whether this process samples for its node.
        """
        staged = self._writer.staged(self.name)
        self._writer.folder = folder
        if not samples:
            self._end()
        try:
            if self._sampler:
                staged.replace(self._writer.place(self.name))
            else:
                staged.unlink(missing_ok=True)
        except OSError:  # such as a bundle on another file system
            self._end()

    def start_in_bundle(self, *, ranks: int) -> None:
        """Sample into the bundle, unless this process does so already."""
        if not self._sampler:
            self.start(ranks=ranks)
            with suppress(OSError):
                self._writer.publish_staged(self.name)

    def _end(self) -> None:
        self.stop()
        self._sampler = None
