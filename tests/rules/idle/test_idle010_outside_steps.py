from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured, waiting
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Certainty, Found, Skipped
from traceadvisor.model.run import LoaderLoops, StepState, TimedStep
from traceadvisor.model.samples import SampledFrame, TimedSample
from traceadvisor.rules.idle.idle010_outside_steps import OutsideSteps

US = 1000


def _captured(
    folder: Path,
    *,
    validation_us: float = 0,
    epoch_checkpoint_us: float = 0,
    checkpoint_us: float = 0,
    slow_us: float = 0,
    epochs: int = 3,
    builder: TraceBuilder | None = None,
) -> Captured:
    """Epochs of ten steps of 100 us, each with a validation; checkpoints at its end and in the fifth step.

    The sixth step of an epoch takes ``slow_us`` more.
    """
    steps: list[TimedStep] = []
    at = 0

    def add(length_us: float, state: StepState, saved_us: float, begun_us: float = 0) -> None:
        nonlocal at
        length = round(length_us * US)
        wall, begun, saved = 10**18 + at, round(begun_us * US), round(saved_us * US)
        steps.append(TimedStep(len(steps), wall, length, 0, 1, state, begun, at, saved))
        at += length

    for _ in range(epochs):
        for number in range(10):
            saved = checkpoint_us if number == 4 else 0
            add(100 + saved + slow_us * (number == 5), StepState.PLAIN, saved, begun_us=1 if number == 0 else 0)
        if validation_us or epoch_checkpoint_us:
            add(validation_us + epoch_checkpoint_us, StepState.OTHER, epoch_checkpoint_us)
    return Captured(builder or waiting(2), folder).with_run(steps=tuple(steps))


def test_a_long_validation_is_found_with_its_share_of_the_loop(tmp_path: Path) -> None:
    found = _captured(tmp_path, validation_us=1000).finding(OutsideSteps())
    # Half of the loop but for the two microseconds of loader starts that lie in validation.
    assert evidence(found, "share of the training time in validation and checkpoints") == pytest.approx(0.5, abs=1e-3)
    assert evidence(found, "loops without training steps") == 3
    assert found.saving.high_ns == pytest.approx(100 * US, rel=2e-3)  # as much again as the step
    assert found.whole_ns == pytest.approx(200 * US, rel=2e-3)
    assert found.saving.certainty is Certainty.LIMIT
    assert found.of_run
    assert found.fix.summary.startswith(
        "If this loop validates, run it less often, or on part of the data"
    )  # the size of its batches is unknown


def test_workers_that_start_and_stop_for_each_validation_are_no_validation(tmp_path: Path) -> None:
    loops = LoaderLoops(
        workers=2,
        keeps_workers=False,
        trains=False,
        count=2,
        start_ns=500 * US,
        sampler_ns=0,
        worker_start_ns=400 * US,
        worker_stop_ns=1000 * US,
        first_batch_ns=1400 * US,
        batch_ns=100 * US,
    )
    captured = _captured(tmp_path, validation_us=1000).with_settings(loops=(loops,))
    # Of 3,000 us, 1,000 stop workers, and the first batches of two loops come 1,200 us later than they take.
    share = "share of the training time in validation and checkpoints"
    assert captured.clear(OutsideSteps()).value == pytest.approx(800 / 6000, abs=1e-3)
    kept = captured.with_settings(loops=(replace(loops, keeps_workers=True),))
    assert evidence(kept.finding(OutsideSteps()), share) == pytest.approx(0.5, abs=1e-3)


def test_slow_steps_count_for_the_time_of_the_loop_per_training_step(tmp_path: Path) -> None:
    # Ten steps take 2000 us together, though nine of them take 100, and the validation after them takes as much again.
    found = _captured(tmp_path, slow_us=1000, validation_us=2000).finding(OutsideSteps())
    assert found.whole_ns == pytest.approx(400 * US, rel=2e-3)
    assert found.saving.high_ns == pytest.approx(200 * US, rel=2e-3)


@pytest.mark.parametrize(("slow_us", "is_judged"), [(0, False), (1000, True)])
def test_a_validation_that_may_wait_for_the_work_of_training_steps_is_not_judged(
    slow_us: float, tmp_path: Path, *, is_judged: bool
) -> None:
    """A training step launches 200 us of GPU work in 100 us; where one in ten waits, all take as long."""
    builder = TraceBuilder().step(0, 0, 200).op("aten::mm", 0, 20).launch(0, 10, kernel=(0, 200))
    outcome = _captured(tmp_path, validation_us=1000, slow_us=slow_us, builder=builder).outcome(OutsideSteps())
    assert isinstance(outcome, Found) is is_judged
    if isinstance(outcome, Skipped):
        assert "The CPU ran ahead of the GPU" in outcome.reason


@pytest.mark.parametrize(("validation_us", "found"), [(175, False), (180, True)])
def test_it_counts_from_15_percent_of_the_loop(validation_us: float, tmp_path: Path, *, found: bool) -> None:
    assert _captured(tmp_path, validation_us=validation_us).is_found(OutsideSteps()) is found


def test_checkpoints_between_epochs_are_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, validation_us=10, epoch_checkpoint_us=500).finding(OutsideSteps())
    assert evidence(found, "time in checkpoints between epochs") == 3 * 500 * US
    assert "Save checkpoints less often" in found.fix.summary
    assert found.rule.title == "Saving checkpoints takes long"


def test_checkpoints_within_an_epoch_are_left_to_the_check_of_slow_steps(tmp_path: Path) -> None:
    assert _captured(tmp_path, checkpoint_us=5000).clear(OutsideSteps()).value == 0


FORWARD = library("_wrapped_call_impl", 1, "torch/nn/modules/module.py")
BACKWARD = library("_engine_run_backward", 1, "torch/autograd/graph.py")


@pytest.mark.parametrize(
    ("nodes", "frame", "count", "is_named"),
    [
        (36.0, FORWARD, 40, True),
        (2.0, FORWARD, 40, False),  # single operators beside the model
        (None, FORWARD, 40, False),
        (36.0, BACKWARD, 40, False),  # forces, or the importance of inputs
        (36.0, FORWARD, 10, False),  # too few samples to tell
    ],
)
def test_the_fix_names_inference_mode_if_no_backward_pass_uses_the_graphs_of_validation(
    nodes: float | None, frame: SampledFrame, count: int, tmp_path: Path, *, is_named: bool
) -> None:
    samples = Samples().add(count, user("<module>", 80), frame, state=StepState.OTHER).build()
    captured = _captured(tmp_path, validation_us=1000).with_settings(validation_nodes=nodes).with_run(stacks=samples)
    found = captured.finding(OutsideSteps())
    assert ("inference_mode" in found.fix.summary) is is_named
    assert [one.line for one in found.locations] == ([80] if frame == FORWARD and count >= 12 else [])
    assert ("nodes of autograd per batch of validation" in {one.label for one in found.evidence}) is is_named


WAITING = library("_next_data", 1, "torch/utils/data/dataloader.py")


@pytest.mark.parametrize(("count", "called", "is_own"), [(30, "max", True), (20, "max", False), (30, WAITING, False)])
def test_a_line_outside_of_the_model_with_most_of_the_validation_is_to_be_made_cheaper(
    count: int, called: str | SampledFrame, tmp_path: Path, *, is_own: bool
) -> None:
    inner = library(called) if isinstance(called, str) else called
    samples = Samples().add(25, user("validate", 30), FORWARD, user("forward", 5), state=StepState.OTHER)
    samples.add(count, user("validate", 31), user("overlaps", 9), inner, state=StepState.OTHER)
    captured = _captured(tmp_path, validation_us=1000).with_settings(validation_nodes=36.0)
    found = captured.with_run(stacks=samples.build()).finding(OutsideSteps())
    assert found.fix.summary.startswith("Make what this line does outside of the model cheaper") is is_own
    assert [one.line for one in found.locations] == ([9, 31] if count == 30 else [30])
    share = evidence(found, "share of the training time at the line")
    assert share == pytest.approx(0.5 * max(count, 25) / (25 + count), abs=1e-3)


ADAPTING = user("adapt", 20), library("grad", 1, "torch/autograd/__init__.py")
EVALUATING = library("decorate_context", 1, "torch/utils/_contextlib.py"), user("validate", 30)


def _episodes(folder: Path, *, every: int = 1, batches: int = 1, frames: tuple[SampledFrame, ...] = ()) -> Captured:
    """Forty training steps; before one in ``every``, three loops over other loaders of so many batches each."""
    steps: list[TimedStep] = []
    samples = Samples().add(1, user("train", 10), BACKWARD, state=StepState.PLAIN)
    timed: list[TimedSample] = []
    at = 0
    for number in range(40):
        loops = 3 * (number % every == 0)
        for state in (*[StepState.OTHER] * loops, StepState.PLAIN):
            fetches = batches if state is StepState.OTHER else 1
            steps.append(TimedStep(len(steps), 10**18 + at, 100 * US, 50 * US, fetches, state, 0, at, 0))
            if frames and state is StepState.OTHER:
                timed.append(TimedSample(at + 60 * US, len(samples.stacks), US, US))
                samples.add(1, *frames, state=state)
            at += 100 * US
    captured = Captured(waiting(2), folder).with_run(steps=tuple(steps))
    return captured.with_run(stacks=replace(samples.build(), timed=tuple(timed))) if frames else captured


@pytest.mark.parametrize("frames", [(), ADAPTING])
def test_loops_of_one_batch_before_nearly_every_step_are_no_validation(
    frames: tuple[SampledFrame, ...], tmp_path: Path
) -> None:
    """Support and query sets of episodes: gradients flow through them."""
    assert _episodes(tmp_path, frames=frames).clear(OutsideSteps()).value == 0


@pytest.mark.parametrize(
    ("every", "batches", "frames"),
    [
        (4, 1, ()),  # one batch of a validation set every few steps
        (1, 4, ()),  # several batches after each step
        (1, 1, EVALUATING),  # one batch after each step, without gradients
    ],
)
def test_loops_that_are_rarer_longer_or_without_gradients_stay_validation(
    every: int, batches: int, frames: tuple[SampledFrame, ...], tmp_path: Path
) -> None:
    found = _episodes(tmp_path, every=every, batches=batches, frames=frames).finding(OutsideSteps())
    assert evidence(found, "loops without training steps") == 120 // every


def test_a_short_run_is_skipped(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, validation_us=1000, epochs=1).outcome(OutsideSteps())
    assert isinstance(outcome, Skipped)
    assert "Fewer than 20 training steps" in outcome.reason


def test_without_a_capture_it_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(OutsideSteps(), waiting(2), tmp_path)
