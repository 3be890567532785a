"""The part of a capture that needs torch: hooks, tracker, window, recorder and settings together."""

from __future__ import annotations

import dataclasses
import os
import shlex
import threading
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from traceadvisor.bundle.batches import BatchLog
from traceadvisor.bundle.layout import Note
from traceadvisor.bundle.settings import RecordedSettings
from traceadvisor.bundle.steps import StepLog
from traceadvisor.errors import named
from traceadvisor.recording.devices import PATIENCE_S, POLL_S
from traceadvisor.recording.job_store import SamePhases
from traceadvisor.recording.loop.batch_clocks import BatchClocks
from traceadvisor.recording.loop.checkpoints import CheckpointHooks
from traceadvisor.recording.loop.feeds import FeedLoop
from traceadvisor.recording.loop.forks import end_without_profiler
from traceadvisor.recording.loop.graphs import GraphSteps
from traceadvisor.recording.loop.held_events import MOST_STEPS, HeldEvents, LateClock
from traceadvisor.recording.loop.hooks import Hooks
from traceadvisor.recording.loop.listener import LoopListener
from traceadvisor.recording.loop.loaders import KnownLoader, LoaderRegistry
from traceadvisor.recording.loop.main_thread import MainThreadCall, wake_main_thread
from traceadvisor.recording.loop.own_profiles import own_profiles
from traceadvisor.recording.loop.profiler import TorchRecorder, has_profiled, is_profiling, paths_of_code_are_text
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.loop.window import Window
from traceadvisor.recording.loop.worker_stacks import LoaderSamples
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.requests import Requests
from traceadvisor.recording.settings import SettingsSeen
from traceadvisor.recording.stopping import Stopper
from traceadvisor.system import clocks

ROOM_PATIENCE_S = 30.0
"""Longest time for which a thread that starts a profiler waits until the training thread has stopped its own."""

OWN_PROFILER = "own-profiler"
"""Code of the note on the script's own profiler."""


_LACKS_DEVICES = Note(
    "device-missing",
    "The profiler first ran before the training used its device. torch 2.13 and later then record the CPU only. Start "
    "later: give --skip-first the number of steps before the device is used.",
)


_LACKS_STACKS = Note(
    "compiled",
    "The training uses torch.compile, so operators were recorded without Python stacks, which slow down compiled "
    "steps most. Samples still show the lines. To record stacks: traceadvisor capture --stacks.",
    degrades=False,
)

_IS_PROFILED = Note(
    "own-profile",
    "The script sets a profile function of its own, as cProfile and other profilers do, so operators were recorded "
    "without Python stacks. Samples still show the lines.",
    degrades=False,
)

_COUNTS_THREADS = Note(
    "profile-counts-threads",
    "The script used cProfile. Since Python 3.12 it takes the calls of all threads for those of one, also the threads "
    "of a capture, so its times per function are wrong. Profile the script without a capture.",
    degrades=False,
)


class LoopCapture:
    """Follows and records the training loop of one thread until it is closed."""

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        options: CaptureOptions,
        log: StepLog,
        host: str,
        *,
        thread: int,
        stage: Callable[[str], Path],
        saved: Callable[[str, int, bool], None],
        lost: Callable[[Exception], None],
        trains: Callable[[], None],
        ranks: SamePhases | None = None,
        requests: Requests | None = None,
    ) -> None:
        self._log = log
        self._saved = saved
        """Called with the file name and cycle of each recording, and whether its window is whole."""
        self._trains = trains
        """Called at the end of the first training step."""
        self._notes: list[Note] = []
        self._own_trace: str | None = None
        """Last file that the script's own profiler exported, once the capture gave way to it."""
        options, self.seen = self._with_stacks_that_are_text(options), self._settings_seen()
        self.recorder = TorchRecorder(options, host, stage=stage, saved=self._recording_saved, lost=lost)
        self.window = Window(options.schedule, self.recorder, ranks, requests)
        self.window.prepares = self.seen.look_at_numbers
        clock = LateClock()
        self.tracker = LoopTracker(
            self.window, log, trained=self._first_step_ended, clock=clock.steady_ns, wall_clock=clock.wall_ns
        )
        self.tracker.compiled_ns = self.seen.compilations.total_ns
        self.tracker.looked_ns = lambda: self.seen.results.span_ns
        self._events = HeldEvents(
            self.tracker,
            self.window,
            clock,
            most_steps=0 if options.stop_after_window else MOST_STEPS,
            may_wait=lambda: self.seen.is_settled and self._clocks.is_settled,
        )
        self._clocks = BatchClocks(thread, sampled=options.worker_samples, drawn=self.seen.results.drawn)
        self._loader: KnownLoader | None = None
        self._iterators: dict[KnownLoader, weakref.ref[object]] = {}
        """The latest iterator of each loader; of a feed, the outer one."""
        loaders, graphs = LoaderRegistry(self._iterator_found, self.seen.constructors), GraphSteps()
        parts = self._events, self.tracker, loaders, self._clocks
        self.listener = LoopListener(*parts, thread=thread, graphs=graphs, seen=self.seen, failed=self._failed)
        self._thread = thread
        stopper = Stopper(self.window, trains=lambda: not self.listener.infers)
        self._stopper = stopper if options.stop_after_window else None
        self.listener.after_event = self._stopper
        self._calls = [MainThreadCall(lambda: self._interrupt(self.window.end_at_once))]
        """Kept, because the interpreter may make them late."""
        if self._is_main:
            self.recorder.overdue = self._calls[0].ask
        if is_profiling():
            self._give_way()
        self._hooks, self._checkpoints = self._hooked(loaders, graphs)

    def _hooked(self, loaders: LoaderRegistry, graphs: GraphSteps) -> tuple[Hooks, CheckpointHooks]:
        """Change torch and the libraries around it, so that the listener hears of their calls."""
        starts, exported = self._profiler_starts, self._exported
        hooks = Hooks(self.listener, loaders, self.seen, graphs=graphs, profiler_starts=starts, exported=exported)
        own_profiles.watch()
        own_profiles.changes = self._profile_function_changes
        return hooks, CheckpointHooks(self.listener.saved)

    def _settings_seen(self) -> SettingsSeen:
        return SettingsSeen(lambda: is_profiling() and not self.recorder.recording, lambda: self.recorder.is_running)

    def _with_stacks_that_are_text(self, options: CaptureOptions) -> CaptureOptions:
        if options.stacks is False or paths_of_code_are_text():
            return options
        self._notes.append(Note("no-stacks", "No Python stacks: a path of the code is not UTF-8.", degrades=False))
        return dataclasses.replace(options, stacks=False)

    @property
    def notes(self) -> list[Note]:
        """Remarks for the report."""
        stopper = self._stopper.notes if self._stopper else []
        profile = [_COUNTS_THREADS] if self.seen.is_profile_of_all_threads else []
        return [*map(self._with_own_trace, self.window.notes), *self.tracker.notes, *self._notes, *stopper, *profile]

    @property
    def stopped(self) -> bool:
        """Whether the script was ended because its recordings are saved."""
        return self._stopper is not None and self._stopper.stopped

    def batches(self) -> BatchLog | None:
        """The batches of the training loader that were timed; None without any."""
        return self._clocks.log_of(self._loader)

    def loader_samples(self) -> LoaderSamples | None:
        """The samples of the training loader's workers; None without any."""
        return self._clocks.samples_of(self._loader)

    def settings(self) -> RecordedSettings:
        """The settings of the run, with the loops over each data loader."""
        loops = self.listener.loops.result(self._loader, self._clocks.log_of)
        return dataclasses.replace(self.seen.settings(), loops=loops)

    def close(self, patience_s: float = PATIENCE_S, *, failed: bool = False) -> None:
        """The script ended: save what was recorded. A device that does not finish in time is not waited for."""
        self.recorder.patience_s = patience_s
        own_profiles.changes = None
        self._hooks.remove()
        self._checkpoints.remove()
        self._clocks.remove()
        self.seen.gc.stop()
        if self.listener.active:
            self.listener.active = False
            try:
                self.listener.hear_of_backward()
                self._events.now(self.tracker.finish)
                self.window.finish(failed=failed)
                self._log.count_last(self.window.counted_late)
            except Exception as error:  # noqa: BLE001  # the step times are still worth writing
                self._failed(error)

    def stop_listening(self) -> None:
        """Ignore loops from now on, as in a forked child."""
        self.listener.active = False
        self._clocks.remove()
        if has_profiled():
            end_without_profiler()

    def _profiler_starts(self, is_torchs: bool) -> None:  # noqa: FBT001  # a callback
        """A profiler is about to start: of a compiler that measures what it made, or of the script.

        That of the script takes precedence: two cannot run at once.
        """
        if self.recorder.making or not self.listener.active:
            return
        if not self._in_training_thread(self._make_room if is_torchs else self._give_way):
            self.recorder.abandon()
            self.window.give_way(
                "capture-failed",
                "Recording ended early: another thread started a profiler, and the training thread did not answer.",
            )

    def _profile_function_changes(self) -> None:
        """The script is about to set a profile function, in any thread: torch would remove it when it stops."""
        may_answer = self._is_main or threading.get_ident() == self._thread
        if not (self.recorder.has_stacks and self.listener.active and may_answer):
            return
        if not self._in_training_thread(partial(self._make_room_for, "the script set a profile function")):
            own_profiles.changes = None  # one long wait is enough

    def _give_way(self) -> None:
        self._interrupt(
            lambda: self.window.give_way(
                OWN_PROFILER,
                "The script uses its own profiler, so TraceAdvisor stopped recording; steps are still timed.",
            )
        )

    def _make_room(self) -> None:
        self._make_room_for("a compiler measured kernels with the profiler")

    def _make_room_for(self, why: str) -> None:
        self._interrupt(lambda: self.window.interrupt(why))

    def _interrupt(self, end: Callable[[], None]) -> None:
        if not self.listener.active:
            return
        try:
            interrupted = partial(self.tracker.interrupted, end)
            if threading.get_ident() == self._thread:
                self._events.now(interrupted)
            else:
                interrupted()
        except Exception as error:  # noqa: BLE001  # the script goes on after any error
            self._failed(error)

    def _in_training_thread(self, act: Callable[[], None]) -> bool:
        """Call a function there that ends the recording; whether it did in time.

        torch stops a profiler only where it was started. If the training thread does not answer, another thread that
        starts a profiler ends the recording. To stop it after that would end the process.
        """
        if threading.get_ident() == self._thread or not self.recorder.recording:
            act()
            return True
        call = MainThreadCall(act)
        self._calls.append(call)
        if self._is_main:
            call.ask()
            if not _within(ROOM_PATIENCE_S / 30, lambda: not self.recorder.recording):
                wake_main_thread()
        return _within(ROOM_PATIENCE_S, lambda: not self.recorder.recording)

    @property
    def _is_main(self) -> bool:
        """Whether the training thread is the main thread."""
        return self._thread == threading.main_thread().ident

    def _exported(self, path: str) -> None:
        """A profiler of the script, or of this capture before it gave way, exported a trace."""
        if any(note.code == OWN_PROFILER for note in self.window.notes):
            self._own_trace = path

    def _with_own_trace(self, note: Note) -> Note:
        """The note on the script's own profiler, with the command that reads its trace."""
        if note.code != OWN_PROFILER:
            return note
        where = "TRACE" if self._own_trace is None else shlex.quote(folder_of_traces(self._own_trace))
        return replace(note, message=f"{note.message} To read its recording: traceadvisor report {where}")

    def _first_step_ended(self, loader: Hashable | None) -> None:
        self._trains()
        self.seen.gc.start()
        self.seen.ask_for_devices()
        if isinstance(loader, KnownLoader):
            self._loader, self.seen.loader = loader, loader.settings
            self.seen.constructed(loader.constructed)
            self.window.settle_for(loader.workers, loader.prefetch, loader.settings.batch_count)
        else:
            self.window.settle_for(0, 0)

    def _iterator_found(self, iterator: object, loader: KnownLoader) -> None:
        """The first batch of an iterator is fetched. Once nobody holds it, the loop over its loader is over."""
        self._clocks.knows(iterator, loader)
        latest = self._iterators.get(loader)
        if isinstance(iterator, FeedLoop) or not (latest and isinstance(latest(), FeedLoop)):
            self._iterators[loader] = weakref.ref(iterator, lambda _: self._iterator_dropped(loader))

    def _iterator_dropped(self, loader: KnownLoader) -> None:
        self._iterators.pop(loader, None)
        self._events.loader_left(loader)

    def _recording_saved(self, name: str, cycle: int, *, valid: bool, whole: bool) -> None:
        if not valid:
            self._notes.append(Note("trace-repaired", f"{name} is not valid JSON; reading it includes a repair."))
        for is_lacking, note in (
            (self.recorder.lacks_devices, _LACKS_DEVICES),
            (self.recorder.lacks_stacks, _LACKS_STACKS),
            (self.recorder.is_profiled, _IS_PROFILED),
        ):
            if is_lacking and note not in self._notes:
                self._notes.append(note)
        self._saved(name, cycle, whole)

    def _failed(self, error: Exception) -> None:
        """Recording failed: stop the profiler, which would slow the rest of the run."""
        self._notes.append(Note("capture-failed", f"Recording ended early: {named(error)}"))
        try:
            self.recorder.discard()
        except Exception as second:  # noqa: BLE001  # stopping failed, too
            self._notes.append(Note("capture-failed", f"The profiler did not stop: {second}"))


def _within(patience_s: float, is_done: Callable[[], bool]) -> bool:
    """Whether something is done in time."""
    due_s = clocks.monotonic() + patience_s
    while not (done := is_done()) and clocks.monotonic() < due_s:
        clocks.sleep(POLL_S)
    return done


def folder_of_traces(path: str) -> str:
    """The log directory of a trace that TensorBoard finds by its name, or else the trace itself."""
    folder, name = os.path.split(path)
    return (folder or ".") if ".pt.trace.json" in name else path
