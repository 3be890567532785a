"""Whatever is done to a file, it gives a result whose sums hold, or a clear error."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import Framing, Generation, TraceBuilder
from tests.few import few
from tests.fuzz.case import Group, make_case
from tests.fuzz.examination import Depth, examine
from tests.fuzz.subjects import built, captures, laid_out, small_recordings
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.judging.recording import recording_of
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace

PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"null",
    b"NaN",
    b"-1",
    b"1e308",
    b"1e999",
    b"9" * 25,
    b"\xff",
]

MUTATIONS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 40),
        st.sampled_from([b"", *PIECES]) | st.binary(max_size=3),
    ),
    min_size=1,
    max_size=6,
)
"""Where, as a share of the file; how many bytes are cut out there; what is put in their place."""


def recording(generation: Generation, framing: Framing, indent: int | None) -> bytes:
    builder = TraceBuilder(generation, origin_us=1_623_142_623_460_111).device(0, name="V100").profiler_span(0, 300)
    for at in builder.steps(3, 100):
        builder.loader(at, at + 10).op("aten::mm", at + 10, at + 30, types=["float"])
        builder.launch(at + 15, at + 18, kernel=(at + 20, at + 60), blocks_per_sm=0.5, occupancy_percent=30)
        builder.copy(at + 31, at + 32, on_device=(at + 60, at + 64)).item(at + 40, at + 80, copy=(at + 70, at + 71))
    return builder.text(framing=framing, indent=indent)


@settings(max_examples=150)
@given(st.sampled_from(Generation), st.sampled_from(Framing), st.none() | st.just(2), MUTATIONS)
def test_a_damaged_recording_gives_a_result_or_a_clear_error(
    generation: Generation, framing: Framing, indent: int | None, mutations: list[tuple[float, int, bytes]]
) -> None:
    content = bytearray(recording(generation, framing, indent))
    for share, cut, piece in mutations:
        at = int(share * len(content))
        content[at : at + cut] = piece
    with TemporaryDirectory() as folder:
        path = Path(folder) / "worker0.1.pt.trace.json"
        path.write_bytes(content)
        outcome = trace_or_message(path)
    if isinstance(outcome, str):
        assert str(path) in outcome
    else:
        device = 0 if outcome.events.rows(*DEVICE_WORK).size else None
        rows = recording_of(Facts(outcome, device, "recording")).steps
        assert all(row.breakdown.duration_ns == row.step.duration_ns for row in rows)


@cache
def own_subjects() -> tuple[Group, ...]:
    return Group(1, (*built(), *laid_out())), Group(1, tuple(captures()))


@cache
def public_subjects() -> tuple[Group, ...]:
    return (Group(1, tuple(small_recordings())),)


@pytest.mark.parametrize("number", few(range(40), "traceadvisor/parsing"))
def test_a_report_of_something_damaged_keeps_its_promises(number: int, tmp_path: Path) -> None:
    depth = Depth.JUDGED if number % 10 else Depth.SHOWN
    examine(make_case(own_subjects(), 0, number).write(tmp_path), depth)


@pytest.mark.usefixtures("shared_traces")
@pytest.mark.parametrize("number", few(range(20), "traceadvisor/parsing"))
def test_a_report_of_a_damaged_public_recording_keeps_its_promises(number: int, tmp_path: Path) -> None:
    depth = Depth.JUDGED if number % 10 else Depth.SHOWN
    examine(make_case(public_subjects(), 0, number).write(tmp_path), depth)


def trace_or_message(path: Path) -> Trace | str:
    try:
        return read_trace(Origin(path, run="", worker="worker0", span="1"))
    except InputError as error:
        return str(error)
