"""The factors of simulated fixes beside the measurements that they rest on."""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.recordings.advice import PAGE, with_block
from traceadvisor.replay.fixes.data_wait import HOST_FACTOR, KEPT_CACHES_SHARE
from traceadvisor.replay.fixes.host_work import FREED_SHARE
from traceadvisor.replay.fixes.kernels import CAST_LAUNCHES
from traceadvisor.replay.fixes.launches import GAP_FACTOR, LAUNCH_FACTOR
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.gpu.optimizer_on_cpu import LEFT_OF_OTHERS, LEFT_ON_CPU

LOW, HIGH = Scenario.LOW, Scenario.HIGH

INTERVALS = {
    "launches in a graph": (LAUNCH_FACTOR[HIGH], LAUNCH_FACTOR[LOW]),
    "gap between queued kernels": (GAP_FACTOR[HIGH], GAP_FACTOR[LOW]),
    "launches in 16 bits": (1.0, CAST_LAUNCHES),
    "fused Adam on the CPU": (LEFT_ON_CPU["Adam"][HIGH], LEFT_ON_CPU["Adam"][LOW]),
    "fused SGD or Adagrad on the CPU": (LEFT_OF_OTHERS[HIGH], LEFT_OF_OTHERS[LOW]),
    "rest of the step beside workers": (HOST_FACTOR[HIGH] - KEPT_CACHES_SHARE, HOST_FACTOR[LOW]),
    "rest of the step without other work": (1 - FREED_SHARE, 1.0),
}
"""The least and the most that is left, as the simulation assumes."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measurement."""

    factor: str
    program: str
    device: str
    torch: str
    left: float
    source: str


FACTORS = tuple(
    msgspec.convert(row, Measured)
    for row in tomllib.loads(Path(__file__).with_name("factors.toml").read_text(encoding="utf-8"))["measured"]
)


@pytest.mark.parametrize("one", FACTORS, ids=lambda one: f"{one.factor}: {one.program}")
def test_a_measured_factor_lies_in_its_interval(one: Measured) -> None:
    least, most = INTERVALS[one.factor]
    assert least <= one.left <= most


def test_every_assumed_interval_of_the_table_is_measured_once_at_least() -> None:
    assert {one.factor for one in FACTORS} == set(INTERVALS)


def test_the_table_of_factors_is_in_the_documentation(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE, with_block("factors", "\n".join(_table()) + "\n"))


def _table() -> Iterator[str]:
    yield "| left | interval | measured | on | from the other programs alone |"
    yield "|---|---|---|---|---|"
    for name, (least, most) in INTERVALS.items():
        found = [one for one in FACTORS if one.factor == name]
        measured = ", ".join(f"{one.left:.2f}" for one in found)
        devices = "; ".join(dict.fromkeys(one.device for one in found))
        yield f"| {name} | {least:.2f} to {most:.2f} | {measured} | {devices} | {_left_out(found)} |"


def _left_out(found: Sequence[Measured]) -> str:
    """How many of the measurements the range of the same factor in other programs holds."""
    inside = [_is_inside(one, found) for one in found]
    judged = [one for one in inside if one is not None]
    return f"{sum(judged)} of {len(judged)} inside" if judged else "no other program"


def _is_inside(one: Measured, found: Sequence[Measured]) -> bool | None:
    others = [row.left for row in found if _program(row) != _program(one)]
    return min(others) <= one.left <= max(others) if others else None


def _program(one: Measured) -> str:
    return one.program.partition(",")[0]
