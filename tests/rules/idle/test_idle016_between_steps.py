from pathlib import Path

import pytest

from tests.analysis.whole_run.building import NO_GRAD, Frames, Runs, line
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import OWN_WORK, SampledFrame
from traceadvisor.rules.idle.idle016_between_steps import CodeBetweenSteps

TRAIN, WORK = line(11), SampledFrame("read_data", "data.py", 36, is_user=True)
READS = line(14, WORK, SampledFrame("load", "numpy/lib/npyio.py", 300))
SAVES = line(15, WORK, SampledFrame("save", "torch/serialization.py", 960))


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 10_000).op("aten::mm", 0, 10_000)


def _rounds(
    folder: Path,
    between: Frames = READS,
    *,
    rounds: int = 3,
    steps: int = 10,
    pieces: int = 6,
    ms: float = 10.0,
    fetches: int = 0,
    after: int = 0,
    more: tuple[Frames, ...] = (),
) -> Captured:
    """Rounds of steps of 10 ms, each after so many samples of other code, and one of each of ``more``."""
    runs = Runs()
    runs.step([(TRAIN, 10.0)])
    for _ in range(rounds):
        runs.step([(between, ms)] * pieces + [(one, ms) for one in more], state=StepState.OTHER, fetches=fetches)
        for _ in range(steps):
            runs.step([(TRAIN, 10.0)])
    for _ in range(after):
        runs.outside(between, ms)
    run = runs.run(after_ms=1)
    parts = {"steps": run.steps, "stacks": run.stacks, "started": run.started, "ended": run.ended}
    return Captured(_step(), folder).with_run(**parts)


def test_a_function_that_each_round_runs_is_found_at_its_line(tmp_path: Path) -> None:
    found = _rounds(tmp_path).finding(CodeBetweenSteps())
    assert found.locations == (Location("data.py", 36, "read_data"),)
    assert evidence(found, "share of the training time in one function between steps") == pytest.approx(180 / 490)
    assert evidence(found, "stretches between steps with it") == 3
    assert found.saving.low_ns == 0
    assert found.whole_ns == pytest.approx(490e6 / 31)


def test_a_function_counts_with_all_that_it_calls(tmp_path: Path) -> None:
    calls = SampledFrame("read_data", "data.py", 38, is_user=True)
    parse, each = (SampledFrame(name, "text.py", 9, is_user=True) for name in ("parse", "<lambda>"))
    other = SampledFrame("report", "text.py", 30, is_user=True)
    found = _rounds(
        tmp_path, more=(*[line(14, calls, parse)] * 3, *[line(14, calls, each)] * 4, line(14, other))
    ).finding(CodeBetweenSteps())
    assert evidence(found, "share of the training time in one function between steps") == pytest.approx(390 / 730)
    assert found.locations == (Location("data.py", 38, "read_data"),), "its line with the most time"


def test_of_a_function_that_holds_the_training_only_its_own_lines_count(tmp_path: Path) -> None:
    own = (SampledFrame("main", "train.py", 20, is_user=True),)
    found = _rounds(tmp_path, own, more=(READS,) * 3).finding(CodeBetweenSteps())
    assert evidence(found, "share of the training time in one function between steps") == pytest.approx(180 / 580)


def test_code_without_gradients_counts_as_well(tmp_path: Path) -> None:
    assert _rounds(tmp_path, line(14, NO_GRAD, WORK)).is_found(CodeBetweenSteps())


@pytest.mark.parametrize(("ms", "found"), [(1.5, False), (2.5, True)])
def test_a_tenth_of_the_loop_is_the_least(ms: float, tmp_path: Path, *, found: bool) -> None:
    # 27 of 337 ms, or 45 of 355 ms.
    assert _rounds(tmp_path, ms=ms).is_found(CodeBetweenSteps()) is found


@pytest.mark.parametrize(("pieces", "found"), [(3, False), (4, True)])
def test_a_few_samples_do_not_show_a_function(pieces: int, tmp_path: Path, *, found: bool) -> None:
    assert _rounds(tmp_path, pieces=pieces, ms=20).is_found(CodeBetweenSteps()) is found


def test_what_runs_once_is_no_part_of_each_round(tmp_path: Path) -> None:
    passed = _rounds(tmp_path, rounds=1, steps=30, pieces=20).clear(CodeBetweenSteps())
    assert (passed.value, passed.limit) == (1, 2)


def test_what_runs_again_after_the_last_step_counts(tmp_path: Path) -> None:
    found = _rounds(tmp_path, rounds=2, pieces=7, after=7).finding(CodeBetweenSteps())
    assert evidence(found, "stretches between steps with it") == 3
    assert evidence(found, "share of the training time in one function between steps") == pytest.approx(210 / 420)


@pytest.mark.parametrize(
    ("between", "fetches"),
    [(READS, 2), (SAVES, 0), (line(12, OWN_WORK), 0), (line(16, SampledFrame("emit", "logging/__init__.py", 9)), 0)],
)
def test_loops_over_loaders_checkpoints_logs_and_the_capture_have_parts_of_their_own(
    between: Frames, fetches: int, tmp_path: Path
) -> None:
    assert not _rounds(tmp_path, between, fetches=fetches).is_found(CodeBetweenSteps())


def test_without_a_capture_or_with_few_steps_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "between training steps" in skipped(CodeBetweenSteps(), _step(), tmp_path)
    assert "Fewer than 20" in str(_rounds(tmp_path, rounds=1).outcome(CodeBetweenSteps()))
