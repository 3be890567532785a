"""What every public recording says, written down once and derived twice."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.plain_reading import PlainReading, read
from tests.recordings.figures import of_plain_reading, of_production, table
from tests.shared import RECORDINGS
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.facts import Facts
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace


@cache
def plain_reading_of(path: Path) -> PlainReading:
    return read(path)


@cache
def facts_of(path: Path) -> Facts:
    trace = read_trace(Origin(path, run="", worker="worker0", span=""))
    devices = sorted(set(trace.events.device[link_launches(trace.events).work_rows].tolist()))
    assert len(devices) <= 1
    return Facts(trace, devices[0] if devices else None, "recording")


@pytest.mark.parametrize("name", RECORDINGS)
def test_production_gives_the_figures_of_the_table(name: str, shared_traces: Path) -> None:
    assert of_production(facts_of(shared_traces / name)) == table()[name]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_second_derivation_gives_the_figures_of_the_table(name: str, shared_traces: Path) -> None:
    assert of_plain_reading(plain_reading_of(shared_traces / name)) == table()[name]


@pytest.mark.parametrize("name", RECORDINGS)
def test_both_derivations_agree_on_every_category_of_every_step(name: str, shared_traces: Path) -> None:
    facts, plain = facts_of(shared_traces / name), plain_reading_of(shared_traces / name)
    production = [
        {category.value: part for category, part in row.breakdown.parts_ns.items()} for row in facts.step_rows
    ]
    assert production == [step.breakdown_ns for step in plain.steps]


def test_the_table_holds_every_recording() -> None:
    assert set(table()) == set(RECORDINGS)
