"""Whether the step of a run changed: its figure in each capture, and the verdict on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import exp, hypot, isfinite, log
from statistics import fmean

from traceadvisor.comparing.pairing import Capture, LaneKey, PairedRun, distinct
from traceadvisor.comparing.parts import KnownChange, cpu_change, is_explained, most_threads, noise_by_parts, witness
from traceadvisor.comparing.signs import changed_parts
from traceadvisor.comparing.verdict import SHORT_NOISE, SHORT_S, RunComparison, compare_runs
from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import FindingChange, LikelyBecause, Measure, StepChange, WorkChange
from traceadvisor.model.explanation import StepExplanation
from traceadvisor.model.report import Recording
from traceadvisor.model.run import undisturbed_count
from traceadvisor.model.verdict import BUSY_SHARE, USUAL_NOISE, Verdict, VerdictCertainty


def step_change(
    run: PairedRun,
    history: Sequence[Capture],
    work: WorkChange | None = None,
    explained: StepExplanation | None = None,
    findings: Iterable[FindingChange] = (),
) -> StepChange | None:
    """The change of the step, by the captures of both sides and of earlier runs; None where a side has no step time.

    Args:
        run: the captures of both sides.
        history: earlier captures; those of another script or device are left out.
        work: what differs in the work of a step. Different programs have no verdict.
        explained: the difference of the recorded step, whose parts differ by chance in their own ways.
        findings: the findings of both sides.
    """
    work = work or WorkChange()
    known = KnownChange(explained, max((one.fixed_share for one in findings), default=0.0))
    measure = _measure(run, work)
    is_scaled = measure in _STEP_OF and (measure is Measure.RECORDED_SAMPLE or not _counts_samples(run))
    grown = work.growth or 1.0 if is_scaled else 1.0
    compared = _STEP_OF[measure] if is_scaled else measure
    sides = [_figures(side, run.lanes, compared) for side in (run.base, run.head)]
    if not all(sides):
        return None
    sides[1] = [figure / grown for figure in sides[1]]
    counted = (*run.head, *(run.base if len(run.base) > 1 else ()))  # one capture has no spread of its own
    alike = distinct(_alike(history, run), known=counted)
    earlier = _figures(alike, run.lanes, compared)
    within, noise = _error_within(run), _noise(run, measure, work, explained)
    found = compare_runs(sides[0], sides[1], history=earlier, within=within, noise=noise)
    judged = _judged(found, run, work, known, noise)
    found = judged.found
    base_ns = exp(fmean(map(log, sides[0])))
    steps = [_figures(side, run.lanes, _STEP_OF.get(measure, measure)) for side in (run.base, run.head)]
    return StepChange(
        verdict=found.verdict,
        certainty=found.certainty,
        measure=measure,
        base_ns=base_ns,
        head_ns=base_ns * found.ratio,
        ratio=found.ratio,
        ratio_low=found.low,
        ratio_high=found.high,
        smallest_visible_share=found.smallest_visible if isfinite(found.smallest_visible) else None,
        captures_needed=found.captures_needed,
        base_captures=len(sides[0]),
        head_captures=len(sides[1]),
        history_captures=len(earlier),
        within_share=within,
        noise_share=found.noise,
        base_step_ns=exp(fmean(map(log, steps[0]))),
        head_step_ns=exp(fmean(map(log, steps[1]))),
        because=judged.because,
        is_crowded=judged.is_crowded,
        witness_ratio=judged.witness,
        cpu=cpu_change(run, work.growth or 1.0, known) if load_caution(run) else None,
    )


def _noise(run: PairedRun, measure: Measure, work: WorkChange, explained: StepExplanation | None) -> float:
    """The difference of identical runs that is assumed where the captures are too few to tell."""
    is_recorded = measure in (Measure.RECORDED_STEP, Measure.RECORDED_SAMPLE)
    noise = USUAL_NOISE if is_recorded or not _is_short(run) else SHORT_NOISE
    is_alike = work.program is None and not work.devices
    return noise_by_parts(explained, noise) if explained and is_alike else noise


def _error_within(run: PairedRun) -> float | None:
    """The standard error of the ratio within the captures; None with too few steps."""
    base, head = (_error(side, run.lanes) for side in (run.base, run.head))
    return None if base is None or head is None else hypot(base, head)


_STEP_OF = {
    Measure.UNDISTURBED_SAMPLE: Measure.UNDISTURBED_STEP,
    Measure.RECORDED_SAMPLE: Measure.RECORDED_STEP,
}


@frozen
class _Judged:
    """A comparison with what the parts of the step, and a busy machine, say of it."""

    found: RunComparison
    because: LikelyBecause | None = None
    is_crowded: bool = False
    witness: float | None = None


def _judged(found: RunComparison, run: PairedRun, work: WorkChange, known: KnownChange, noise: float) -> _Judged:
    open_ = replace(found, verdict=Verdict.INCONCLUSIVE, certainty=VerdictCertainty.NOT_SHOWN)
    if work.is_other_program or work.products:
        return _Judged(open_)
    if found.low is not None:
        return _Judged(found)
    because = LikelyBecause.FAR if found.certainty is VerdictCertainty.LIKELY else None
    if because is None and work.is_same and known.explained and isfinite(found.smallest_visible):
        changed = changed_parts(run.base, run.head)
        because = LikelyBecause.EXPLAINED if is_explained(known.explained, changed, found.ratio, noise) else None
    is_crowded = because is not None and _load_explains(run)
    seen = witness(run, found.ratio, known) if is_crowded else None
    if because is None or (is_crowded and seen is None):
        return _Judged(open_, None, is_crowded)
    called = Verdict.FASTER if found.ratio < 1 else Verdict.SLOWER
    likely = replace(found, verdict=called, certainty=VerdictCertainty.LIKELY)
    return _Judged(likely, because if seen is None else LikelyBecause.WITNESSED, witness=seen)


def _measure(run: PairedRun, work: WorkChange) -> Measure:
    """Undisturbed steps where all captures timed them; per sample where the samples per step are known to differ."""
    lanes = [capture.lanes[key] for capture in (*run.base, *run.head) for key in run.lanes if key in capture.lanes]
    grows = work.growth not in (None, 1.0)
    if not all(one.undisturbed_median_step_ns for lane in lanes for one in lane):
        return Measure.RECORDED_SAMPLE if grows else Measure.RECORDED_STEP
    return Measure.UNDISTURBED_SAMPLE if grows else Measure.UNDISTURBED_STEP


def _counts_samples(run: PairedRun) -> bool:
    """Whether the samples of a step are known, not only how many more there are on a side."""
    return all(one.samples_per_s for side in (run.base, run.head) for capture in side for one in capture.recordings)


def _figures(captures: Sequence[Capture], lanes: Sequence[LaneKey], measure: Measure) -> list[float]:
    """The figure of each capture, the geometric mean over its ranks.

    Only captures with all ranks count. If there are none, all recordings together count as one capture: ranks that
    were read from several files are no repetitions of one another.
    """
    by_capture = [
        {key: figures for key in lanes if (figures := _known(capture.lanes.get(key, ()), measure))}
        for capture in captures
    ]
    complete = [figures for figures in by_capture if len(figures) == len(lanes)]
    if complete:
        return [exp(fmean(log(fmean(lane)) for lane in figures.values())) for figures in complete]
    rest = [figure for figures in by_capture for lane in figures.values() for figure in lane]
    return [exp(fmean(map(log, rest)))] if rest else []


def _known(recordings: Iterable[Recording], measure: Measure) -> list[float]:
    figures = (_figure(recording, measure) for recording in recordings)
    return [figure for figure in figures if figure is not None and figure > 0]


def _figure(recording: Recording, measure: Measure) -> float | None:
    """Nanoseconds per step, or per sample."""
    match measure:
        case Measure.UNDISTURBED_STEP:
            return recording.undisturbed_median_step_ns
        case Measure.UNDISTURBED_SAMPLE:
            return 1e9 / recording.samples_per_s if recording.samples_per_s else None
        case Measure.RECORDED_STEP | Measure.RECORDED_SAMPLE:
            return recording.step_ns


def _is_short(run: PairedRun) -> bool:
    """Whether the undisturbed steps of a capture took less than :data:`SHORT_S` together, as far as they are known."""
    recordings = (one for side in (run.base, run.head) for capture in side for one in capture.recordings)
    timed = (
        undisturbed_count(one.captured) * (one.undisturbed_median_step_ns or 0.0) for one in recordings if one.captured
    )
    return any(0 < ns < SHORT_S * 1e9 for ns in timed)


def _error(captures: Iterable[Capture], lanes: Sequence[LaneKey]) -> float | None:
    """Half the width of the interval within the captures of a side, as a share: the largest that any recording has.

    Recordings of one capture that differ by more than that count with their range.
    """
    largest: float | None = None
    for capture in captures:
        for key in lanes:
            lane = capture.lanes.get(key, ())
            known = [one.step_error_share for one in lane if one.step_error_share is not None]
            if len(known) < len(lane):
                return None
            steps = [log(one.step_ns) for one in lane if one.step_ns]
            apart = (max(steps) - min(steps)) / 2 if steps else 0.0
            largest = max((largest or 0.0, apart, *known))
    return largest


def _alike(captures: Iterable[Capture], run: PairedRun) -> Iterator[Capture]:
    """Those of the same script and device."""
    sides = (*run.base, *run.head)
    devices = {_device(one) for side in sides for one in side.recordings}
    scripts = {side.script for side in sides}
    for capture in captures:
        if capture.script in scripts and {_device(one) for one in capture.recordings} <= devices:
            yield capture


def _device(recording: Recording) -> str | None:
    return recording.device.name if recording.device else None


_CROWDED_SHARE = 0.5
"""Share of which a step is not trusted: with 0.6 to 0.75 of two cores taken, identical runs differed 4 to 7 times."""


@frozen
class _OtherLoad:
    """Cores that other programs keep busy, on average over undisturbed steps."""

    cores: float
    of_cores: int

    @property
    def share(self) -> float:
        """Share of all cores, 0..1."""
        return self.cores / self.of_cores


def load_caution(run: PairedRun) -> str | None:
    """A sentence that names the side with a busy machine; None if neither machine was, or neither was sampled."""
    loads = [_other_load(side) for side in (run.base, run.head)]
    if not any(load and load.share >= BUSY_SHARE for load in loads):
        return None
    base, head = (f"{load.cores:.1f} of {load.of_cores} cores" if load else "unknown" for load in loads)
    with_one_thread = ", or capture both sides with OMP_NUM_THREADS=1" if most_threads(run) > 1 else ""
    return f"Other programs used the CPU: {base} in BASE, {head} in HEAD. Repeat on an idle machine{with_one_thread}."


def order_caution(run: PairedRun) -> str | None:
    """A sentence if several captures of a side all came before those of the other; None if not, or if unknown."""
    if len(run.base) + len(run.head) < 3:  # two cannot be in turn
        return None
    sides = [[one.recorded_wall_ns for capture in side for one in capture.recordings] for side in (run.base, run.head)]
    base, head = ([span for span in side if span is not None] for side in sides)
    if not base or not head or (max(base) >= min(head) and max(head) >= min(base)):
        return None
    first, then = ("BASE", "HEAD") if max(base) < min(head) else ("HEAD", "BASE")
    return (
        f"All captures of {first} came before those of {then}: a machine that became slower or faster meanwhile looks "
        "like a change. Captures in turn exclude that; if the code differs, keep both versions of it."
    )


def _load_explains(run: PairedRun) -> bool:
    """Whether other programs took most cores from a side, or more from one: that alone may change the step.

    So do fewer cores that threads of one operator lack: the others wait for the one without a core.
    """
    found = [load for side in (run.base, run.head) if (load := _other_load(side))]
    loads, threads = [load.share for load in found], most_threads(run)
    differs = len(loads) == 2 and abs(loads[0] - loads[1]) >= BUSY_SHARE
    is_on_cpu = not any(one.device for side in (run.base, run.head) for capture in side for one in capture.recordings)
    lacks = any(load.share >= BUSY_SHARE and load.cores + threads > load.of_cores for load in found)
    return differs or max(loads, default=0.0) >= _CROWDED_SHARE or (is_on_cpu and threads > 1 and lacks)


def _other_load(captures: Iterable[Capture]) -> _OtherLoad | None:
    """The load in the busiest capture; None if no capture sampled it."""
    loads = []
    for recording in (one for capture in captures for one in capture.recordings):
        run, window = recording.captured, recording.telemetry
        of_cores = run.telemetry.cpu_count if run and run.telemetry else None
        cores = window.others_cores(of_cores) if window else None
        if cores is not None and of_cores:
            loads.append(_OtherLoad(cores, of_cores))
    return max(loads, key=lambda load: load.share, default=None)
