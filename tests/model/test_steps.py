from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepSource, StepTable

WHOLE = Step(0, 0, 100, 0, 80)
SPOILT = Step(1, 100, 200, 80, 160, left_out="device work from before the first step takes 20% of it")
LAST = Step(2, 210, 300, 160, 240)


def test_kept_steps_have_windows_and_a_left_out_one_counts_in_no_mean() -> None:
    table = StepTable(StepSource.MARKS, (WHOLE, SPOILT, LAST))
    assert table.kept == (WHOLE, LAST)
    assert table.steps == (WHOLE, SPOILT, LAST)
    assert table.kept_windows == SpanSet.of((0, 100), (210, 300))
    assert table.kept_marks == SpanSet.of((0, 80), (160, 240))


def test_the_duration_is_that_of_the_window() -> None:
    assert LAST.duration_ns == 90
