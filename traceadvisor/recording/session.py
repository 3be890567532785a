"""A capture from beginning to end: telemetry, the training loop, and the bundle they go into."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceadvisor import __version__
from traceadvisor.bundle.layout import FORMAT, BundleFile, Ending, FileKind, Manifest, Note, RankEnding
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.loop.step_log import StepLog, StepState
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.telemetry import TelemetrySampler

if TYPE_CHECKING:
    from traceadvisor.recording.loop.training_watch import TrainingWatch

TELEMETRY_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Captured:
    """What came of a capture."""

    folder: Path
    """As it was named, relative to where the run began."""

    steps: int
    recorded_steps: int
    notes: tuple[Note, ...]
    problem: str | None
    """Why nothing was written; None where something was."""


class CaptureSession:
    """One process's part of a capture. Whatever goes wrong here is told at the end and never reaches the script."""

    def __init__(self, options: CaptureOptions, launch: Launch, command: tuple[str, ...], name: str) -> None:
        self._options = options
        self._launch = launch
        folder = launch.given(options.folder) if options.folder else launch.folder(name)
        self._shown = folder
        self.folder = folder.absolute()  # the script may change the working directory
        header = Manifest(FORMAT, __version__, launch.started_ns, command, options.schedule, launch.world_size)
        staging = self.folder.with_name(f".{self.folder.name}.{launch.host}.{os.getpid()}")
        self._writer = BundleWriter(self.folder, header, launch.rank, staging)
        self._thread = threading.get_ident()  # torch may be imported in another
        self._log = StepLog()
        self._watch: TrainingWatch | None = None
        self._sampler: TelemetrySampler | None = None
        self._why_unwatched = Note("no-torch", "The script did not import torch, so there was no training to record.")
        self._problem: str | None = None
        self._finished: Captured | None = None

    def start(self) -> None:
        """Begin to sample the machine.

        Raises:
            UsageError: the folder holds another capture.
        """
        self._writer.refuse_foreign()
        os.register_at_fork(after_in_child=self._forked)
        if self._launch.local_rank == 0:
            launched = self._launch.world_size > 1
            roots = (os.getppid() if launched else os.getpid(),)
            try:
                sampler = TelemetrySampler(
                    self._writer.stage(self._telemetry_name), pids=lambda: roots, interval_s=TELEMETRY_INTERVAL_S
                )
                sampler.start()
                self._sampler = sampler
            except OSError as error:
                self._problem = f"{error.filename or self.folder}: {error.strerror or error}"

    def attach(self) -> None:
        """Begin to listen to the training loop; torch is imported by now."""
        try:
            from traceadvisor.recording.loop.training_watch import TrainingWatch  # noqa: PLC0415  # it imports torch

            self._watch = TrainingWatch(
                self._options,
                self._log,
                self._launch.host,
                thread=self._thread,
                stage=self._writer.stage,
                saved=self._recording_saved,
            )
        except Exception as error:  # noqa: BLE001  # a torch unlike those known must not keep the script from running
            self._why_unwatched = Note("torch-unknown", f"This torch cannot be listened to: {error!r}")

    def step(self) -> None:
        """A training step ended, as the script says."""
        if self._watch:
            self._watch.step()

    def finish(self, ending: Ending, exit_code: int, message: str | None = None) -> Captured:
        """The script ended: write what is known. A second call changes nothing."""
        if self._finished:
            return self._finished
        if self._watch:
            self._watch.close()
        if self._sampler:
            self._sampler.stop()
        recorded = self._log.count(StepState.RECORDED)
        self._publish(
            [self._telemetry()] if self._sampler else [],
            RankEnding(self._launch.rank, ending, exit_code, self._training_steps, recorded, message),
        )
        self._writer.close()
        self._finished = Captured(self._shown, self._training_steps, recorded, self._notes(), self._problem)
        return self._finished

    def _recording_saved(self, name: str, cycle: int) -> None:
        """A recording is ready: from here on, a run that is killed leaves a bundle."""
        file = BundleFile(name, FileKind.TRACE, self._launch.rank, cycle, self._launch.host)
        self._publish([file], None)

    def _publish(self, files: list[BundleFile], ending: RankEnding | None) -> None:
        rank, host = self._launch.rank, self._launch.host
        steps = BundleFile(f"steps.{rank}.csv", FileKind.STEPS, rank, host=host)
        files.append(steps)
        try:
            self._log.write(self._writer.stage(steps.path))
            if self._watch:
                settings = BundleFile(f"settings.{rank}.json", FileKind.SETTINGS, rank, host=host)
                encoded = msgspec.json.format(msgspec.json.encode(self._watch.settings()), indent=2)
                self._writer.stage(settings.path).write_bytes(encoded)
                files.append(settings)
            self._writer.publish(files, self._notes(), ending)
            self._problem = None
        except OSError as error:
            self._problem = f"{error.filename or self.folder}: {error.strerror or error}"

    def _notes(self) -> tuple[Note, ...]:
        notes = self._watch.notes if self._watch else [self._why_unwatched]
        if self._sampler and self._sampler.error:
            notes.append(Note("telemetry-ended", f"Sampling the machine ended early: {self._sampler.error}"))
        return tuple(notes)

    def _telemetry(self) -> BundleFile:
        return BundleFile(self._telemetry_name, FileKind.TELEMETRY, host=self._launch.host)

    @property
    def _telemetry_name(self) -> str:
        return f"telemetry.{self._launch.host}.jsonl"

    @property
    def _training_steps(self) -> int:
        return len(self._log) - self._log.count(StepState.OTHER)

    def _forked(self) -> None:
        """In a child process: it has the hooks, but no part in the capture."""
        if self._watch:
            self._watch.stop_listening()
