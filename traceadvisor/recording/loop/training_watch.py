"""Everything of a capture that needs torch: hooks, tracker, window, recorder and settings, put together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

import msgspec
import torch
from torch.optim import Optimizer

from traceadvisor.bundle.layout import Note, Settings
from traceadvisor.recording.loop.gc_pauses import GcWatch
from traceadvisor.recording.loop.hooks import Hooks
from traceadvisor.recording.loop.loaders import KnownLoader, LoaderRegistry
from traceadvisor.recording.loop.loop_watch import LoopWatch
from traceadvisor.recording.loop.profiler import TorchRecorder, is_profiling
from traceadvisor.recording.loop.step_log import StepLog
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.loop.window import Window
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.settings import SettingsSeen


class TrainingWatch:
    """Listens to a training loop in one thread, until it is closed."""

    def __init__(  # noqa: PLR0913  # it puts together what each of them is for
        self,
        options: CaptureOptions,
        log: StepLog,
        host: str,
        *,
        thread: int,
        stage: Callable[[str], Path],
        saved: Callable[[str, int], None],
    ) -> None:
        self._saved = saved
        """Told of each recording: the file's name and the cycle."""
        self._notes: list[Note] = []
        self._seen = SettingsSeen()
        self._gc = GcWatch()
        self._recorder = TorchRecorder(options, host, stage=stage, saved=self._recording_saved)
        self._window = Window(options.schedule, self._recorder)
        self._tracker = LoopTracker(self._window, log, trained_by=self._first_step_ended)
        loaders = LoaderRegistry()
        self._watch = LoopWatch(self._tracker, loaders, thread=thread, stepped=self._stepped, failed=self._failed)
        if is_profiling():
            self.profiler_made()
        self._hooks = Hooks(self._watch, loaders, self)

    @property
    def notes(self) -> list[Note]:
        """What a reader must know."""
        return [*self._window.notes, *self._notes]

    def settings(self) -> Settings:
        """What is known of the settings now."""
        pauses = self._gc.pauses()
        if pauses is None:
            return self._seen.settings()
        share = pauses.total_ns / max(pauses.watched_ns, 1)
        return msgspec.structs.replace(self._seen.settings(), gc_share=share, gc_longest_ns=pauses.longest_ns)

    def step(self) -> None:
        """The script says that a step ended."""
        self._watch.step()

    def close(self) -> None:
        """The script ended: keep what was recorded."""
        self._hooks.remove()
        self._gc.stop()
        if self._watch.active:
            self._watch.active = False
            try:
                self._tracker.finish()
                self._window.finish()
            except Exception as error:  # noqa: BLE001  # the step times are still worth writing
                self._failed(error)

    def stop_listening(self) -> None:
        """In a forked child: whatever loops there is not the training loop."""
        self._watch.active = False

    def scaler_used(self) -> None:
        """A gradient scaler that is enabled stepped."""
        self._seen.scaler_used()

    def autocast_entered(self, dtype: torch.dtype) -> None:
        """Autocast became active."""
        self._seen.autocast_entered(dtype)

    def anomaly_detection_enabled(self) -> None:
        """Autograd begins to look for its own errors."""
        self._seen.anomaly_detection_enabled()

    def profiler_made(self) -> None:
        """The script has a profiler of its own: two cannot run at once, and its own comes first."""
        if self._recorder.making or not self._watch.active:
            return
        try:
            self._window.give_way(
                "own-profiler", "The script uses a profiler of its own, so nothing was recorded; steps are timed."
            )
        except Exception as error:  # noqa: BLE001  # the script goes on, whatever it is
            self._failed(error)

    def _stepped(self, optimizer: Optimizer) -> None:
        self._seen.stepped(optimizer, own_profiler=is_profiling() and not self._recorder.recording)

    def _first_step_ended(self, loader: Hashable | None) -> None:
        self._gc.start()
        if isinstance(loader, KnownLoader):
            self._seen.loader = loader.settings
            self._window.settle_for(loader.workers, loader.prefetch)
        else:
            self._window.settle_for(0, 0)

    def _recording_saved(self, name: str, cycle: int, *, valid: bool) -> None:
        if not valid:
            self._notes.append(Note("trace-repaired", f"{name} is not valid JSON; it has to be repaired when read."))
        self._saved(name, cycle)

    def _failed(self, error: Exception) -> None:
        """Recording failed; a profiler left running would slow the rest of the run."""
        self._notes.append(Note("capture-failed", f"Recording ended early: {type(error).__name__}: {error}"))
        try:
            self._recorder.discard()
        except Exception as second:  # noqa: BLE001  # it failed in stopping, too
            self._notes.append(Note("capture-failed", f"The profiler did not stop: {second}"))
