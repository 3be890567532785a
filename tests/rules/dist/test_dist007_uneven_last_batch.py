from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP
from tests.rules.judging import facts_of
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import assess, judge
from traceadvisor.judging.ranks import compare, rank_recording
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Clear, Finding, Found, RuleOutcome, Skipped
from traceadvisor.model.health import Health
from traceadvisor.model.report import FoundFigures, Source, SourceKind
from traceadvisor.model.run import LoaderSettings, Run, RunSettings
from traceadvisor.rules.dist.dist007_uneven_last_batch import UnevenLastBatch


def _outcome(folder: Path, *loaders: LoaderSettings | None) -> RuleOutcome:
    """What comes of comparing ranks by their loaders."""
    recordings = []
    for rank, loader in enumerate(loaders):
        builder = TraceBuilder().distributed(rank, len(loaders)).step(0, 0, 100).op("aten::mm", 0, 100)
        trace = facts_of(builder, folder).trace
        run = Run(("train.py",), "ran to its end", (), RunSettings(loader=loader), None, len(loaders))
        recordings.append(rank_recording(Facts(trace, None, f"run/rank{rank}", run)))
    known = [one for one in recordings if one]
    (row,) = compare(known, [UnevenLastBatch()], {one.recording_id for one in known})
    assert row.recording_ids == tuple(f"run/rank{rank}" for rank in range(len(loaders)))
    assert not isinstance(row.outcome, FoundFigures)
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
    assert _figures(found)["samples in shortest last batch"] == 1
    assert found.fix.change == "loader = DataLoader(dataset, drop_last=True)  # keep your other arguments"
    assert found.locations == (LOOP,)


def test_ranks_with_different_numbers_of_batches_are_found(tmp_path: Path) -> None:
    figures = _figures(_finding(tmp_path, *_loaders(64, 48)))
    assert (figures["fewest batches on a rank"], figures["most batches on a rank"]) == (6, 8)


def test_a_rank_without_a_full_batch_is_found_with_drop_last(tmp_path: Path) -> None:
    figures = _figures(_finding(tmp_path, *_loaders(8, 7, drop_last=True)))
    assert (figures["samples in shortest last batch"], figures["fewest batches on a rank"]) == (0, 0)


def test_short_batches_that_are_the_same_on_all_ranks_are_clear(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *_loaders(66, 67))
    assert isinstance(outcome, Clear)
    assert outcome.value == 2


def test_the_loaders_batch_count_takes_precedence_over_samples(tmp_path: Path) -> None:
    loaders = [LoaderSettings(batch_size=8, sample_count=64, batch_count=count) for count in (8, 5)]
    assert _figures(_finding(tmp_path, *loaders))["fewest batches on a rank"] == 5


def test_a_rank_without_settings_is_ignored(tmp_path: Path) -> None:
    assert _figures(_finding(tmp_path, *_loaders(65), None))["samples in shortest last batch"] == 1


@pytest.mark.parametrize("loaders", [(None, None), _loaders(None, None)])
def test_without_settings_or_a_length_the_rule_cannot_look(loaders: list[LoaderSettings], tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, *loaders), Skipped)


def _alone(folder: Path, loader: LoaderSettings, world_size: int = 2) -> RuleOutcome:
    """What comes of looking at one rank of a run."""
    trace = facts_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100), folder).trace
    run = Run(("train.py",), "ran to its end", (), RunSettings(loader=loader), None, world_size)
    return run_rule(UnevenLastBatch(), Facts(trace, None, "run/rank0", run))


@pytest.mark.parametrize(("samples", "drop_last", "last"), [(65, False, 1), (7, True, 0)])
def test_a_short_last_batch_is_found_on_a_single_rank(
    samples: int, *, drop_last: bool, last: int, tmp_path: Path
) -> None:
    (loader,) = _loaders(samples, drop_last=drop_last)
    outcome = _alone(tmp_path, loader)
    assert isinstance(outcome, Found)
    assert (_figures(outcome.finding)["samples in last batch"], outcome.finding.locations) == (last, (LOOP,))


@pytest.mark.parametrize(("samples", "drop_last", "last"), [(66, False, 2), (65, True, 8), (64, False, 8)])
def test_a_single_rank_with_a_long_enough_last_batch_is_clear(
    samples: int, *, drop_last: bool, last: int, tmp_path: Path
) -> None:
    (loader,) = _loaders(samples, drop_last=drop_last)
    outcome = _alone(tmp_path, loader)
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.remark) == (last, "this rank only; the others were not recorded")


def test_a_single_rank_with_unknown_samples_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_alone(tmp_path, LoaderSettings(batch_size=8)), Skipped)


def test_a_single_process_has_no_other_ranks_to_wait_for(tmp_path: Path) -> None:
    (loader,) = _loaders(65)
    assert _alone(tmp_path, loader, world_size=1) == Skipped("Training uses only one process.")


def test_a_comparison_replaces_the_outcomes_of_each_rank(tmp_path: Path) -> None:
    judgements = []
    for rank, loader in enumerate(_loaders(65, 65)):
        builder = TraceBuilder().distributed(rank, 2).step(0, 0, 100).op("aten::mm", 0, 100)
        run = Run(("train.py",), "ran to its end", (), RunSettings(loader=loader), None, 2)
        judgements.append(judge(Facts(facts_of(builder, tmp_path).trace, None, f"run/rank{rank}", run)))
    assert [[row.finding.rule.id for row in one.findings] for one in judgements] == [["DIST007"], ["DIST007"]]
    report = assess(judgements, Source((tmp_path,), SourceKind.TRACE), Health())
    assert [row.recording_ids for row in report.findings] == [("run/rank0", "run/rank1")]


def test_the_shortest_last_batch_of_any_rank_counts(tmp_path: Path) -> None:
    assert _figures(_finding(tmp_path, *_loaders(66, 65)))["samples in shortest last batch"] == 1
