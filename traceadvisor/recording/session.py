"""One process's capture from start to end: telemetry, the training loop, and the bundle that receives them."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import getpid  # the script may replace that of the module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceadvisor import __version__
from traceadvisor.bundle.layout import (
    FORMAT,
    BundleFile,
    Ending,
    FileKind,
    Manifest,
    Note,
    RankEnding,
    RankStart,
    Repository,
)
from traceadvisor.bundle.settings import encode_settings
from traceadvisor.bundle.stacks import write_stacks
from traceadvisor.bundle.steps import StepLog
from traceadvisor.errors import named
from traceadvisor.frozen import frozen
from traceadvisor.model.run import StepState
from traceadvisor.recording.after_import import after_torch_import
from traceadvisor.recording.bundle_writer import BundleWriter, is_taken_by_another
from traceadvisor.recording.children.plan import Plan, withdraw
from traceadvisor.recording.children.rendezvous import Rendezvous, Result, Trains, numbered
from traceadvisor.recording.devices import PATIENCE_AFTER_FAILURE_S, PATIENCE_S
from traceadvisor.recording.job_store import SamePhases, agreed
from traceadvisor.recording.loop.own_profiles import own_profiles
from traceadvisor.recording.marking import MARKS
from traceadvisor.recording.notices import remark, report_command, say
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.out_of_memory import says_out_of_memory
from traceadvisor.recording.rank_files import Growing, Part, RankFiles, Whole, Written
from traceadvisor.recording.requests import Requests
from traceadvisor.recording.script.launch import Launch, start_of_this_process
from traceadvisor.recording.stacks.sampler import StackSampler
from traceadvisor.recording.telemetry.sampler import NodeTelemetry
from traceadvisor.system import clocks
from traceadvisor.text.cleaning import clean, clipped, withholding
from traceadvisor.text.documents import cleaned_words
from traceadvisor.text.secrets import REDACTED, secret_words

if TYPE_CHECKING:
    from traceadvisor.recording.loop.loop_capture import LoopCapture
    from traceadvisor.recording.memory_history import MemoryHistory

LONGEST_MESSAGE = 2000
"""Characters of the script's last error in the manifest."""

_ARGUMENTS_REDACTED = (
    "{count} of the command's arguments looked like secrets and were not recorded. "
    "To record them: traceadvisor capture --keep-arguments."
)

_REJECTED = Note(
    "recording-rejected",
    "An early recording was removed: what it took for training steps proved to be none.",
    degrades=False,
)


@frozen
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

    loss: str | None = None
    """Why a part could not be written."""


def _manifest(
    options: CaptureOptions, launch: Launch, command: tuple[str, ...], repository: Repository | None
) -> Manifest:
    """The manifest as it is before the first step."""
    return Manifest(
        FORMAT,
        __version__,
        launch.started_ns,
        command if options.keep_arguments else cleaned_words(command),
        options.schedule,
        launch.world_size,
        job=launch.job,
        repository=repository,
    )


class CaptureSession:
    """One process's part of a capture. Its errors are reported at the end, and never reach the script."""

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        options: CaptureOptions,
        launch: Launch,
        command: tuple[str, ...],
        folder: Path,
        *,
        plan: Plan | None = None,
        repository: Repository | None = None,
    ) -> None:
        """Prepare a capture.

        ``launch``: this process within its job. ``plan``: what the processes of the command share; None if child
        processes are not captured.
        """
        self._options = options
        self._launch = launch
        self._plan = plan
        self._process = getpid()
        self._joined = self._is_child = False
        """Whether this process trains and has its place in a bundle; whether it is a child of the command's process."""
        self._shown = folder
        self.folder = folder.resolve()  # the script may change the working directory
        self._secrets = secret_words(command, os.environ)
        manifest = _manifest(options, launch, command, repository)
        self._redacted = 0 if options.keep_arguments else sum(REDACTED in word for word in manifest.command)
        self._writer = BundleWriter(self.folder, manifest, launch.rank, launch.host)
        self._files = RankFiles(
            self._writer,
            parts=self._parts,
            notes=self._notes,
            lost=self._lost,
            is_recording=lambda: self._loop is not None and self._loop.recorder.recording,
        )
        self._thread = threading.get_ident()  # torch may be imported in another
        self._log = StepLog()
        self._recordings: dict[str, int] = {}
        """The place of the last step before each recording was saved, by its file."""
        self._rejected: list[str] = []
        """Recordings that were removed."""
        self._loop: LoopCapture | None = None
        self._follow: Callable[[Plan | None], None] | None = None
        """Captures a forked child if it trains; None before torch is imported."""
        self._telemetry = NodeTelemetry(self._writer, self._lost, self._log)
        self._stacks: StackSampler | None = None
        self._memory: MemoryHistory | None = None
        self._no_loop = Note("no-torch", "The script did not import torch, so there was no training to record.")
        self._loss: str | None = None
        self._started = (clocks.time_ns(), clocks.perf_counter_ns())
        """Both clocks when the script or the block starts."""

        self._finished: Captured | None = None

    def start(self) -> None:
        """Start to sample the machine, and to follow the training loop once torch is imported."""
        MARKS.heard_by.append(self.step)
        self._started = (clocks.time_ns(), clocks.perf_counter_ns())
        own_profiles.watch()
        os.register_at_fork(after_in_child=self._forked)
        if self._launch.local_rank == 0:
            self._telemetry.start(ranks=self._launch.world_size)
        self._sample_stacks()
        after_torch_import(self._attach, self._torch_failed)

    def start_in_child(self) -> None:
        """Follow the training loop of a child process; it writes nothing before it trains."""
        MARKS.heard_by.append(self.step)
        self._is_child = True
        self._started = start_of_this_process()
        if self._plan:
            self._shown = Path(self._plan.shown).with_name(self.folder.name)
        os.register_at_fork(after_in_child=self._forked)
        self._sample_stacks()
        self._attach()

    def _sample_stacks(self) -> None:
        if self._options.on_demand:  # hooks only
            return
        stacks = StackSampler(self._log, thread=self._thread, is_fetching=self._is_fetching)
        with suppress(RuntimeError):  # the system allows no more threads
            stacks.start()
            self._stacks = stacks

    def _is_fetching(self) -> bool:
        return self._loop is not None and self._loop.listener.is_fetching

    def step(self) -> None:
        """The script marks the end of a training step."""
        if self._loop:
            self._loop.listener.step()

    def finish(self, ending: Ending, exit_code: int, message: str | None = None) -> Captured:
        """The script ended: write everything known. A second call changes nothing.

        ``message`` comes from the script: it is cleaned of secrets before it is written.
        """
        if self._finished:
            return self._finished
        with suppress(ValueError):  # it never started
            MARKS.heard_by.remove(self.step)
        if getpid() != self._process:  # a fork that inherited the functions called at the end
            self._finished = Captured(self._shown, 0, 0, (), None)
            return self._finished
        try:
            with _uninterrupted(), withholding(self._secrets):
                self._finished = self._saved(ending, exit_code, message)
        except Exception as error:  # noqa: BLE001  # the script ends as it would without a capture
            problem = f"the script has replaced or used up what this needs ({type(error).__name__})"
            self._finished = Captured(self._shown, 0, 0, (), problem)
        return self._finished

    def _saved(self, ending: Ending, exit_code: int, message: str | None) -> Captured:
        wall_ns, clock_ns = clocks.time_ns(), clocks.perf_counter_ns()
        if self._plan:
            withdraw()
        as_planned = ending in {Ending.COMPLETED, Ending.STOPPED}
        if self._memory:
            self._memory.close(
                ran_out=message is not None and says_out_of_memory(message), as_planned=as_planned and self._joined
            )
        if self._loop:
            self._loop.close(PATIENCE_S if as_planned else PATIENCE_AFTER_FAILURE_S, failed=ending is Ending.EXCEPTION)
        self._telemetry.stop()
        if self._stacks:
            self._stacks.stop()
        recorded = self._recorded_steps()
        stopped = self._loop is not None and self._loop.stopped
        if stopped and ending is Ending.COMPLETED:
            ending = Ending.STOPPED
        if self._rendezvous and not self._joined and (self._is_child or self._rendezvous.joined()):
            self._writer.close()  # its children trained, or nobody did
            return Captured(self._shown, 0, 0, (), None)
        if not self._joined:
            self._telemetry.move(self.folder, samples=True)
            self._writer.start = RankStart(self._writer.rank, *self._started)
        self._files.finish(
            RankEnding(
                rank=self._writer.rank,
                ending=ending,
                exit_code=exit_code,
                steps=self._training_steps,
                recorded_steps=recorded,
                message=clipped(clean(message[: 8 * LONGEST_MESSAGE]), LONGEST_MESSAGE) if message else None,
                wall_ns=wall_ns,
                clock_ns=clock_ns,
                checkpoint_ns=self._loop.tracker.checkpoint_after_ns if self._loop else None,
            ),
        )
        self._writer.close()
        captured = Captured(
            self._shown,
            self._training_steps,
            recorded,
            self._notes(),
            problem=None if self._writer.published else self._loss,
            stopped=stopped,
            loss=self._loss,
        )
        if self._rendezvous and self._is_child:
            self._leave(self._rendezvous, captured)
        return captured

    @property
    def _rendezvous(self) -> Rendezvous | None:
        return Rendezvous(Path(self._plan.rendezvous)) if self._plan else None

    def _first_step_ended(self) -> None:
        """This process trains: it takes its place in a bundle, and its children take none."""
        if self._joined:
            return
        self._joined = True
        if self._plan:
            withdraw()
        self._launch = self._launch.of_training()
        self._files.start(self._join)

    def _join(self) -> None:
        """Find the bundle of the job; the ranks of a job agree on it."""
        launch, first = self._launch, self.folder
        rendezvous = self._rendezvous
        place = rendezvous.place if rendezvous else first
        chosen = agreed(launch, first, place)
        if chosen.is_visible:
            place = Path(chosen.place)
            if chosen.folder != str(first):
                self._shown = first = Path(chosen.folder)

        def job(number: int) -> str:  # torchrun may start a job again without counting it
            return chosen.job if number == 1 else f"{chosen.job} {number}"

        def is_taken(number: int) -> bool:
            return is_taken_by_another(numbered(first, number), job(number), launch.rank)

        meeting = Rendezvous(place) if rendezvous else None
        if meeting:
            number = meeting.number_of(chosen.job, launch.rank, is_taken)
        else:
            number = next(number for number in itertools.count(1) if not is_taken(number))
        samples = launch.local_rank == 0  # one process of a job and node; ranks without a launcher all have 0
        if samples and meeting:
            samples = meeting.is_first(f"telemetry{number}.{launch.host}")
        self._shown = numbered(self._shown, number)
        self.folder = numbered(first, number)
        self._telemetry.move(self.folder, samples=samples)
        if samples:
            self._telemetry.start_in_bundle(ranks=launch.world_size)
        self._writer.header = msgspec.structs.replace(
            self._writer.header, world_size=launch.world_size, job=job(number)
        )
        self._writer.rank = launch.rank
        self._writer.start = RankStart(launch.rank, *self._started)
        if rendezvous and self._is_child:
            rendezvous.join(Trains(str(self._shown), launch.host, launch.rank))

    def _leave(self, rendezvous: Rendezvous, captured: Captured) -> None:
        """Leave the result for the end of the command."""
        note = remark(captured.notes, captured.recorded_steps, stopped=captured.stopped)
        rendezvous.leave(
            Result(
                folder=str(self._shown),
                place=str(self.folder),
                host=self._launch.host,
                pid=getpid(),
                rank=self._launch.rank,
                steps=captured.steps,
                recorded_steps=captured.recorded_steps,
                note=note,
                problem=captured.problem,
                loss=captured.loss,
            )
        )

    def _torch_failed(self, error: BaseException) -> None:
        """The script could not import torch, and perhaps goes on without it."""
        message = f"The script could not import torch ({named(error)}), so no training was recorded."
        self._no_loop = Note("torch-failed", message)

    def _attach(self) -> None:
        """Follow the training loop; torch is imported by now."""
        try:
            from traceadvisor.recording.loop.loop_capture import LoopCapture  # noqa: PLC0415  # it imports torch
            from traceadvisor.recording.memory_history import MemoryHistory  # noqa: PLC0415  # as above

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
                lost=self._lost,
                trains=self._first_step_ended,
                ranks=SamePhases(self._launch),
                requests=self._requests(),
            )
            self._memory = MemoryHistory(self._options.memory_history, self._save_memory)
        except Exception as error:  # noqa: BLE001  # an unknown version of torch must not stop the script
            self._no_loop = Note(
                "torch-unknown", f"TraceAdvisor cannot follow the training loop with this torch: {error!r}"
            )

    def _requests(self) -> Requests | None:
        """The requests for recordings; None if a schedule tells when to record."""
        if not (self._options.on_demand and self._plan):
            return None
        return Requests(Path(self._plan.rendezvous), self._launch, is_alone=self._plan.is_attached)

    def _recorded_steps(self) -> int:
        """Count the steps in recordings, without those whose steps proved to be none: these are removed."""
        self._rejected = [name for name, place in self._recordings.items() if self._log.is_rejected(place)]
        for name in self._rejected:
            try:
                self._writer.withdraw(name)
            except OSError as error:
                self._lost(error)
        return min(self._loop.window.saved_steps, self._log.count(StepState.RECORDED)) if self._loop else 0

    def _recording_saved(self, name: str, cycle: int, whole: bool) -> None:  # noqa: FBT001  # a callback
        self._recordings[name] = len(self._log) - 1
        self._files.add(BundleFile(name, FileKind.TRACE, self._writer.rank, cycle, self._launch.host, whole))
        if whole and self._writer.published and self._launch.local_rank == 0 and not self._options.on_demand:
            rendezvous = self._rendezvous
            if rendezvous and rendezvous.is_first("ready"):  # once per command
                say(f"report ready: {report_command(self._shown)}")

    def _save_memory(self, write: Callable[[Path], None]) -> None:
        """Write a snapshot of the device's memory, also in the first step; raises OSError if that fails."""
        self._first_step_ended()
        rank = self._writer.rank
        name = f"memory.{rank}.pickle.gz"
        write(self._writer.stage(name))
        self._files.add(BundleFile(name, FileKind.MEMORY, rank, host=self._launch.host))

    def _parts(self) -> Iterator[Part]:
        """Every file of this rank except its recordings."""
        rank, host = self._writer.rank, self._launch.host
        yield Growing(BundleFile(f"steps.{rank}.csv", FileKind.STEPS, rank, host=host), self._log)
        if self._telemetry.sampler:
            yield Written(BundleFile(self._telemetry.name, FileKind.TELEMETRY, host=host))
        if stacks := self._stacks:
            yield Whole(BundleFile(f"stacks.{rank}.jsonl", FileKind.STACKS, rank, host=host), stacks.write)
        if loop := self._loop:
            loop.seen.compilations.look()
            settings = BundleFile(f"settings.{rank}.json", FileKind.SETTINGS, rank, host=host)
            yield Whole(settings, lambda path: path.write_bytes(encode_settings(loop.settings())))
            if batches := loop.batches():
                yield Growing(BundleFile(f"batches.{rank}.csv", FileKind.BATCHES, rank, host=host), batches)
            if samples := loop.loader_samples():
                name = f"loader_stacks.{rank}.jsonl"
                file = BundleFile(name, FileKind.LOADER_STACKS, rank, host=host)
                yield Whole(file, lambda path: write_stacks(path, samples.samples()))

    def _notes(self) -> tuple[Note, ...]:
        """The notes, cleaned: some quote error messages of other libraries."""
        notes = self._loop.notes if self._loop else [self._no_loop]
        notes += self._memory.notes if self._memory else []
        if (sampler := self._telemetry.sampler) and sampler.error:
            notes.append(Note("telemetry-ended", f"Sampling the machine ended early: {sampler.error}"))
        if self._stacks and self._stacks.error:
            message = f"Sampling the Python stack ended early: {self._stacks.error}"
            notes.append(Note("stacks-ended", message, degrades=False))
        if self._rejected:
            notes.append(_REJECTED)
        if self._redacted:
            notes.append(Note("arguments-redacted", _ARGUMENTS_REDACTED.format(count=self._redacted), degrades=False))
        if self._loss:
            notes.append(Note("not-written", f"A part of the capture could not be written: {self._loss}."))
        return tuple(msgspec.structs.replace(note, message=clean(note.message)) for note in notes)

    def _lost(self, error: Exception) -> None:
        """Something could not be written; in any thread. The first loss is reported at once."""
        first = self._loss is None
        if isinstance(error, FileNotFoundError):  # torch removes what it cannot write whole, and does not say why
            reason = "a recording could not be written; the disk may be full"
        else:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
        self._loss = self._loss or clean(f"{self._shown}: {reason}")
        if first and self._joined:
            say(f"a part of the capture cannot be written: {self._loss}. The training goes on.")

    @property
    def _training_steps(self) -> int:
        timed = len(self._log) - self._log.count(StepState.OTHER)
        return timed + self._loop.tracker.untimed_steps if self._loop else 0

    def _forked(self) -> None:
        """A forked child has no part in the capture, unless it trains and this process does not."""
        if self._stacks:
            self._stacks.forked()
        if self._loop:
            self._loop.stop_listening()
        if self._telemetry.sampler:
            self._telemetry.sampler.leave_to_parent()
        self._files.leave_to_parent()
        with suppress(ValueError):  # a mark is for the capture of the child
            MARKS.heard_by.remove(self.step)
        if self._follow and not self._joined and not self._finished:
            self._follow(self._plan)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not keep this process from saving what the first one ended."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
