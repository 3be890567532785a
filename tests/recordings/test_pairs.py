"""What the replay foretells of changes that were then made."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.recordings.compared import PAIRS, Pair, captured_pairs, index, public_pair, step_ns
from tests.test_sample_traces import ELSEWHERE

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"

MOST_BYTES = 1_500_000
FEWEST_RUNS = 4

captured = pytest.mark.skipif(
    not (PAIRS / "pairs.json").is_file(), reason="needs recordings: python -m benchmarks.validation.record"
)


# -- the recordings ---------------------------------------------------------------------------------------------------


@captured
def test_runs_that_differ_in_nothing_were_made_in_turns() -> None:
    arms = [run["arm"] for run in index()["runs"]]
    assert all(arms.count(arm) >= FEWEST_RUNS for arm in arms)
    turns = [arms[start : start + len(set(arms))] for start in range(0, len(arms), len(set(arms)))]
    assert all(set(turn) == set(arms) for turn in turns)
    assert all(earlier == later[::-1] for earlier, later in pairwise(turns))


@captured
def test_a_recording_is_small_and_does_not_tell_where_it_was_made() -> None:
    for run in index()["runs"]:
        files = list((PAIRS / run["name"]).iterdir())
        assert sum(path.stat().st_size for path in files) < MOST_BYTES
        for path in files:
            content = path.read_bytes()
            assert not ELSEWHERE.findall(gzip.decompress(content) if path.suffix == ".gz" else content), path


def test_the_step_of_a_run_is_that_of_whole_undisturbed_turns(tmp_path: Path) -> None:
    durations = [900, 900, 10, 30, 10, 50, 10, 500, 10, 70]
    states = ["plain"] * 7 + ["recorded"] + ["plain"] * 2
    rows = [f"{step},0,{time},0,1,{state}" for step, (time, state) in enumerate(zip(durations, states, strict=True))]
    (tmp_path / "steps.0.csv").write_text("\n".join(["step,start_ns,duration_ns,loader_ns,fetches,state", *rows]))
    assert step_ns(tmp_path, turn=2) == median([20, 30, 40])


# -- the predictions --------------------------------------------------------------------------------------------------


@captured
def test_what_came_lies_within_what_was_foretold_or_chance_decides() -> None:
    for pair in captured_pairs():
        if pair.is_conclusive:
            assert pair.foretold.shortest - pair.spread_ns <= median(pair.after_ns), pair
            assert median(pair.after_ns) <= pair.foretold.longest + pair.spread_ns, pair


def test_what_came_of_a_public_training_lies_within_what_was_foretold(shared_traces: Path) -> None:
    pair = public_pair(shared_traces)
    assert pair.foretold.shortest < median(pair.after_ns) < pair.foretold.longest


# -- the page ---------------------------------------------------------------------------------------------------------


@captured
def test_the_page_has_the_captured_pairs(golden: Callable[[Path, str], None]) -> None:
    made = index()
    others = max(run["others_share"] for run in made["runs"])
    text = f"{made['hardware']}; {made['software']}; others used at most {others:.0%} of it during a run.\n\n"
    golden(PAGE, with_block("captured", text + table(captured_pairs())))


def test_the_page_has_the_public_pair(golden: Callable[[Path, str], None], shared_traces: Path) -> None:
    golden(PAGE, with_block("public", table([public_pair(shared_traces)])))


def with_block(name: str, text: str) -> str:
    """The page with what stands between a name's marks replaced."""
    page = PAGE.read_text(encoding="utf-8")
    replaced, count = re.subn(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>\n{text}\n\g<2>", page, flags=re.DOTALL)
    assert count == 1
    return replaced


def table(pairs: list[Pair]) -> str:
    head = "| change | before | after | spread | difference | foretold: expected (range) | by | error |"
    return "\n".join([head, "|" + "---|" * 8, *map(_row, pairs)]) + "\n"


def _row(pair: Pair) -> str:
    foretold = pair.foretold
    cells = (
        pair.change,
        _ms(median(pair.before_ns)),
        _ms(median(pair.after_ns)),
        _ms(pair.spread_ns),
        _ms(pair.difference_ns, "+"),
        f"{_ms(foretold.expected)} ({_ms(foretold.shortest)} to {_ms(foretold.longest)})",
        pair.method,
        f"{pair.error_share:+.0%}" if pair.is_conclusive else "inconclusive",
    )
    return f"| {' | '.join(cells)} |"


def _ms(ns: float, sign: str = "") -> str:
    return f"{ns / 1e6:{sign}.1f} ms"
