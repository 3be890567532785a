"""The less is known about a recording, the wider the interval of a saving: no limit falls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judging.test_reach import of_origin, recorded
from tests.recordings.advice import Label, Origin, folder_of
from tests.recordings.generated.chance import training_by_chance
from tests.savings.judged import ends_ns
from tests.savings.less_known import REMOVALS, knowing_less

SAME_SHARE = 0.005
"""Share of the step by which a limit may differ."""

OTHER_STEPS_SHARE = 0.03
"""The same where steps are found in another way: others of them are compared, and may be simulated more exactly."""

NOT_CAPTURES = [one for one in REMOVALS if one != "capture"]

RECORDINGS = [one for one in of_origin(Origin.REAL, Origin.GENERATED) if "broken-json" not in one.path]
"""Without the one that no parser of JSON reads, so that nothing can be taken out of it."""


def fallen(path: Path, removal: str, folder: Path) -> Iterator[str]:
    """Limits that fall without something in the recordings under a path, as time and as shares of the step."""
    known, less = (list(recorded(one)) for one in (path, knowing_less(path, removal, folder)))
    assert len(known) == len(less)
    for before, after in zip(known, less, strict=True):
        if not before.step_ns or not after.step_ns:
            continue
        known_ns, noise = ends_ns(before), SAME_SHARE
        if removal == "marks":
            noise = OTHER_STEPS_SHARE + (before.replay.gate.wrong_share if before.replay else 0.0)
        for name, (_, limit_ns) in ends_ns(after).items():
            _, most_ns = known_ns.get(name, (0.0, 0.0))
            share, most = limit_ns / after.step_ns, most_ns / before.step_ns
            if share < most - noise and limit_ns < most_ns - noise * before.step_ns:
                yield f"{name} without {removal}: {most:.1%} falls to {share:.1%}"


@pytest.mark.nightly("traceadvisor/savings", "traceadvisor/replay", "tests/savings")
@pytest.mark.parametrize("removal", NOT_CAPTURES)
@pytest.mark.parametrize("label", RECORDINGS, ids=lambda label: label.path)
def test_no_limit_falls_where_less_is_known(label: Label, removal: str, shared_traces: Path, tmp_path: Path) -> None:
    assert shared_traces.is_dir()
    assert list(fallen(folder_of(label), removal, tmp_path)) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("label", of_origin(Origin.PLANTED), ids=lambda label: label.path)
def test_no_limit_falls_without_the_capture_beside_a_trace(label: Label, tmp_path: Path) -> None:
    assert list(fallen(folder_of(label), "capture", tmp_path)) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("removal", NOT_CAPTURES)
@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_no_limit_falls_on_trainings_by_chance(seed: int, removal: str, tmp_path: Path) -> None:
    (tmp_path / "less").mkdir()
    path = training_by_chance(seed).trace.write(tmp_path / "worker.pt.trace.json.gz")
    assert list(fallen(path, removal, tmp_path / "less")) == []
