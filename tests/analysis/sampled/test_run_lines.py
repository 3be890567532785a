import time

import pytest

from tests.analysis.sampled.sampling import C_SLEEP, INTERVAL_NS, MAIN, Samples, library, user
from traceadvisor.analysis.sampled.run_lines import MOST_ROWS, run_lines, sampled_places
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.run_time import LineRow, LineTime, RunLines
from traceadvisor.model.samples import Sampled, SampledStack, StackSamples
from traceadvisor.statistics import share_interval

LOOP = Location("train.py", 33, "train")
EPOCH = user("main", 60)


def table(samples: Samples, loop: Location | None = LOOP) -> RunLines:
    found = run_lines(samples.build(), loop)
    assert found
    return found


def lines(found: RunLines) -> list[tuple[int | None, int | None, str | None]]:
    return [
        (
            row.line.line if row.line else None,
            row.inner.line if row.inner else None,
            row.owner.function if row.owner else None,
        )
        for row in found.rows
    ]


def test_a_row_has_the_line_in_the_loop_the_innermost_line_and_the_owner() -> None:
    samples = Samples()
    samples.add(
        5, MAIN, EPOCH, user("train", 34), library("__call__"), user("forward", 12, "model.py"), library("linear")
    )
    samples.add(3, MAIN, EPOCH, user("train", 35), library("backward"))
    samples.add(2, MAIN, EPOCH, user("train", 33), library("__next__"), user("__getitem__", 7), is_fetching=True)
    found = table(samples)
    assert lines(found) == [(34, 12, "linear"), (35, None, "backward"), (33, 7, None)]
    assert [row.share for row in found.rows] == [0.5, 0.3, 0.2]
    assert found.whole == LineTime(10 * INTERVAL_NS, 10 * INTERVAL_NS, 2 * INTERVAL_NS, 10)


def test_where_a_library_runs_the_loop_the_line_is_inside_its_call() -> None:
    """The line that fetches batches, ``trainer.fit``, also holds the rest of each step."""
    fit = user("<module>", 50)
    samples = Samples()
    samples.add(3, fit, library("fit"), library("__next__"), is_fetching=True)
    samples.add(5, fit, library("fit"), user("training_step", 9), user("helper", 12), C_SLEEP)
    samples.add(2, fit, library("fit"), library("step"))
    found = table(samples, Location("train.py", 50, "<module>"))
    assert lines(found) == [(9, 12, "sleep"), (50, None, "__next__"), (50, None, "step")]


def test_without_a_known_loop_frames_around_nearly_all_steps_are_left_out() -> None:
    samples = Samples()
    samples.add(60, MAIN, EPOCH, user("train", 34), library("forward"))
    samples.add(40, MAIN, EPOCH, user("train", 35), library("backward"))
    samples.add(5, MAIN, user("main", 62), user("save", 90), library("write"), state=None)
    assert lines(table(samples, None)) == [(34, None, "forward"), (35, None, "backward"), (62, 90, "write")]


def test_time_outside_of_steps_counts_apart_from_time_in_steps() -> None:
    samples = Samples()
    for state in (StepState.RECORDED, StepState.WARMUP, StepState.OTHER, None):
        samples.add(1, MAIN, state=state)
    (row,) = table(samples).rows
    assert (row.time.total_ns, row.time.step_ns) == (4 * INTERVAL_NS, 2 * INTERVAL_NS)


def test_imports_are_one_owner() -> None:
    samples = Samples()
    for function in ("_path_stat", "get_data"):
        samples.add(1, MAIN, library("_find_and_load", 9, "<frozen importlib._bootstrap>"), library(function))
    (row,) = table(samples).rows
    assert row.owner == Frame("import")


def test_what_an_imported_module_of_the_user_does_is_not_an_import() -> None:
    samples = Samples()
    load = library("_find_and_load", 9, "<frozen importlib._bootstrap>")
    samples.add(1, MAIN, load, user("<module>", 3, "model.py"), library("load"))
    assert lines(table(samples)) == [(3, None, "load")]


def test_an_owner_is_shown_at_its_costliest_line() -> None:
    samples = Samples()
    samples.add(1, MAIN, library("conv", 10)).add(2, MAIN, library("conv", 20))
    (row,) = table(samples).rows
    assert row.owner == Frame("conv", "torch/nn/functional.py", 20)


def test_without_user_code_there_is_no_line() -> None:
    assert lines(table(Samples().add(1, library("wait")))) == [(None, None, "wait")]
    assert lines(table(Samples().add(1))) == [(None, None, None)]


def test_rows_and_all_others_sum_to_the_whole() -> None:
    samples = Samples(other={StepState.PLAIN: Sampled(7, 1), None: Sampled(5, 1)})
    for line in range(3 * MOST_ROWS):
        samples.add(1 + line % 3, MAIN, user("train", line), is_fetching=line % 2 == 0)
    found = table(samples)
    assert len(found.rows) == MOST_ROWS
    for name in ("total_ns", "step_ns", "fetch_ns", "sample_count"):
        parts = [getattr(row.time, name) for row in found.rows]
        assert sum(parts) + getattr(found.other, name) == getattr(found.whole, name)
    assert found.whole.total_ns == samples.build().time_ns


def test_a_table_that_does_not_sum_is_refused() -> None:
    time_ = LineTime(5, 0, 0, 1)
    row = LineRow(None, None, None, None, time_, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="do not sum to 6 ns"):
        RunLines(LineTime(6, 0, 0, 1), (row,), LineTime(0, 0, 0, 0), 1, 0.0, 0, 0.0)


def test_without_samples_there_is_no_table() -> None:
    assert run_lines(None, LOOP) is None
    assert run_lines(Samples().build(), LOOP) is None


def test_samples_without_time_belong_to_no_place() -> None:
    stack = SampledStack((0,), {StepState.PLAIN: Sampled(0, 5)})
    assert sampled_places(StackSamples((MAIN,), (stack,)), 100.0, MOST_ROWS) == []


def test_the_error_of_a_share_follows_from_the_number_of_samples() -> None:
    (row, _) = table(Samples().add(50, MAIN, user("train", 34)).add(50, MAIN, user("train", 35))).rows
    assert (row.share_low, row.share_high) == pytest.approx((0.404, 0.596), abs=0.001)


def test_the_interval_holds_for_few_samples_and_none() -> None:
    """The first example is that of Newcombe, Statistics in Medicine 17, 1998, table I: 81 of 263."""
    assert share_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=0.0001)
    assert share_interval(0.0, 20)[0] == pytest.approx(0.0)
    assert share_interval(0.0, 20)[1] == pytest.approx(0.1611, abs=0.0001)
    assert share_interval(0.5, 0) == (0.0, 1.0)


def test_the_largest_file_takes_little_time() -> None:
    samples = Samples()
    frames = [user("f", line) for line in range(2000)]
    for place in range(4000):
        samples.add(1, *(frames[(place * step) % 2000] for step in range(50)))
    begin = time.process_time()
    table(samples, None)
    assert time.process_time() - begin < 10
