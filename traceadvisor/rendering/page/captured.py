"""Recordings of a capture by what they share: several are of one rank's run, and several ranks ran on one machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from traceadvisor.model.report import Recording
from traceadvisor.model.run import Run
from traceadvisor.rendering.charts.clock import RunClock


@dataclass(frozen=True, slots=True)
class CapturedRecordings:
    """Recordings with the run that they are of; where runs share a machine, the first one's."""

    recordings: tuple[Recording, ...]
    run: Run

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the recordings."""
        return tuple(recording.id for recording in self.recordings)

    @property
    def step_clock(self) -> RunClock | None:
        """From the start of the run's first step to the end of its last; None where no step was timed."""
        return self._clock(_ends_of_steps(self.run))

    @property
    def sample_clock(self) -> RunClock | None:
        """From the first sample to the last; None without samples."""
        return self._clock(_ends_of_samples(self.run))

    def _clock(self, moments: Iterator[int]) -> RunClock | None:
        ends = list(moments)
        if not ends or max(ends) <= min(ends):
            return None
        recorded = {window for recording in self.recordings if (window := recording.recorded_wall_ns)}
        return RunClock(min(ends), max(ends), tuple(sorted(recorded)))


def by_run(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, those of one rank together."""
    return _grouped(recordings, lambda recording, _: (recording.path.parent, recording.worker))


def by_machine(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, those with the same samples together."""
    return _grouped(
        recordings, lambda recording, run: (recording.path.parent, run.telemetry.host if run.telemetry else None)
    )


def _grouped(
    recordings: Sequence[Recording], key: Callable[[Recording, Run], Hashable]
) -> tuple[CapturedRecordings, ...]:
    groups: dict[Hashable, list[Recording]] = {}
    runs: dict[Hashable, Run] = {}
    for recording in recordings:
        if recording.captured is not None:
            shared = key(recording, recording.captured)
            groups.setdefault(shared, []).append(recording)
            runs.setdefault(shared, recording.captured)
    return tuple(CapturedRecordings(tuple(group), runs[shared]) for shared, group in groups.items())


def _ends_of_steps(run: Run) -> Iterator[int]:
    """Wall clock."""
    for step in run.steps:
        yield step.start_ns
        yield step.start_ns + step.duration_ns


def _ends_of_samples(run: Run) -> Iterator[int]:
    """Wall clock."""
    if run.telemetry is not None:
        series = (run.telemetry.node, run.telemetry.processes, *(device.series for device in run.telemetry.devices))
        for one in series:
            if one.time_ns.size:
                yield int(one.time_ns[0])
                yield int(one.time_ns[-1])
