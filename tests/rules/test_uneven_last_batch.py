from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP
from tests.rules.judging import facts_of, skipped
from traceadvisor.across_ranks import compare, rank_recording
from traceadvisor.facts import Facts
from traceadvisor.model.findings import Clear, Finding, Found, RuleOutcome, Skipped
from traceadvisor.model.run import LoaderSettings, Run, RunSettings
from traceadvisor.rules.uneven_last_batch import UnevenLastBatch


def _outcome(folder: Path, *loaders: LoaderSettings | None) -> RuleOutcome:
    """What comes of comparing ranks by their loaders."""
    recordings = []
    for rank, loader in enumerate(loaders):
        builder = TraceBuilder().distributed(rank, len(loaders)).step(0, 0, 100).op("aten::mm", 0, 100)
        trace = facts_of(builder, folder).trace
        run = Run(("train.py",), "ran to its end", (), RunSettings(loader=loader), None, len(loaders))
        recordings.append(rank_recording(Facts(trace, None, f"run/rank{rank}", run)))
    (row,) = compare([one for one in recordings if one], [UnevenLastBatch()])
    assert row.recording_ids == tuple(f"run/rank{rank}" for rank in range(len(loaders)))
    return row.outcome


def _loaders(*samples: int | None, drop_last: bool = False) -> list[LoaderSettings]:
    """One a rank, by the samples that it draws in an epoch, in batches of 8."""
    return [LoaderSettings(batch_size=8, sample_count=count, drop_last=drop_last, location=LOOP) for count in samples]


def _finding(folder: Path, *loaders: LoaderSettings | None) -> Finding:
    outcome = _outcome(folder, *loaders)
    assert isinstance(outcome, Found), outcome
    return outcome.finding


def _figures(found: Finding) -> dict[str, float | int | str]:
    return {row.label: row.value for row in found.evidence}


def test_a_last_batch_of_one_sample_is_found(tmp_path: Path) -> None:
    found = _finding(tmp_path, *_loaders(65, 65))
    assert _figures(found)["samples in the shortest last batch"] == 1
    assert found.fix.change == "DataLoader(..., drop_last=True)"
    assert found.locations == (LOOP,)


def test_ranks_with_different_numbers_of_batches_are_found(tmp_path: Path) -> None:
    figures = _figures(_finding(tmp_path, *_loaders(64, 48)))
    assert (figures["fewest batches of a rank"], figures["most batches of a rank"]) == (6, 8)


def test_a_rank_without_a_whole_batch_that_drops_the_rest_is_found(tmp_path: Path) -> None:
    figures = _figures(_finding(tmp_path, *_loaders(8, 7, drop_last=True)))
    assert (figures["samples in the shortest last batch"], figures["fewest batches of a rank"]) == (0, 0)


def test_short_batches_that_are_the_same_on_all_ranks_are_clear(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *_loaders(66, 67))
    assert isinstance(outcome, Clear)
    assert outcome.value == 2


def test_what_the_loader_says_of_its_batches_comes_before_what_follows_from_samples(tmp_path: Path) -> None:
    loaders = [LoaderSettings(batch_size=8, sample_count=64, batch_count=count) for count in (8, 5)]
    assert _figures(_finding(tmp_path, *loaders))["fewest batches of a rank"] == 5


def test_a_rank_whose_settings_are_lost_is_passed_over(tmp_path: Path) -> None:
    assert _figures(_finding(tmp_path, *_loaders(65), None))["samples in the shortest last batch"] == 1


@pytest.mark.parametrize("loaders", [(None, None), _loaders(None, None)])
def test_without_settings_or_a_length_the_rule_cannot_look(loaders: list[LoaderSettings], tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, *loaders), Skipped)


def test_one_rank_alone_cannot_be_compared(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    assert "traceadvisor capture" in skipped(UnevenLastBatch(), builder, tmp_path)
