"""One process's capture from start to end: telemetry, the training loop, and the bundle that receives them."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from traceadvisor import __version__
from traceadvisor.bundle.layout import FORMAT, BundleFile, Ending, FileKind, Manifest, Note, RankEnding
from traceadvisor.bundle.settings import encode_settings
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import StepState
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.telemetry import TelemetrySampler
from traceadvisor.text.cleaning import clean, clipped

if TYPE_CHECKING:
    from traceadvisor.recording.loop.loop_capture import LoopCapture

TORCH = "torch"
TELEMETRY_INTERVAL_S = 0.1
LONGEST_MESSAGE = 2000
"""Characters of the script's last error in the manifest."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The result of a capture."""

    folder: Path
    """As given, relative to the working directory at the start."""

    steps: int
    recorded_steps: int
    notes: tuple[Note, ...]
    problem: str | None
    """Why nothing was written; None if something was."""


class CaptureSession:
    """One process's part of a capture. Its errors are reported at the end, and never reach the script."""

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
        self._loop: LoopCapture | None = None
        self._sampler: TelemetrySampler | None = None
        self._no_loop = Note("no-torch", "The script did not import torch, so there was no training to record.")
        self._problem: str | None = None
        self._finished: Captured | None = None

    def start(self) -> None:
        """Start to sample the machine, and to follow the training loop once torch is imported.

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
                self._problem = self._failure(error)
        after_torch_import(self._attach)

    def step(self) -> None:
        """The script marks the end of a training step."""
        if self._loop:
            self._loop.step()

    def finish(self, ending: Ending, exit_code: int, message: str | None = None) -> Captured:
        """The script ended: write everything known. A second call changes nothing.

        ``message`` comes from the script: it is cleaned of secrets before it is written.
        """
        if self._finished:
            return self._finished
        if self._loop:
            self._loop.close()
        if self._sampler:
            self._sampler.stop()
        recorded = self._log.count(StepState.RECORDED)
        self._publish(
            [self._telemetry()] if self._sampler else [],
            RankEnding(
                rank=self._launch.rank,
                ending=ending,
                exit_code=exit_code,
                steps=self._training_steps,
                recorded_steps=recorded,
                message=clipped(clean(message[: 8 * LONGEST_MESSAGE]), LONGEST_MESSAGE) if message else None,
            ),
        )
        self._writer.close()
        self._finished = Captured(self._shown, self._training_steps, recorded, self._notes(), self._problem)
        return self._finished

    def _attach(self) -> None:
        """Follow the training loop; torch is imported by now."""
        try:
            from traceadvisor.recording.loop.loop_capture import LoopCapture  # noqa: PLC0415  # it imports torch

            self._loop = LoopCapture(
                self._options,
                self._log,
                self._launch.host,
                thread=self._thread,
                stage=self._writer.stage,
                saved=self._recording_saved,
            )
        except Exception as error:  # noqa: BLE001  # an unknown version of torch must not stop the script
            self._no_loop = Note(
                "torch-unknown", f"TraceAdvisor cannot follow the training loop with this torch: {error!r}"
            )

    def _recording_saved(self, name: str, cycle: int) -> None:
        """A recording is ready: from now on, a killed run leaves a bundle."""
        file = BundleFile(name, FileKind.TRACE, self._launch.rank, cycle, self._launch.host)
        self._publish([file], None)

    def _publish(self, files: list[BundleFile], ending: RankEnding | None) -> None:
        rank, host = self._launch.rank, self._launch.host
        steps = BundleFile(f"steps.{rank}.csv", FileKind.STEPS, rank, host=host)
        files.append(steps)
        try:
            self._log.write(self._writer.stage(steps.path))
            if self._loop:
                settings = BundleFile(f"settings.{rank}.json", FileKind.SETTINGS, rank, host=host)
                self._writer.stage(settings.path).write_bytes(encode_settings(self._loop.settings()))
                files.append(settings)
                if batches := self._loop.batches():
                    timed = BundleFile(f"batches.{rank}.csv", FileKind.BATCHES, rank, host=host)
                    batches.write(self._writer.stage(timed.path))
                    files.append(timed)
            self._writer.publish(files, self._notes(), ending)
            self._problem = None
        except OSError as error:
            self._problem = self._failure(error)

    def _notes(self) -> tuple[Note, ...]:
        """The notes, cleaned: some quote error messages of other libraries."""
        notes = self._loop.notes if self._loop else [self._no_loop]
        if self._sampler and self._sampler.error:
            notes.append(Note("telemetry-ended", f"Sampling the machine ended early: {self._sampler.error}"))
        return tuple(msgspec.structs.replace(note, message=clean(note.message)) for note in notes)

    def _failure(self, error: OSError) -> str:
        return clean(f"{error.filename or self.folder}: {error.strerror or error}")

    def _telemetry(self) -> BundleFile:
        return BundleFile(self._telemetry_name, FileKind.TELEMETRY, host=self._launch.host)

    @property
    def _telemetry_name(self) -> str:
        return f"telemetry.{self._launch.host}.jsonl"

    @property
    def _training_steps(self) -> int:
        return len(self._log) - self._log.count(StepState.OTHER)

    def _forked(self) -> None:
        """A forked child has the hooks, but no part in the capture."""
        if self._loop:
            self._loop.stop_listening()


def after_torch_import(call: Callable[[], None]) -> None:
    """Call a function once torch is imported; at once if it is already.

    An earlier import of torch would ignore what the script sets first: thread counts, allocator options, log levels.
    """
    if TORCH in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _OnImport(call))


class _OnImport(MetaPathFinder):
    """Finds torch once through the other finders, and calls back when it has been executed."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back."""
        if fullname != TORCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            execute, call = spec.loader.exec_module, self._call

            def exec_module(module: ModuleType) -> None:
                execute(module)
                call()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
