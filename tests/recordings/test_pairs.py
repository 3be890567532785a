"""Compares predicted savings with changes that were then measured."""

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.recordings.advice import PAGE, with_block
from tests.recordings.compared import PAIRS, Pair, captured_pairs, index, public_pairs, step_ns
from tests.test_sample_traces import ELSEWHERE
from traceadvisor.model.findings import Method

NIGHTLY = pytest.mark.nightly("traceadvisor/replay", "traceadvisor/rules")

MOST_BYTES = 1_500_000
FEWEST_RUNS = 4


# -- the recordings ---------------------------------------------------------------------------------------------------


def test_repeated_runs_were_recorded_in_turns() -> None:
    arms = [run["arm"] for run in index()["runs"]]
    assert all(arms.count(arm) >= FEWEST_RUNS for arm in arms)
    turns = [arms[start : start + len(set(arms))] for start in range(0, len(arms), len(set(arms)))]
    assert all(set(turn) == set(arms) for turn in turns)
    assert all(earlier == later[::-1] for earlier, later in pairwise(turns))


def test_a_recording_is_small_and_anonymous() -> None:
    for run in index()["runs"]:
        files = list((PAIRS / run["name"]).iterdir())
        assert sum(path.stat().st_size for path in files) < MOST_BYTES
        for path in files:
            content = path.read_bytes()
            assert not ELSEWHERE.findall(gzip.decompress(content) if path.suffix == ".gz" else content), path


def test_the_step_of_a_run_covers_whole_undisturbed_turns(tmp_path: Path) -> None:
    durations = [900, 900, 10, 30, 10, 50, 10, 500, 10, 70]
    states = ["plain"] * 7 + ["recorded"] + ["plain"] * 2
    rows = [f"{step},0,{time},0,1,{state}" for step, (time, state) in enumerate(zip(durations, states, strict=True))]
    (tmp_path / "steps.0.csv").write_text("\n".join(["step,start_ns,duration_ns,loader_ns,fetches,state", *rows]))
    assert step_ns(tmp_path, turn=2) == median([20, 30, 40])


# -- the predictions --------------------------------------------------------------------------------------------------


KNOWN_MISSES = {"workers"}
"""Simulated pairs with a larger saving than predicted: the step is shorter than the range."""


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_measured_steps_are_in_the_predicted_range_except_known_misses() -> None:
    conclusive = [pair for pair in captured_pairs() if pair.is_conclusive]
    misses = [pair for pair in conclusive if not pair.is_within_range]
    assert {pair.name for pair in misses} == KNOWN_MISSES
    assert all(median(pair.after_ns) < pair.predicted.shortest for pair in misses)
    assert len([pair for pair in conclusive if pair.method is Method.REPLAY]) == 3 + len(KNOWN_MISSES)


@NIGHTLY
def test_the_measured_step_of_a_public_training_is_in_the_predicted_range(shared_traces: Path) -> None:
    assert all(pair.is_within_range for pair in public_pairs(shared_traces))


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_page_has_the_captured_pairs(golden: Callable[[Path, str], None]) -> None:
    made = index()
    others = max(run["others_share"] for run in made["runs"])
    load = f"other processes used at most {others:.0%} of the CPU during a run"
    text = f"{made['hardware']}; {made['software']}; {load}.\n\n"
    golden(PAGE, with_block("captured", text + table(captured_pairs())))


@NIGHTLY
def test_the_page_has_the_public_pairs(golden: Callable[[Path, str], None], shared_traces: Path) -> None:
    golden(PAGE, with_block("public", table(public_pairs(shared_traces))))


def table(pairs: list[Pair]) -> str:
    columns = ["change", "before", "after", "spread", "difference", "predicted (range)"]
    columns += ["method", "in range", "error", "unseen"]
    head = f"| {' | '.join(columns)} |"
    return "\n".join([head, "|" + "---|" * len(columns), *map(_row, pairs)]) + "\n"


def _row(pair: Pair) -> str:
    cells = (
        pair.change,
        _ms(median(pair.before_ns)),
        _ms(median(pair.after_ns)),
        "unknown" if pair.spread_ns is None else _ms(pair.spread_ns),
        _ms(pair.difference_ns, "+"),
        _predicted(pair),
        "upper limit" if pair.method is Method.BOUND else "simulated",
        ("yes" if pair.is_within_range else "**no**") if pair.is_conclusive else "inconclusive",
        _error(pair),
        "yes" if pair.is_unseen else "no",
    )
    return f"| {' | '.join(cells)} |"


def _predicted(pair: Pair) -> str:
    """The predicted step with its range; only the range for an upper limit."""
    predicted = pair.predicted
    ends = f"{_ms(predicted.shortest)} to {_ms(predicted.longest)}"
    if pair.method is Method.BOUND:
        return ends
    gone = "" if pair.all_gone_ns is None else f"; all removed: {_ms(pair.all_gone_ns)}"
    return f"{_ms(predicted.expected)} ({ends}){gone}"


def _error(pair: Pair) -> str:
    if pair.method is Method.BOUND or not pair.is_conclusive:
        return "-"
    gone = "" if pair.all_gone_ns is None else f"; all removed: {pair.error_share(pair.all_gone_ns):+.0%}"
    return f"{pair.error_share(pair.predicted.expected):+.0%}{gone}"


def _ms(ns: float, sign: str = "") -> str:
    return f"{ns / 1e6:{sign}.1f} ms"
