from dataclasses import replace
from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.captured import LOOP
from tests.rules.dist.communicating import MIB, on_cpus
from tests.rules.judging import facts_of
from traceadvisor import api
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import judge
from traceadvisor.judging.ranks import compare, rank_recording
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Clear, Finding, Found, RuleOutcome, Skipped
from traceadvisor.model.health import Health
from traceadvisor.model.report import FoundFigures, Source, SourceKind
from traceadvisor.model.run import LoaderSettings, Run, RunSettings
from traceadvisor.rules.dist.dist019_data_on_every_rank import DataOnEveryRank


def _facts(folder: Path, digest: str | None, rank: int, ranks: int, *, hooked: bool = True) -> Facts:
    """A rank whose gradients Gloo reduces, with a loader of 64 samples in batches of 8."""
    builder = TraceBuilder().distributed(rank, ranks)
    for at in builder.steps(3, 100):
        builder.op("aten::mm", at, at + 40)
        on_cpus(builder, at + 50, at + 90, elements=MIB, hooked=hooked)
    loader = LoaderSettings(batch_size=8, sample_count=64, location=LOOP, data_digest=digest)
    run = Run(("train.py",), "ran to its end", (), RunSettings(loader=loader, optimizer="SGD"), None, ranks)
    return Facts(facts_of(builder, folder).trace, None, f"run/rank{rank}", run)


def _outcome(folder: Path, *digests: str | None, hooked: bool = True) -> RuleOutcome:
    """What comes of comparing ranks by the digests of their data."""
    ranks = [_facts(folder, digest, rank, len(digests), hooked=hooked) for rank, digest in enumerate(digests)]
    known = [one for one in map(rank_recording, ranks) if one]
    (row,) = compare(known, [DataOnEveryRank()], {one.recording_id for one in known})
    assert not isinstance(row.outcome, FoundFigures)
    return row.outcome


def test_ranks_with_the_same_data_repeat_each_sample(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, "a", "a", "a", "a")
    assert isinstance(outcome, Found)
    found = outcome.finding
    assert found.of_run
    assert found.saving.high_ns == 75_000  # three quarters of a step of 100 us
    assert {row.label: row.value for row in found.evidence}["times each sample is trained on per epoch"] == 4
    assert "batch_size=8" in (found.fix.change or "")


def test_a_report_on_the_job_says_so(tmp_path: Path) -> None:
    judged = [judge(_facts(tmp_path, "a", rank, 2), [DataOnEveryRank()]) for rank in range(2)]
    report = api.assess(judged, Source((tmp_path,), SourceKind.TRACE), Health(), [DataOnEveryRank()])  # type: ignore[attr-defined]
    (row,) = report.findings
    assert row.finding.fix.summary == "Divide the data among the ranks: each sample is trained on 2 times per epoch"


def test_the_saving_is_a_share_of_undisturbed_steps(tmp_path: Path) -> None:
    ranks = [_facts(tmp_path, "a", rank, 2) for rank in range(2)]
    figures = [replace(one.figures, step_ns=40_000.0) for one in map(rank_recording, ranks) if one]
    outcome = DataOnEveryRank().compare(figures)
    assert isinstance(outcome, Finding)
    assert outcome.saving.high_ns == 20_000


def test_ranks_with_data_of_their_own_are_clear(tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, "a", "b"), Clear)


def test_a_rank_whose_sampler_draws_a_part_is_clear(tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, "a", None), Clear)


def test_unknown_data_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, None, None), Skipped)


def test_ranks_that_reduce_no_gradients_together_may_need_the_same_data(tmp_path: Path) -> None:
    assert isinstance(_outcome(tmp_path, "a", "a", hooked=False), Skipped)


def test_a_single_process_is_skipped(tmp_path: Path) -> None:
    assert isinstance(run_rule(DataOnEveryRank(), _facts(tmp_path, "a", 0, 1)), Skipped)
