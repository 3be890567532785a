"""What would use up memory or time is left out, and said, with the option that lets it in."""

import gzip
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.parsing.reading import read
from traceadvisor.errors import InputError, UsageError
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.trace_file import read_trace

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}'
MIB = 1 << 20


def trace_of(content: bytes, folder: Path, limits: Limits = LIMITS) -> Trace:
    path = folder / "worker0.1.pt.trace.json"
    path.write_bytes(content)
    return read_trace(Origin(path, "", "", ""), limits=limits)


def notes_of(trace: Trace) -> dict[str, str]:
    return {note.code: note.message for note in trace.health.notes}


def bomb(mebibytes: int, content: bytes = b" ") -> bytes:
    """A gzipped list of events that begins as any does; a thousand times smaller than what it holds."""
    filling = content * (MIB // len(content))
    return gzip.compress(b"[" + EVENT + filling * mebibytes + b"]")


@pytest.mark.nightly("traceadvisor/parsing")
def test_a_gzip_bomb_without_events_is_refused_with_the_option_that_lets_it_in(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 32 * MIB))
    with pytest.raises(InputError) as caught:
        read_trace(Origin(path, "", "", ""))
    assert caught.value.found == ("The file decompresses to more than 200 times its size; reading stopped there")
    assert "raise inflation_ratio" in caught.value.remedy


@pytest.mark.nightly("traceadvisor/parsing")
def test_the_beginning_of_a_gzip_bomb_is_read(tmp_path: Path) -> None:
    trace = trace_of(bomb(32), tmp_path)
    assert trace.health.events_read == 1
    assert trace.is_truncated
    assert list(notes_of(trace)) == ["limit-inflation-ratio"]


@pytest.mark.nightly("traceadvisor/parsing")
def test_with_a_larger_limit_all_of_it_is_read(tmp_path: Path) -> None:
    trace = trace_of(bomb(32, b"," + EVENT), tmp_path, replace(LIMITS, inflation_ratio=2000))
    assert trace.health.events_read == 1 + 32 * (MIB // (1 + len(EVENT)))
    assert notes_of(trace) == {}


def test_a_small_file_may_unpack_to_many_times_its_size(tmp_path: Path) -> None:
    packed = bomb(4)
    assert LIMITS.inflation_ratio * len(packed) < 4 * MIB
    assert notes_of(trace_of(packed, tmp_path)) == {}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_more_bytes_than_are_read_are_left_out(pack: type[bytes], tmp_path: Path) -> None:
    content = b"[" + b",".join([EVENT] * 100_000) + b"]"
    trace = trace_of(pack(content), tmp_path, replace(LIMITS, inflated_bytes=2 * MIB))
    assert 0 < trace.health.events_read < 100_000
    assert "raise inflated_bytes" in notes_of(trace)["limit-inflated-bytes"]


@pytest.mark.parametrize("chunk_bytes", [64, 256, 4096])
@pytest.mark.parametrize("filling", [b"x" * 100_000, b"}, {" * 25_000, b'\\"}, {\\"' * 12_500])
def test_an_event_too_large_costs_itself(filling: bytes, chunk_bytes: int) -> None:
    small = replace(LIMITS, event_bytes=2_000)
    giant = EVENT.replace(b'"a"', b'"' + filling + b'"')
    content = b"[" + b", ".join([EVENT, EVENT, giant, EVENT, EVENT]) + b"]"
    result = read(content, chunk_bytes, small)
    assert result.names == ["a"] * 4
    assert result.summary.dropped == 1
    assert result.summary.excesses == {ExceededLimit.EVENT: 1}
    assert len(read(content, chunk_bytes, replace(small, event_bytes=1_000_000)).names) == 5


def test_a_list_too_large_in_an_event_costs_itself() -> None:
    giant = EVENT[:-1] + b', "args": {"list": [' + b", ".join([b'{"inner": 1}'] * 5_000) + b"]}}"
    result = read(b"[" + b", ".join([EVENT, giant, EVENT]) + b"]", limits=replace(LIMITS, event_bytes=2_000))
    assert result.names == ["a", "a"]


def test_a_description_too_large_is_refused_with_the_option_that_lets_it_in(tmp_path: Path) -> None:
    content = b'{"INFO": "' + b"x" * 20_000 + b'", "traceEvents": [' + EVENT + b"]}"
    small = replace(LIMITS, event_bytes=2_000)
    with pytest.raises(InputError, match=r"Entries larger than 2000 bytes.*raise event_bytes"):
        trace_of(b" " * 2 * MIB + content, tmp_path, small)
    assert trace_of(content, tmp_path).health.events_read == 1


def test_values_nested_too_deep_in_an_event_are_left_out(tmp_path: Path) -> None:
    deep = EVENT[:-1] + b', "args": {"deep": ' + b"[" * 100_000 + b"]" * 100_000 + b', "correlation": 7}}'
    trace = trace_of(b"[" + deep + b"]", tmp_path)
    assert trace.events.correlation.tolist() == [7]
    assert trace.health.events_repaired == 1
    assert "raise nesting_depth" in notes_of(trace)["limit-nesting-depth"]


def test_values_nested_too_deep_in_the_metadata_are_left_out(tmp_path: Path) -> None:
    nested = b"[" * 100_000 + b"]" * 100_000
    content = b'{"deep": {"a": [[1]], "b": ' + nested + b'}, "traceEvents": [' + EVENT + b"]}"
    result = read(content, 4096, replace(LIMITS, nesting_depth=3))
    assert result.summary.members == {"deep": {"a": [[1]], "b": [[None]]}}
    assert result.summary.excesses == {ExceededLimit.DEPTH: 1}
    assert result.names == ["a"]


FILLINGS = {
    "lists": b"[" + b"[]," * 100_000 + b"0]",
    "a text": b'"' + b"x" * 300_000 + b'"',
    "numbers that are none": b"[" + b"NaN, " * 60_000 + b'"]"]',
    "a lone surrogate": b'["\\ud800", "' + b"]" * 300_000 + b'"]',
    "nested deep": b"[" * 150_000 + b"]" * 150_000,
}


@pytest.mark.parametrize("filling", FILLINGS.values(), ids=FILLINGS.keys())
@pytest.mark.parametrize("side", ["before", "behind"])
def test_members_too_large_together_keep_their_names(filling: bytes, side: str) -> None:
    sides = (b'"small": [1], "large": ' + filling + b', "after": {"a": 2}', b'"end": 3')
    first, last = sides if side == "before" else sides[::-1]
    content = b"{" + first + b', "traceEvents": [' + EVENT + b"], " + last + b"}"
    result = read(content, 1 << 16, replace(LIMITS, member_bytes=100_000))
    assert result.names == ["a"]
    assert result.summary.members == {"small": [1], "large": None, "after": {"a": 2}, "end": 3}
    assert result.summary.excesses == {ExceededLimit.MEMBER: 1}
    assert not result.summary.truncated


@pytest.mark.nightly("traceadvisor/parsing")
def test_a_member_too_large_is_reported_without_being_decoded(tmp_path: Path) -> None:
    large = b'{"INFO": [' + b"[]," * 2 * MIB + b'0], "traceEvents": [' + EVENT + b"]}"
    tracemalloc.start()
    trace = trace_of(large, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "raise member_bytes" in notes_of(trace)["limit-member-bytes"]
    assert peak < 8 * len(large)


def test_more_names_of_members_than_are_kept_are_left_out() -> None:
    members = b", ".join(b'"member %d": {}' % number for number in range(1_000))
    result = read(b"{" + members + b', "traceEvents": [' + EVENT + b"]}", limits=replace(LIMITS, member_bytes=120))
    assert list(result.summary.members) == [f"member {number}" for number in range(len(result.summary.members))]
    assert len(result.summary.members) == 12
    assert result.names == ["a"]


@pytest.mark.parametrize(("longest", "kept"), [(999, None), (1000, 10**1000 - 1)])
def test_a_number_of_too_many_digits_is_left_out(longest: int, kept: int | None) -> None:
    content = b'{"digits": ' + b"9" * 1000 + b', "traceEvents": [' + EVENT + b"]}"
    result = read(content, limits=replace(LIMITS, integer_digits=longest))
    assert result.summary.members == {"digits": kept}
    assert result.summary.excesses.total() == (kept is None)


def test_a_number_of_too_many_digits_in_an_event_costs_itself(tmp_path: Path) -> None:
    content = (
        TraceBuilder().launch(0, 1, kernel=(2, 3)).text().replace(b'"correlation":1', b'"correlation":' + b"9" * 5000)
    )
    trace = trace_of(content, tmp_path)
    assert trace.health.events_read == 2
    assert "raise integer_digits" in notes_of(trace)["limit-integer-digits"]


def test_a_giant_text_keeps_its_beginning_in_any_member(tmp_path: Path) -> None:
    giant = "x" * 1000
    builder = TraceBuilder().thread_name(giant).op(giant, 0, 1, types=[giant]).op(giant, 1, 2)
    builder.event(ph="X", cat=giant, name="b", pid=giant, tid=1, ts=1, dur=1, args={"Call stack": giant + "y"})
    builder.event(ph="X", cat="kernel", name="k", pid=0, tid=7, ts=3, dur=1, args={"stream": giant})
    trace = trace_of(builder.text(), tmp_path, replace(LIMITS, text_length=100))
    texts = [*trace.names, *trace.texts, *trace.streams, *(thread.name or "" for thread in trace.threads)]
    assert max(map(len, texts)) == 100
    assert trace.names.count("x" * 100) == 1
    assert "raise text_length" in notes_of(trace)["limit-text-length"]


def test_no_recording_made_as_usual_meets_a_limit(tmp_path: Path) -> None:
    builder = TraceBuilder().op("void at::native::vectorized_elementwise_kernel<4>" * 100, 0, 1, dims=[[1, 2], [3]])
    assert notes_of(builder.trace(tmp_path)) == {}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"The limit {name} must be at least 1"):
        replace(LIMITS, **{name: 0})
