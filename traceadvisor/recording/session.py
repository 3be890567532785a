"""One process's capture from start to end: telemetry, the training loop, and the bundle that receives them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceadvisor import __version__
from traceadvisor.bundle.layout import FORMAT, BundleFile, Ending, FileKind, Manifest, Note, RankEnding, RankStart
from traceadvisor.bundle.settings import encode_settings
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import StepState
from traceadvisor.recording.after_import import after_torch_import
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.children.plan import Plan, withdraw
from traceadvisor.recording.children.rendezvous import Rendezvous, Result, numbered
from traceadvisor.recording.notices import remark, report_command, say
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch, start_of_this_process
from traceadvisor.recording.stacks import StackSampler
from traceadvisor.recording.telemetry import TelemetrySampler
from traceadvisor.text.cleaning import clean, clipped
from traceadvisor.text.secrets import without_secret_arguments

if TYPE_CHECKING:
    from traceadvisor.recording.loop.loop_capture import LoopCapture

TELEMETRY_INTERVAL_S = 0.1
LONGEST_MESSAGE = 2000
"""Characters of the script's last error in the manifest."""

_ARGUMENTS_REDACTED = (
    "{count} of the command's arguments looked like secrets and were not recorded. "
    "To record them: traceadvisor capture --keep-arguments."
)


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

    stopped: bool = False
    """Whether the script was ended because its recordings are saved."""


class CaptureSession:
    """One process's part of a capture. Its errors are reported at the end, and never reach the script."""

    def __init__(
        self, options: CaptureOptions, launch: Launch, command: tuple[str, ...], name: str, plan: Plan | None = None
    ) -> None:
        """Prepare a capture.

        Args:
            options: what to record.
            launch: this process within its job.
            command: the script and its arguments.
            name: name of the run, for the default folder.
            plan: what the processes of the command share; None if child processes are not captured.
        """
        self._options = options
        self._launch = launch
        self._plan = plan
        self._joined = self._is_child = False
        """Whether this process trains and has its place in a bundle; whether it is a child of the command's process."""
        self._shown = launch.bundle(options.folder, name)
        self.folder = self._shown.absolute()  # the script may change the working directory
        kept = command if options.keep_arguments else without_secret_arguments(command)
        self._redacted = sum(before != after for before, after in zip(command, kept, strict=True))
        self._header = Manifest(FORMAT, __version__, launch.started_ns, kept, options.schedule, launch.world_size)
        self._writer = self._new_writer()
        self._thread = threading.get_ident()  # torch may be imported in another
        self._log = StepLog()
        self._loop: LoopCapture | None = None
        self._follow: Callable[[Plan | None], None] | None = None
        """Captures a forked child if it trains; None before torch is imported."""
        self._sampler: TelemetrySampler | None = None
        self._stacks: StackSampler | None = None
        self._no_loop = Note("no-torch", "The script did not import torch, so there was no training to record.")
        self._problem: str | None = None
        self._started = (time.time_ns(), time.perf_counter_ns())
        """Both clocks when the script or the block starts."""

        self._finished: Captured | None = None

    def _new_writer(self) -> BundleWriter:
        staging = self.folder.with_name(f".{self.folder.name}.{self._launch.host}.{os.getpid()}")
        return BundleWriter(self.folder, self._header, self._launch.rank, staging)

    def start(self) -> None:
        """Start to sample the machine, and to follow the training loop once torch is imported.

        Raises:
            UsageError: the folder holds another capture.
        """
        self._writer.refuse_foreign()
        self._started = (time.time_ns(), time.perf_counter_ns())
        os.register_at_fork(after_in_child=self._forked)
        if self._launch.local_rank == 0:
            self._start_sampler()
        self._sample_stacks()
        after_torch_import(self._attach)

    def start_in_child(self) -> None:
        """Follow the training loop of a child process; it writes nothing before it trains."""
        self._is_child = True
        self._started = start_of_this_process()
        if self._plan:
            self._shown = self._launch.given(Path(self._plan.shown))
        os.register_at_fork(after_in_child=self._forked)
        self._sample_stacks()
        self._attach()

    @property
    def _rendezvous(self) -> Rendezvous | None:
        return Rendezvous(Path(self._plan.rendezvous)) if self._plan else None

    def _start_sampler(self) -> None:
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

    def _sample_stacks(self) -> None:
        stacks = StackSampler(self._log, thread=self._thread, is_fetching=self._is_fetching)
        with suppress(RuntimeError):  # the system allows no more threads
            stacks.start()
            self._stacks = stacks

    def _is_fetching(self) -> bool:
        return self._loop is not None and self._loop.is_fetching

    def _joins(self) -> None:
        """The first training step ended: this process takes its place in a bundle, and its children take none."""
        rendezvous = self._rendezvous
        if rendezvous is None or self._joined:
            return
        withdraw()
        self._launch = self._launch.of_training()
        number = rendezvous.number_of(self._launch.job, self._launch.rank)
        self._shown, self.folder = numbered(self._shown, number), numbered(self.folder, number)
        self._header = msgspec.structs.replace(self._header, world_size=self._launch.world_size)
        self._writer.folder, self._writer.header, self._writer.rank = self.folder, self._header, self._launch.rank
        self._joined = True
        samples = rendezvous.is_first(f"telemetry{number}.{self._launch.host}")  # one process of a job and node
        if self._is_child and samples:
            self._start_sampler()
        elif self._sampler and not samples:
            self._sampler.stop()
            self._sampler = None

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
        wall_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
        if self._plan:
            withdraw()
        if self._loop:
            self._loop.close()
        if self._sampler:
            self._sampler.stop()
        if self._stacks:
            self._stacks.stop()
        recorded = self._log.count(StepState.RECORDED)
        stopped = self._loop is not None and self._loop.stopped
        if stopped and ending is Ending.COMPLETED:
            ending = Ending.STOPPED
        if self._rendezvous and not self._joined and (self._is_child or self._rendezvous.joined()):
            self._writer.close()  # its children trained, or nobody did
            self._finished = Captured(self._shown, 0, 0, (), None)
            return self._finished
        self._publish(
            [self._telemetry()] if self._sampler else [],
            RankEnding(
                rank=self._launch.rank,
                ending=ending,
                exit_code=exit_code,
                steps=self._training_steps,
                recorded_steps=recorded,
                message=clipped(clean(message[: 8 * LONGEST_MESSAGE]), LONGEST_MESSAGE) if message else None,
                wall_ns=wall_ns,
                clock_ns=clock_ns,
                checkpoint_ns=self._loop.checkpoint_after_ns if self._loop else None,
            ),
        )
        self._writer.close()
        captured = Captured(self._shown, self._training_steps, recorded, self._notes(), self._problem, stopped)
        if self._rendezvous and self._is_child:
            told = remark(captured.notes, recorded, stopped=stopped)
            self._rendezvous.leave(
                Result(str(self._shown), self._launch.rank, captured.steps, recorded, told, captured.problem)
            )
        self._finished = captured
        return captured

    def _attach(self) -> None:
        """Follow the training loop; torch is imported by now."""
        try:
            from traceadvisor.recording.loop.loop_capture import LoopCapture  # noqa: PLC0415  # it imports torch

            if self._plan:  # imported now: a forked child of a program with threads must not import
                from traceadvisor.recording.children.training_process import follow  # noqa: PLC0415  # it imports this

                self._follow = follow
            self._loop = LoopCapture(
                self._options,
                self._log,
                self._launch.host,
                thread=self._thread,
                stage=self._writer.stage,
                saved=self._recording_saved,
                trains=self._joins,
            )
        except Exception as error:  # noqa: BLE001  # an unknown version of torch must not stop the script
            self._no_loop = Note(
                "torch-unknown", f"TraceAdvisor cannot follow the training loop with this torch: {error!r}"
            )

    def _recording_saved(self, name: str, cycle: int, whole: bool) -> None:  # noqa: FBT001  # a callback
        """A recording is ready: from now on, a killed run leaves a bundle."""
        file = BundleFile(name, FileKind.TRACE, self._launch.rank, cycle, self._launch.host, whole)
        self._publish([file], None)
        if whole and not self._problem:
            self._say_ready()

    def _say_ready(self) -> None:
        """Say once per command that a report can be made."""
        rendezvous = self._rendezvous
        if rendezvous and self._launch.local_rank == 0 and rendezvous.is_first("ready"):
            say(f"report ready: {report_command(self._shown)}")

    def _publish(self, files: list[BundleFile], ending: RankEnding | None) -> None:
        rank, host = self._launch.rank, self._launch.host
        steps = BundleFile(f"steps.{rank}.csv", FileKind.STEPS, rank, host=host)
        files.append(steps)
        try:
            self._log.write(self._writer.stage(steps.path))
            if self._stacks:
                stacks = BundleFile(f"stacks.{rank}.jsonl", FileKind.STACKS, rank, host=host)
                self._stacks.write(self._writer.stage(stacks.path))
                files.append(stacks)
            if self._loop:
                settings = BundleFile(f"settings.{rank}.json", FileKind.SETTINGS, rank, host=host)
                self._writer.stage(settings.path).write_bytes(encode_settings(self._loop.settings()))
                files.append(settings)
                if batches := self._loop.batches():
                    timed = BundleFile(f"batches.{rank}.csv", FileKind.BATCHES, rank, host=host)
                    batches.write(self._writer.stage(timed.path))
                    files.append(timed)
            self._writer.start = RankStart(rank, *self._started)
            self._writer.publish(files, self._notes(), ending)
            self._problem = None
        except OSError as error:
            self._problem = self._failure(error)

    def _notes(self) -> tuple[Note, ...]:
        """The notes, cleaned: some quote error messages of other libraries."""
        notes = self._loop.notes if self._loop else [self._no_loop]
        if self._sampler and self._sampler.error:
            notes.append(Note("telemetry-ended", f"Sampling the machine ended early: {self._sampler.error}"))
        if self._stacks and self._stacks.error:
            message = f"Sampling the Python stack ended early: {self._stacks.error}"
            notes.append(Note("stacks-ended", message, degrades=False))
        if self._redacted:
            notes.append(Note("arguments-redacted", _ARGUMENTS_REDACTED.format(count=self._redacted), degrades=False))
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
        """A forked child has no part in the capture, unless it trains and this process does not."""
        if self._stacks:
            self._stacks.forked()
        if self._loop:
            self._loop.stop_listening()
        if self._sampler:
            self._sampler.leave_to_parent()
        if self._follow and not self._joined and not self._finished:
            self._follow(self._plan)
