"""No rule claims time that its fix cannot reach."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.few import few
from tests.judging.reach import findings, violations
from tests.recordings.advice import Label, Origin, folder_of, labels
from tests.recordings.generated.chance import training_by_chance
from tests.rules.captured import Captured
from tests.rules.judging import facts_of, finding
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.facts import Facts
from traceadvisor.model.findings import Effort, Estimate, Finding, Fix, Method
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader
from traceadvisor.rules.idle.idle010_outside_steps import OutsideSteps
from traceadvisor.savings.outcomes import finding_of

SEEDS = range(60)


def recorded(path: Path) -> Iterator[Facts]:
    """The facts of each recording and device under a path."""
    for origin in find_recordings([path]).origins:
        trace = read_trace(origin)
        run = BundleRuns(origin.bundle).run(origin.rank) if origin.bundle else (None, ())
        for device in trace.device_indices or (None,):
            yield Facts(trace, device, "recording", *run)


def said_wrongly(facts: Facts) -> list[str]:
    return [str(one) for one in violations(facts, tuple(findings(facts)))]


def of_origin(*origins: Origin) -> list[Label]:
    return [label for label in labels() if label.origin in origins]


SOME_PLANTED = pytest.mark.parametrize(
    "label",
    few(
        of_origin(Origin.PLANTED, Origin.GENERATED),
        "traceadvisor/rules",
        "traceadvisor/judging",
        "traceadvisor/savings",
    ),
    ids=lambda label: label.path,
)
"""Recordings of planted faults and generated ones; most of them nightly."""


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("label", of_origin(Origin.REAL), ids=lambda label: label.path)
def test_findings_on_real_recordings_stay_within_reach(label: Label, shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    for facts in recorded(folder_of(label)):
        assert said_wrongly(facts) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("label", of_origin(Origin.PLANTED, Origin.GENERATED), ids=lambda label: label.path)
def test_findings_on_planted_faults_stay_within_reach(label: Label) -> None:
    for facts in recorded(folder_of(label)):
        assert said_wrongly(facts) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("seed", SEEDS)
def test_findings_on_trainings_by_chance_stay_within_reach(seed: int, tmp_path: Path) -> None:
    assert said_wrongly(facts_of(training_by_chance(seed).trace, tmp_path)) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_trainings_by_chance_have_findings_of_many_rules(tmp_path: Path) -> None:
    found = {one.rule.id for seed in SEEDS[::3] for one in _found_by_chance(seed, tmp_path)}
    assert len(found) >= 15


def _found_by_chance(seed: int, folder: Path) -> Iterator[Finding]:
    return findings(facts_of(training_by_chance(seed).trace, folder))


# -- each kind of violation is seen -----------------------------------------------------------------------------------


def _loading_for_60_of_100_us() -> TraceBuilder:
    builder = TraceBuilder()
    for start in builder.steps(6, 100000):
        builder.loader(start, start + 60_000, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", start + 60_000, start + 60_010)
        builder.launch(start + 60_001, start + 60_005, kernel=(start + 60_010, start + 99_000))
        builder.sync(start + 60_020, start + 99_010)
    return builder


def _claiming(tmp_path: Path, **changes: object) -> list[str]:
    """What is wrong with a true finding of 60 ms after some changes."""
    builder = _loading_for_60_of_100_us()
    found = finding(SynchronousLoader(), builder, tmp_path)
    return [str(one).split(":")[0] for one in violations(facts_of(builder, tmp_path), [replace(found, **changes)])]  # type: ignore[arg-type]


def test_a_true_finding_has_no_violation(tmp_path: Path) -> None:
    assert _claiming(tmp_path) == []


def test_time_of_kernels_is_no_claim_of_a_loader_rule(tmp_path: Path) -> None:
    whole = SpanSet.of((0, 600_000_000))
    assert "DATA002 claimed of kernel" in _claiming(tmp_path, claims=whole)


def test_time_outside_the_steps_is_no_claim(tmp_path: Path) -> None:
    beyond = SpanSet.of((0, 60_000_000), (700_000_000, 800_000_000))
    assert "DATA002 claimed outside the steps" in _claiming(tmp_path, claims=beyond)


def test_an_upper_limit_above_the_claimed_time_is_a_violation(tmp_path: Path) -> None:
    saving = Estimate.bound(90_000_000.0, of_the_fix("of a test"))
    assert _claiming(tmp_path, saving=saving) == ["DATA002 saved, as an upper limit, of claimed time"]


def test_a_simulated_saving_above_the_removal_of_the_claimed_time_is_a_violation(tmp_path: Path) -> None:
    first = SpanSet.of((0, 60_000_000))
    assert _claiming(tmp_path, claims=first) == ["DATA002 saved, simulated, of what its claimed time saves"]


def test_a_saving_of_time_that_the_fix_does_not_touch_is_a_violation(tmp_path: Path) -> None:
    # Kernels take 39 of 100 ms and stay.
    saving = Estimate(50e6, 55e6, 70e6, Method.REPLAY)
    assert _claiming(tmp_path, saving=saving) == ["DATA002 saved of what the fix touches"]


def test_a_saving_of_more_than_the_step_is_a_violation(tmp_path: Path) -> None:
    saving = Estimate.bound(150_000_000.0, of_the_fix("of a test"))
    assert "DATA002 saved of the whole step" in _claiming(tmp_path, saving=saving)


@pytest.mark.parametrize(("whole_us", "known"), [(149, []), (151, ["IDLE010 the whole of which a share is saved"])])
def test_a_share_of_more_than_the_run_takes_per_training_step_is_a_violation(
    whole_us: int, known: list[str], tmp_path: Path
) -> None:
    """30 steps take 3600 us, so one takes 120, and may take a quarter more where the profiler was off."""
    facts = Captured(_loading_for_60_of_100_us(), tmp_path).with_steps([20.0] * 30, step_us=100).facts()
    found = finding_of(
        facts, fix=Fix("Wait less"), effort=Effort.LINE, evidence=(), most_share=0.5, whole_ns=1000 * whole_us
    )
    said = violations(facts, [replace(found, rule=OutsideSteps.meta)])
    assert [str(one).split(":")[0] for one in said] == known
