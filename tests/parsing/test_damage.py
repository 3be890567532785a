"""What is broken costs what is broken and no more, is counted, and is said."""

import gzip
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.build import Framing, TraceBuilder
from tests.pairwise import pairwise
from tests.parsing.reading import expected, read
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.json.decoder import EventDecoder
from traceadvisor.parsing.json.events import MALFORMED, Event
from traceadvisor.parsing.trace_file import read_trace

CHUNKS = [64, 100, 128, 256, 511, 4096]


def many(count: int = 40) -> TraceBuilder:
    builder = TraceBuilder()
    for number in range(count):
        builder.op(f"op {number}", number, number + 1)
    return builder


def trace_of(path: Path) -> Trace:
    return read_trace(Origin(path, run="", worker="worker0", span=""))


BEYOND_REPAIR = {
    "a key without quotes": b'{"ph": "X", cat: "cpu_op", "name": "broken", "ts": 5, "dur": 1, "args": {"a": 1}}',
    "a missing quote": b'{"ph": "X", "cat": "cpu_op", "name": "broken, "ts": 5, "dur": 1, "args": {"a": 1}}',
    "a missing comma": b'{"ph": "X", "cat": "cpu_op" "name": "broken", "ts": 5, "dur": 1, "args": {"a": 1}}',
    "a bare word in a list": b'{"ph": "X", "name": "broken", "args": {"a": [1, {"b": 2}, {"c": x}, {}]}}',
    "a missing brace": b'{"ph": "X", "cat": "cpu_op", "name": "broken", "ts": 5, "dur": 1, "args": {"a": 1}',
}

LIBRARY = 'Library("_test", "IMPL") (1): <module>'
FRAME = '{"device": "cpu", "dtype": "f"}(12): run'

REPAIRABLE = {
    "a path of Windows": (rb'{"ph": "X", "name": "C:\put\x"}', "C:\\put\\x"),
    "a unicode escape that is none": (rb'{"ph": "X", "name": "C:\users"}', "C:\\users"),
    "a control character": (b'{"ph": "X", "name": "a\x01b\nc"}', "a b c"),
    "bytes that are no UTF-8": (b'{"ph": "X", "name": "a \xff b"}', "a \ufffd b"),
    "a lone surrogate": (rb'{"ph": "X", "name": "a \ud800 b", "ts": 5}', "a \ufffd b"),
    "a surrogate at the end": (rb'{"ph": "X", "name": "a \udc00", "ts": 5}', "a \ufffd"),
    "a quote in a name": (b'{"ph": "X", "name": "bro"ken", "ts": 5, "dur": 1}', 'bro"ken'),
    "quotes in a name": (b'{"ph": "X", "name": "Library("_test", "IMPL")\n(1): <module>", "pid": 1}', LIBRARY),
    "a quote at an end": (b'{"ph": "X", "name": "a "b"", "ts": 5, "dur": 1, "args": {"a": [1, "x"]}}', 'a "b"'),
    "a name like JSON": (b'{"ph": "X", "name": "{"device": "cpu", "dtype": "f"}(12): run", "pid": 7}', FRAME),
    "quotes in a stack": (b'{"ph": "X", "name": "a", "args": {"Call stack": "f("x", 1);g", "b": 1}}', "a"),
    "quotes and a backslash": (rb'{"ph": "X", "name": "C:\put "x"", "ts": 5}', 'C:\\put "x"'),
    "nesting without end": (b'{"ph": "X", "name": "a", "args": {"x": ' + b"[" * 5000 + b"]" * 5000 + b"}}", "a"),
    "a bare nan": (b'{"ph": "X", "name": "a", "args": {"x": nan, "y": [NaN, -inf ,Infinity]}}', "a"),
    "not applicable": (b'{"ph": "X", "name": "a", "args": {"x": N/A}}', "a"),
    "a number too large": (b'{"ph": "X", "name": "a", "args": {"blocks per SM": 1e999}}', "a"),
    "a number too long": (b'{"ph": "X", "name": "a", "args": {"correlation": ' + b"9" * 5000 + b"}}", "a"),
}


def between(broken: bytes, position: int) -> bytes:
    """Forty sound events with a broken one among them."""
    whole = [json.dumps(event, default=float).encode() for event in many().events]
    return b'{"traceEvents": [' + b", ".join([*whole[:position], broken, *whole[position:]]) + b'], "after": 1}'


SOUND = [f"op {number}" for number in range(40)]


@pytest.mark.parametrize(("fault", "position", "chunk_bytes"), pairwise(BEYOND_REPAIR, [0, 1, 20, 40], CHUNKS))
def test_an_event_beyond_repair_costs_one_event_and_is_counted(fault: str, position: int, chunk_bytes: int) -> None:
    result = read(between(BEYOND_REPAIR[fault], position), chunk_bytes)
    assert result.names == SOUND
    assert (result.summary.dropped, result.summary.repaired) == (1, 0)
    assert not result.summary.truncated
    assert result.summary.members == {"after": 1}


@pytest.mark.parametrize(("fault", "position", "chunk_bytes"), pairwise(REPAIRABLE, [0, 1, 20, 40], CHUNKS))
def test_an_event_with_a_known_fault_is_repaired_and_counted(fault: str, position: int, chunk_bytes: int) -> None:
    broken, name = REPAIRABLE[fault]
    result = read(between(broken, position), chunk_bytes)
    assert result.names == [*SOUND[:position], name, *SOUND[position:]]
    assert (result.summary.dropped, result.summary.repaired) == (0, 1)
    assert result.summary.members == {"after": 1}


def test_a_repair_leaves_good_escapes_alone() -> None:
    name = 'a "quoted" \\ path\\u0041 \t \u00e9 \U0001f600'
    content = (
        json.dumps([{"ph": "X", "name": name, "x": 0}, {"ph": "X", "name": "last"}])
        .replace('"x": 0', '"x": NaN')
        .encode()
    )
    assert read(content).names == [name, "last"]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize("framing", list(Framing))
def test_text_cut_anywhere_keeps_every_complete_event(framing: Framing, chunk_bytes: int) -> None:
    content = many(6).text(framing=framing)
    first, last = content.index(b'{"ph"'), content.rindex(b"]")
    events = expected(content)
    ends = [content.index(b'"External id":%d}}' % number) + len(b'"External id":1}}') for number in range(1, 7)]
    for cut in range(first, last, 7):
        result = read(content[:cut], chunk_bytes)
        assert result.events == events[: sum(end <= cut for end in ends)]
        assert result.summary.truncated


def test_a_cut_behind_the_events_loses_no_event_and_says_so() -> None:
    content = many(6).text()
    result = read(content[:-20])
    assert len(result.events) == 6
    assert result.summary.truncated


def test_a_cut_before_the_first_event_leaves_nothing() -> None:
    result = read(TraceBuilder().device(0, name="V100").text()[:40])
    assert result.events == []
    assert result.summary.truncated
    assert not result.summary.has_events


def test_a_truncated_file_is_read_as_far_as_it_goes_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.pt.trace.json"
    path.write_bytes(many(40).text()[:-300])
    health = trace_of(path).health
    assert 36 <= health.events_read < 40
    assert health.status is HealthStatus.DEGRADED
    assert [note.code for note in health.notes] == ["truncated"]


@pytest.mark.parametrize(("lost_bytes", "code"), [(1, "packing-damaged"), (8, "packing-damaged"), (100, "truncated")])
def test_a_truncated_gzip_is_read_as_far_as_it_goes_and_says_so(tmp_path: Path, lost_bytes: int, code: str) -> None:
    path = tmp_path / "cut.pt.trace.json.gz"
    packed = gzip.compress(many(2000).text())
    path.write_bytes(packed[:-lost_bytes])
    health = trace_of(path).health
    assert 1000 < health.events_read <= 2000
    assert [note.code for note in health.notes] == [code]


def test_a_gzip_whose_checksum_is_wrong_is_read_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "flipped.pt.trace.json.gz"
    packed = bytearray(gzip.compress(many(40).text()))
    packed[-5] ^= 0xFF
    path.write_bytes(packed)
    health = trace_of(path).health
    assert health.events_read == 40
    assert [note.code for note in health.notes] == ["packing-damaged"]


@pytest.mark.nightly("traceadvisor/parsing")
def test_a_gzip_with_garbage_in_the_middle_keeps_everything_before_it(tmp_path: Path) -> None:
    path = tmp_path / "garbage.pt.trace.json.gz"
    packed = bytearray(gzip.compress(many(20_000).text()))
    middle = len(packed) // 2
    packed[middle : middle + 200] = b"\xff" * 200
    path.write_bytes(packed)
    health = trace_of(path).health
    assert 5_000 < health.events_read < 20_000
    assert health.status is HealthStatus.DEGRADED


@pytest.mark.parametrize("kept_bytes", [0, 1 << 16])
def test_a_gzip_cut_off_while_it_is_read_ends_there(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "emptied.pt.trace.json.gz"
    path.write_bytes(gzip.compress(random.Random(0).randbytes(4 << 20)))
    chunk = bytearray(1 << 20)
    with open_bytes(path) as stream:
        assert stream.readinto(memoryview(chunk)) == len(chunk)
        os.truncate(path, kept_bytes)
        while stream.readinto(memoryview(chunk)):
            pass
        assert stream.damaged
        assert stream.is_growing


def test_a_malformed_event_degrades_the_file_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "broken.pt.trace.json"
    path.write_bytes(many(40).text().replace(b'"op 20"', b"op 20"))
    health = trace_of(path).health
    assert (health.events_read, health.events_dropped) == (39, 1)
    assert [note.code for note in health.notes] == ["events-dropped"]


def test_a_number_of_five_thousand_digits_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "digits.pt.trace.json"
    path.write_bytes(many(40).text().replace(b'"External id":20}', b'"External id":' + b"9" * 5_000 + b"}"))
    assert trace_of(path).health.events_read >= 39


@pytest.mark.nightly("traceadvisor/parsing")
@pytest.mark.parametrize(
    "pattern", ['"name":"', '"name":"a" ', '"name":"\\"', '"', '"s", "', "\\", "[", ",0", '",x:', '"a":nan,', " "]
)
@pytest.mark.parametrize(
    "length", [250_000, pytest.param(1_000_000, marks=pytest.mark.nightly("traceadvisor/parsing"))]
)
def test_a_long_run_of_anything_is_repaired_or_dropped_in_time(pattern: str, length: int) -> None:
    raw = (pattern * (length // len(pattern))).encode()
    started = time.process_time()
    assert EventDecoder(LIMITS, Counter()).repair(raw) == []
    assert time.process_time() - started < 15 * length / 1_000_000


@pytest.mark.nightly("traceadvisor/parsing")
def test_broken_events_before_a_giant_one_do_not_cost_its_length_each() -> None:
    broken = b'{"ph": "X", "name": "a" "ts": 5}, ' * 20_000
    giant = b'{"ph": "X", "name": "' + b"x" * 8_000_000 + b'", "ts": 1}'
    started = time.process_time()
    result = read(b"[" + broken + giant + b', {"ph": "X", "name": "last", "ts": 2}]', chunk_bytes=1 << 20)
    assert result.names[-1] == "last"
    assert result.summary.dropped == 20_000
    assert time.process_time() - started < 20


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize("broken", BEYOND_REPAIR.values(), ids=BEYOND_REPAIR.keys())
def test_a_last_event_beyond_repair_keeps_the_devices_after_it(broken: bytes, chunk_bytes: int) -> None:
    devices = [{"id": number, "name": "V100"} for number in range(3)]
    content = between(broken, 40).replace(b'"after": 1', b'"deviceProperties": ' + json.dumps(devices).encode())
    result = read(content, chunk_bytes)
    assert result.names == SOUND
    assert result.summary.dropped == 1
    assert result.summary.members == {"deviceProperties": devices}


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_repairing_a_single_event_keeps_the_devices_after_it(chunk_bytes: int) -> None:
    result = read(b'{"traceEvents": [{"ph": "X", "name": "a \xff"}], "d": [{"id": 0}, {"id": 1}]}', chunk_bytes)
    assert result.names == ["a \ufffd"]
    assert result.summary.members == {"d": [{"id": 0}, {"id": 1}]}
    assert (result.summary.dropped, result.summary.repaired) == (0, 1)


UNUSUAL = {
    "a key of another writer": '{{"displayName": "a", "ph": "X", "name": {name}, "args": {{"x": {lists}}}}}',
    "the phase last": '{{"displayName": "a", "args": {{"x": {lists}}}, "name": {name}, "ph": "X"}}',
    "an id": '{{"id": 1, "args": {{"x": {lists}}}, "name": {name}, "ph": "X"}}',
    "a key of its own": '{{"{name_alone}": 1, "ph": "X", "name": {name}, "args": {{"x": {lists}}}}}',
    "a key of its own, the phase last": '{{"{name_alone}": 1, "args": {{"x": 2}}, "name": {name}, "ph": "X"}}',
}


@pytest.mark.parametrize(
    ("kind", "position", "chunk_bytes"), pairwise(UNUSUAL, [0, 1, 200, 298, 299], [*CHUNKS, 1 << 20])
)
def test_behind_an_event_beyond_repair_events_are_found_whatever_their_first_key(
    kind: str, position: int, chunk_bytes: int
) -> None:
    form = UNUSUAL[kind]
    lists = '[{"a": 1}, {"b": [{}, {"c": 2}]}]'
    names = [f"op {number}" for number in range(300)]
    events = [form.format(name=json.dumps(name), name_alone=name, lists=lists) for name in names]
    events[position] = events[position].replace(json.dumps(names[position]) + ",", f"{names[position]},")
    result = read(('{"traceEvents": [' + ", ".join(events) + '], "after": 1}').encode(), chunk_bytes)
    assert result.names == [name for name in names if name != names[position]]
    assert result.summary.dropped == 1
    assert result.summary.members == {"after": 1}


def test_events_that_are_lost_together_are_counted_one_by_one() -> None:
    lost = ", ".join(f'{{"{number}": [{{}}, {{}}], "ph": "X", "name": "lost"}}' for number in range(20))
    result = read(b'[{"a" "ph": "X"}, ' + lost.encode() + b', {"ph": "X", "name": "last"}]', 4096)
    assert result.names == ["last"]
    assert result.summary.dropped == 21


class OtherWords(msgspec.DecodeError):
    """What another version of the decoder may raise."""


@pytest.mark.parametrize("broken", [*BEYOND_REPAIR.values(), *(raw for raw, _ in REPAIRABLE.values())])
def test_the_words_of_the_decoders_errors_do_not_matter(broken: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    content = between(broken, 20)
    usual = read(content)
    decode = EventDecoder.events

    def with_other_words(decoder: EventDecoder, array: memoryview | bytes) -> list[Event]:
        try:
            return decode(decoder, array)
        except MALFORMED:
            raise OtherWords("something else") from None

    monkeypatch.setattr(EventDecoder, "events", with_other_words)
    assert read(content) == usual
