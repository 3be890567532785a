"""However a file is cut into chunks, its events are those that a plain JSON reader finds."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Framing, Generation, TraceBuilder
from tests.pairwise import pairwise
from tests.parsing.reading import expected, read
from tests.shared import FORMATS, NO_WORKERS
from traceadvisor.model.limits import Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit

CHUNKS = [64, 65, 100, 127, 128, 200, 256, 511, 512, 4096]


def builder(generation: Generation = Generation.CURRENT) -> TraceBuilder:
    return (
        TraceBuilder(generation, origin_us=1_623_142_623_460_111)
        .device(0, name="Tesla V100-DGXS-32GB", totalGlobalMem=34084028416)
        .step(0, 0, 100)
        .op("aten::mm", 10, 20, stack=["train.py(3): step", "train.py(9): main"], types=["float", "float"])
        .launch(15.25, 18.5, kernel=(20, 60), blocks_per_sm=0.4)
        .copy(60, 62, on_device=(63, 70))
        .thread_name("python")
        .loader(70, 100)
    )


@pytest.mark.parametrize(
    ("chunk_bytes", "framing", "indent", "generation"), pairwise(CHUNKS, Framing, [None, 0, 2], Generation)
)
def test_every_framing_reads_the_same_through_any_chunk(
    chunk_bytes: int, framing: Framing, indent: int | None, generation: Generation
) -> None:
    content = builder(generation).text(framing=framing, indent=indent)
    assert read(content, chunk_bytes).events == expected(content)


@pytest.mark.parametrize("framing", [Framing.OBJECT, Framing.METADATA_LAST])
@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_the_members_around_the_events_are_read_wherever_they_stand(framing: Framing, chunk_bytes: int) -> None:
    members = read(builder().text(framing=framing), chunk_bytes).summary
    assert members.members["deviceProperties"][0]["name"] == "Tesla V100-DGXS-32GB"
    assert members.has_events
    assert not members.truncated


@pytest.mark.parametrize(
    "name",
    [
        "}, {",
        "},{",
        '"}, {"',
        "a { b } c",
        "[[{",
        "}]}",
        "}\n  ,\n  {",
        "\\",
        '\\"}, {',
        "\u00e9\u2028 }, { \U0001f600",
    ],
)
def test_a_boundary_inside_a_name_does_not_split_the_event(name: str) -> None:
    content = TraceBuilder().op("first", 0, 1).op(name, 1, 2).op("last", 2, 3).text()
    for chunk_bytes in CHUNKS:
        assert read(content, chunk_bytes).names == ["first", name, "last"]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_lists_of_objects_inside_arguments_are_no_events(chunk_bytes: int) -> None:
    inner = [{"name": "inner", "ph": "X"}, {"name": "inner", "deep": [{"a": 1}, {"b": [{}, {}]}]}]
    content = TraceBuilder().event(ph="X", name="outer", ts=1, args={"list": inner}).op("last", 2, 3).text()
    assert read(content, chunk_bytes).names == ["outer", "last"]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_trace_events_inside_another_member_are_not_the_events(chunk_bytes: int) -> None:
    content = TraceBuilder().member("nested", {"traceEvents": [{"name": "not this"}, {}]}).op("this", 0, 1).text()
    result = read(content, chunk_bytes)
    assert result.names == ["this"]
    assert result.summary.members["nested"] == {"traceEvents": [{"name": "not this"}, {}]}


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_trace_events_that_are_no_list_are_a_member_like_any_other(chunk_bytes: int) -> None:
    result = read(b'{"traceEvents": null, "traceEvents": [{"ph": "X", "name": "this"}]}', chunk_bytes)
    assert result.names == ["this"]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_the_last_of_two_members_with_one_key_wins(chunk_bytes: int) -> None:
    content = b'{"schemaVersion": 1, "schemaVersion": 2, "traceEvents": [{"name": "a"}], "schemaVersion": 3}'
    assert read(content, chunk_bytes).summary.members == {"schemaVersion": 3}


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_the_events_of_two_lists_of_them_are_read(chunk_bytes: int) -> None:
    content = b'{"traceEvents": [{"ph": "X", "name": "a"}], "b": 1, "traceEvents": [{"ph": "X", "name": "c"}], "d": 2}'
    result = read(content, chunk_bytes)
    assert result.names == ["a", "c"]
    assert result.summary.members == {"b": 1, "d": 2}


def test_the_last_of_two_event_members_with_one_key_wins() -> None:
    assert read(b'[{"ph": "X", "name": "a", "name": "b"}]').names == ["b"]


@pytest.mark.parametrize("content", [b"[]", b'{"traceEvents": []}', b'{"traceEvents": [ ] , "a": 1}'])
def test_no_events_are_no_damage(content: bytes) -> None:
    result = read(content)
    assert result.events == []
    assert result.summary.has_events
    assert not result.summary.truncated


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_a_byte_order_mark_is_skipped(chunk_bytes: int) -> None:
    assert read(b"\xef\xbb\xbf" + builder().text(), chunk_bytes).events == expected(builder().text())


@pytest.mark.parametrize("separator", [b",", b" , ", b",\n\n", b"\r\n\t,\r\n"])
def test_any_white_space_may_stand_between_events(separator: bytes) -> None:
    events = separator.join(b'{"ph": "X", "name": "%d"}' % number for number in range(50))
    assert read(b"[" + events + b"]").names == [str(number) for number in range(50)]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_an_array_that_was_never_closed_is_complete_but_for_its_end(chunk_bytes: int) -> None:
    content = builder().text(framing=Framing.ARRAY)
    result = read(content[:-1], chunk_bytes)
    assert result.events == expected(content)
    assert result.summary.truncated


def test_an_event_larger_than_the_chunk_is_read() -> None:
    long = "x" * 100_000
    assert read(TraceBuilder().op(long, 0, 1).op("last", 1, 2).text()).names == [long, "last"]


def test_metadata_larger_than_the_chunk_are_read() -> None:
    content = TraceBuilder().member("INFO", ["log line, {}"] * 5_000).op("this", 0, 1).text()
    result = read(content)
    assert result.names == ["this"]
    assert len(result.summary.members["INFO"]) == 5_000


TEXTS = st.text('ab}],[{ :"\\,\n\u00e9', max_size=10)
"""Made of what could be taken for structure."""

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "i", "M"]), "name": TEXTS},
    optional={
        "cat": st.sampled_from(["cpu_op", "kernel"]),
        "pid": st.integers(0, 9) | TEXTS,
        "tid": st.integers(0, 9),
        "ts": st.integers(0, 10**15) | st.decimals(0, 10**12, places=3).map(float),
        "args": st.fixed_dictionaries(
            {}, optional={"correlation": st.integers(0, 9), "Input type": st.lists(TEXTS), "x": JSON_VALUES}
        ),
    },
)


@given(
    events=st.lists(EVENTS, max_size=12),
    members=st.dictionaries(st.sampled_from(["a", "b"]), JSON_VALUES),
    indent=st.none() | st.integers(0, 5),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t"), (",\r\n   ", ":")]),
    chunk_bytes=st.integers(16, 700),
)
def test_any_trace_reads_the_same_through_any_chunk(
    events: list[dict[str, Any]],
    members: dict[str, Any],
    indent: int | None,
    separators: tuple[str, str],
    chunk_bytes: int,
) -> None:
    document = {**members, "traceEvents": events, "end": 1}
    content = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False).encode()
    result = read(content, chunk_bytes)
    assert result.events == expected(content)
    assert result.summary.members == {**members, "end": 1}
    assert not result.summary.truncated
    assert result.summary.dropped == 0


def several_devices(device_count: int) -> TraceBuilder:
    trace = builder().distributed(0, 2)
    for number in range(1, device_count):
        trace.device(number, name="Tesla V100-DGXS-32GB", totalGlobalMem=34084028416)
    return trace


@pytest.mark.parametrize(
    ("chunk_bytes", "indent", "device_count"), pairwise([*CHUNKS, 1 << 20], [None, 0, 2, -1], [2, 3, 30])
)
def test_a_list_of_devices_behind_the_events_is_no_part_of_them(
    device_count: int, indent: int | None, chunk_bytes: int
) -> None:
    content = several_devices(device_count).text(framing=Framing.METADATA_LAST, indent=indent)
    result = read(content, chunk_bytes)
    assert result.events == expected(content)
    assert [device["id"] for device in result.summary.members["deviceProperties"]] == list(range(device_count))
    assert result.summary.members["distributedInfo"]["world_size"] == 2
    assert (result.summary.dropped, result.summary.repaired, result.summary.truncated) == (0, 0, False)


@pytest.mark.parametrize("chunk_bytes", [*CHUNKS, 1 << 20])
def test_two_lists_of_several_events_are_read_whole(chunk_bytes: int) -> None:
    events = b", ".join(b'{"ph": "X", "name": "%d"}' % number for number in range(5))
    content = b'{"traceEvents": [' + events + b'], "b": [{"id": 0}, {"id": 1}], "traceEvents": [' + events + b"]}"
    result = read(content, chunk_bytes)
    assert result.names == ["0", "1", "2", "3", "4"] * 2
    assert result.summary.dropped == 0


def test_members_after_the_events_beyond_the_limit_are_left_out_and_counted() -> None:
    devices = b", ".join(b'{"id": %d}' % number for number in range(2000))
    content = b'{"traceEvents": [{"ph": "X", "name": "a"}, {"ph": "X", "name": "b"}], "d": [' + devices + b"]}"
    result = read(content, limits=Limits(event_bytes=1000))
    assert result.names == ["a", "b"]
    assert result.summary.dropped == 0
    assert result.summary.truncated
    assert result.summary.excesses[ExceededLimit.EVENT] == 1


@pytest.mark.nightly("traceadvisor/parsing")
@pytest.mark.parametrize("recording", [NO_WORKERS, FORMATS[0], FORMATS[4]])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_recording_whose_metadata_stand_last_reads_the_same(
    recording: str, indent: int | None, shared_traces: Path
) -> None:
    document = json.loads(gzip.decompress((shared_traces / recording).read_bytes()), strict=False)
    devices = document.get("deviceProperties") or [{"id": 0}]
    document["deviceProperties"] = [*devices, {**devices[0], "id": len(devices)}]
    events = document.pop("traceEvents")
    usual = read(json.dumps({**document, "traceEvents": events}, indent=indent).encode(), 1 << 20)
    moved = read(json.dumps({"traceEvents": events, **document}, indent=indent).encode(), 1 << 20)
    assert moved == usual
    assert len(moved.summary.members["deviceProperties"]) == len(devices) + 1
