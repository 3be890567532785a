"""Samples of undisturbed steps bound a limit from below: a fix of some lines may save at least their share."""

from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.judging.reach import findings
from tests.judging.test_reach import recorded
from tests.rules.captured import Captured
from tests.shared import CHECKOUT
from traceadvisor.analysis.sampled.shares import share_at
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.rules.idle.idle004_python_overhead import PythonOverhead
from traceadvisor.savings.floors import left_on_device_ns
from traceadvisor.statistics import share_interval

SAMPLED = sorted(path.parent for path in CHECKOUT.glob("*/**/stacks.0.jsonl") if ".venv" not in path.parts)


def _logging(kernel_us: int) -> TraceBuilder:
    """Steps of 1 ms on a GPU, of which 100 us are in ``write``."""
    builder = TraceBuilder()
    for start in builder.steps(4, 1000):
        builder.python("train.py(10): train", start, start + 1000)
        builder.op("aten::mm", start, start + 40).launch(start + 5, start + 10, kernel=(start + 20, start + 120))
        builder.python("train.py(60): write", start + 140, start + 290)
        for at in range(start + 300, start + 990, 10):
            builder.op("aten::add", at, at + 9)
        builder.launch(start + 980, start + 985, kernel=(start + 990 - kernel_us, start + 990))
    return builder


def _saved(kernel_us: int, samples: int, folder: Path) -> float:
    main, train = user("<module>", 80), user("train", 20)
    rest = (main, train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    sampled = Samples().add(samples, main, train, user("write", 61)).add(100 - samples, *rest).build()
    found = Captured(_logging(kernel_us), folder).with_run(stacks=sampled).finding(PythonOverhead())
    return found.saving.high_ns / 1e6


def test_a_limit_is_at_least_what_samples_of_undisturbed_steps_show(tmp_path: Path) -> None:
    low, _ = share_interval(0.62, 100)
    assert _saved(1, 62, tmp_path) == pytest.approx(low, rel=0.01)


def test_samples_that_show_less_than_the_simulation_leave_the_limit(tmp_path: Path) -> None:
    assert _saved(1, 5, tmp_path) == pytest.approx(_saved(1, 10, tmp_path))


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/savings")
@pytest.mark.parametrize("folder", SAMPLED, ids=lambda path: path.name)
def test_no_limit_of_a_capture_is_below_what_its_samples_show(folder: Path) -> None:
    for facts in recorded(folder):
        for finding in findings(facts):
            share = share_at(facts.run.stack_samples, finding.locations)
            if isinstance(finding.fix.what_if, WithoutHostWork) and share and facts.step_ns:
                possible_ns = facts.step_ns - left_on_device_ns(facts, finding.claims)
                assert finding.saving.high_ns >= min(share.low * facts.step_ns, possible_ns) - 0.01 * facts.step_ns
