"""Time in which collectives only wait for other ranks is no communication: no finding claims it."""

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.few import few
from tests.rules.dist.communicating import report_of
from tests.rules.judging import facts_of
from traceadvisor import load
from traceadvisor.analysis.communication.matching import matching
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.judging.files import FileJudge, NamedFile
from traceadvisor.judging.ranks import waits
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Effort, Fix, Found, Input, Outcome, RuleMeta
from traceadvisor.model.ranks import CollectiveCalls
from traceadvisor.model.report import Report
from traceadvisor.model.spans import SpanSet
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rules.base import Rule
from traceadvisor.savings.outcomes import finding_of

US = 1_000
WALL_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Greedy(Rule):
    """Claims all communication of the recording."""

    meta = RuleMeta("ACME001", "greedy", "Greedy")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.COMMUNICATION})

    def check(self, facts: Facts) -> Outcome:
        claims = facts.partition[Category.COMMUNICATION]
        fix = Fix("Change it", not_replayed="of a test")
        return finding_of(facts, claims=claims, fix=fix, effort=Effort.LINE, evidence=())


def rank_builder(  # all that ranks differ in
    number: int,
    arrivals: list[int],
    *,
    world_size: int = 2,
    elements: int = 1 << 20,
    group_size: int = 2,
    first_step: int = 0,
) -> TraceBuilder:
    """Steps of 100 us, each with a kernel until the rank arrives at an all-reduce that ends at 90 on every rank."""
    builder = TraceBuilder().distributed(number, world_size).base_time(WALL_NS)
    for step, arrival in enumerate(arrivals):
        at = 100 * step
        builder.step(first_step + step, at, at + 99).launch(at, at + 1, kernel=(at + 1, at + arrival))
        builder.launch(at + 3, at + 4, kernel=(at + 90, at + 98))
        args = {"Collective name": "allreduce", "Group size": group_size}
        builder.collective(
            at + 2, at + 3, kernel=(at + arrival, at + 90), stream=9, message=(elements, "Float"), args=args
        )
        builder.sync(at + 5, at + 98)
    return builder


def _exposed_us(report: Report, rank: int) -> float:
    """Exposed communication that DIST003 finds on a rank, per step; 0 if it finds too little."""
    cases = [case for row in report.findings for case in (row.by_recording or (row,))]
    found = [one.finding for one in cases if one.recording_ids == (report.recordings[rank].id,)]
    return sum(one.claims.total_ns for one in found if one.rule.id == "DIST003") / 4 / US


def _claimed_waits(folder: Path) -> list[str]:
    """Findings of a report that claim waits for other ranks, which are computed from the traces anew."""
    judge = FileJudge(())
    ranks = [
        one.rank
        for origin in find_recordings([folder]).origins
        for one in judge(NamedFile(origin, str(origin.path)), lambda _: None).judgements
        if one.rank
    ]
    found = waits(ranks)
    report = load(folder)
    paths = {one.id: str(one.path) for one in report.recordings}
    return [
        f"{case.finding.rule.id} claims {both.total_ns} ns of {recording_id}"
        for row in report.findings
        for case in row.by_recording or (row,)
        for recording_id in case.recording_ids
        if (both := case.finding.claims & found.get(paths[recording_id], SpanSet.empty()))
    ]


def test_one_rank_alone_does_not_show_what_is_waiting(tmp_path: Path) -> None:
    report = report_of(tmp_path, rank_builder(0, [40] * 4))
    assert _exposed_us(report, 0) == 50
    found = [row.finding for row in report.findings]
    assert any("only the recordings of all ranks together show it" in caveat for one in found for caveat in one.caveats)


def test_communication_of_a_rank_that_waits_is_only_its_transfer(tmp_path: Path) -> None:
    report = report_of(tmp_path, rank_builder(0, [40] * 4), rank_builder(1, [70] * 4))
    assert (_exposed_us(report, 0), _exposed_us(report, 1)) == (20, 20)
    found = [row.finding for row in report.findings]
    assert not any("together show it" in caveat for one in found for caveat in one.caveats)


def test_waiting_is_no_communication_to_shorten(tmp_path: Path) -> None:
    report = report_of(tmp_path, rank_builder(0, [40] * 4), rank_builder(1, [89] * 4))
    assert [row.finding.rule.id for row in report.findings if row.finding.rule.id.startswith("DIST")] == ["DIST005"]


def test_bandwidth_follows_from_the_transfer(tmp_path: Path) -> None:
    report = report_of(tmp_path, rank_builder(0, [40] * 4), rank_builder(1, [80] * 4))
    assert [one.communication[0].algorithm_bytes_per_s for one in report.recordings] == pytest.approx(
        [4 * 2**20 / 10e-6] * 2
    )


def test_ranks_of_other_groups_are_not_waited_for(tmp_path: Path) -> None:
    """Four ranks reduce in pairs: which pair a rank is in is not recorded."""
    ranks = [rank_builder(number, [40 + 10 * number] * 4, world_size=4, group_size=2) for number in range(4)]
    assert _exposed_us(report_of(tmp_path, *ranks), 0) == 50


def test_collectives_of_other_kinds_are_not_matched() -> None:
    one = CollectiveCalls(*(np.array(values) for values in ([1, 1], [0, 50], [30, 30], [0, 1])))
    other = CollectiveCalls(*(np.array(values) for values in ([1, 1], [0, 50], [30, 30], [1, 0])))
    assert matching([one, other]) is None
    assert matching([one, one]) is not None


def test_a_transfer_beside_a_wait_is_no_wait() -> None:
    """One collective waits from 0 to 50 and transfers until 60; the other one transfers from 20 to 30."""
    mine = CollectiveCalls(*(np.array(values) for values in ([1, 1], [0, 20], [60, 10], [0, 0])))
    late = CollectiveCalls(*(np.array(values) for values in ([1, 1], [50, 20], [10, 10], [0, 0])))
    found = matching([mine, late])
    assert found
    assert found.waits(0) == SpanSet.of((0, 20), (30, 50))
    assert not found.waits(1)


def test_no_rule_can_claim_waits(tmp_path: Path) -> None:
    facts = facts_of(rank_builder(0, [40] * 4), tmp_path)
    all_ns = facts.partition[Category.COMMUNICATION].total_ns
    waiting = SpanSet.of(*((100 * US * step + 40 * US, 100 * US * step + 70 * US) for step in range(4)))
    known = Facts(facts.trace, 0, "recording", rank_waits=waiting)
    for one, left_ns in ((facts, all_ns), (known, all_ns - 4 * 30 * US)):
        outcome = run_rule(Greedy(), one)
        assert isinstance(outcome, Found)
        assert outcome.finding.claims.total_ns == left_ns
        assert outcome.finding.saving.high_ns <= left_ns / 4 + 1


@pytest.mark.parametrize("seed", few(range(12), "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"))
def test_no_finding_on_ranks_by_chance_claims_waits(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(chance.randint(2, 4)):
        arrivals = [chance.randint(10, 89) for _ in range(4)]
        rank_builder(number, arrivals).write(tmp_path / f"host_{number}.1700000000000.pt.trace.json")
    assert _claimed_waits(tmp_path) == []


@pytest.mark.parametrize("seed", few(range(12), "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"))
def test_no_finding_on_damaged_ranks_claims_waits(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(3):
        text = bytearray(rank_builder(number, [chance.randint(10, 89) for _ in range(5)]).text())
        if chance.random() < 0.5:
            del text[chance.randrange(len(text)) :]
        for _ in range(chance.randint(0, 20)):
            text[chance.randrange(len(text))] = chance.randrange(32, 127)
        (tmp_path / f"host_{number}.1700000000000.pt.trace.json").write_bytes(text)
    try:
        assert _claimed_waits(tmp_path) == []
    except InputError:
        assert not any(len(one.read_bytes()) > 10_000 for one in tmp_path.iterdir()), "a whole file can be read"


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("folder", ["ranks/dlrm-v100-8-ranks", "ascend/two-ranks-level1"])
def test_no_finding_on_public_ranks_claims_waits(folder: str, shared_traces: Path) -> None:
    assert _claimed_waits(shared_traces / folder) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_eight_public_ranks_mostly_wait_for_one(shared_traces: Path) -> None:
    folder = shared_traces / "ranks" / "dlrm-v100-8-ranks"
    report = load(folder)
    first = report.findings[0].finding
    evidence = {one.label: one.value for one in first.evidence}
    assert (first.rule.id, evidence["late rank"]) == ("DIST005", 7)
    assert evidence["collectives that it enters last"] == "5 of 8"
    assert evidence["transfer in all collectives, at most"] == sum(_shortest_us(folder)) * US == 217 * US
    assert not {row.finding.rule.id for row in report.findings} & {"DIST003", "DIST006", "DIST010", "DIST014"}


def _shortest_us(folder: Path) -> list[int]:
    """The shortest of each collective over the ranks, from the files themselves."""
    by_rank = []
    for path in sorted(folder.iterdir()):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        kernels = [one for one in events if one.get("cat") == "kernel" and one["name"].startswith("nccl")]
        by_rank.append([one["dur"] for one in sorted(kernels, key=lambda one: one["ts"])])
    return [min(each) for each in zip(*by_rank, strict=True)]


def test_the_collectives_of_a_rank_keep_their_recorded_time(shared_traces: Path) -> None:
    """Waits leave the breakdown as it is: they are part of communication there."""
    path = shared_traces / "ranks" / "dlrm-v100-8-ranks" / "worker0_step_12.1694128201545.pt.trace.json.gz"
    (origin,) = find_recordings([path]).origins
    facts = Facts(read_trace(origin), 0, "recording", rank_waits=SpanSet.of((0, 10**12)))
    recorded = facts.trace.events.spans(facts.trace.events.rows(Kind.COLLECTIVE))
    assert facts.partition[Category.COMMUNICATION].total_ns > 0.9 * recorded.total_ns
    assert not facts.claim(Category.COMMUNICATION)


@pytest.mark.parametrize(("world_size", "is_said"), [(2, False), (8, True)])
def test_a_late_rank_among_a_part_of_the_ranks_may_not_be_the_latest(
    tmp_path: Path,
    world_size: int,
    is_said: bool,  # noqa: FBT001
) -> None:
    for number, arrivals in enumerate(([20] * 6, [70] * 6)):
        builder = rank_builder(number, arrivals, world_size=world_size, group_size=world_size)
        builder.write(tmp_path / f"w{number}.{number}.pt.trace.json")
    (found,) = [row.finding for row in load(tmp_path, processes=1).findings if row.finding.rule.id == "DIST005"]
    assert any(f"Only 2 of {world_size} ranks" in text for text in found.caveats) == is_said
