"""Two recordings of one program agree: the intervals of what each fix saves overlap."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from tests.few import few
from tests.judging.test_reach import recorded
from tests.recordings.generated.chance import training_by_chance
from tests.rules.judging import simulated_facts
from tests.savings.judged import ends_ns
from tests.shared import CHECKOUT, NO_WORKERS, NO_WORKERS_LATER
from traceadvisor.facts import Facts

NOISE = 0.01
"""Share of the step by which two intervals may miss each other."""

REPEATED = sorted(
    path
    for kind in ("pairs", "loaders")
    for path in (CHECKOUT / "tests/recordings" / kind).glob("*.1")
    if [*path.glob("*.pt.trace.json.gz")]
)
"""The first of several captures of one program on a quiet machine."""


def apart(runs: Sequence[Facts]) -> Iterator[str]:
    """Fixes whose intervals in two runs do not overlap."""
    for one, other in combinations([(ends_ns(facts), facts.step_ns) for facts in runs if facts.step_ns], 2):
        for name in one[0].keys() & other[0].keys():
            (low, high), (low_too, high_too) = ([end / step_ns for end in ends[name]] for ends, step_ns in (one, other))
            if max(low, low_too) > min(high, high_too) + NOISE:
                yield f"{name}: {low:.1%} to {high:.1%} and {low_too:.1%} to {high_too:.1%}"


@pytest.mark.parametrize(
    "names",
    [
        (NO_WORKERS, NO_WORKERS_LATER),
        tuple(f"pairs/transformer-forward-h100-cycle{cycle}.pt.trace.json.gz" for cycle in (1, 2)),
    ],
)
def test_two_spans_of_a_public_run_agree(names: tuple[str, ...], shared_traces: Path) -> None:
    assert list(apart([facts for name in names for facts in recorded(shared_traces / name)])) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", REPEATED, ids=lambda path: path.stem)
def test_captures_of_one_program_agree(first: Path) -> None:
    runs = sorted(first.parent.glob(f"{first.stem}.[1-4]"))
    assert len(runs) >= 2
    assert list(apart([facts for run in runs for facts in recorded(run)])) == []


@pytest.mark.parametrize("seed", few(range(0, 60, 4), "traceadvisor/rules", "traceadvisor/savings"))
def test_two_runs_of_a_training_by_chance_agree(seed: int, tmp_path: Path) -> None:
    runs = [simulated_facts(training_by_chance(seed, run).trace, tmp_path) for run in (0, 1)]
    assert list(apart(runs)) == []
