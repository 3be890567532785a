"""What a fault costs: about its own event and one chunk decoded again, however large the file."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.build import TraceBuilder
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.json.chunks import ChunkReader
from traceadvisor.parsing.json.decoder import EventDecoder
from traceadvisor.parsing.json.events import Event

CHUNK_BYTES = 1 << 14
EVENTS = 4_000

FAULTS = {
    "a control character": (b'"op 1500"', b'"op \x01 1500"'),
    "bytes that are no UTF-8": (b'"op 1500"', b'"op \xff 1500"'),
    "an unescaped quote": (b'"op 1500"', b'"op "1500"'),
    "no number": (b'"External id":1501', b'"External id":nan'),
    "a number too large": (b'"External id":1501', b'"External id":1501,"blocks per SM":1e999'),
    "beyond repair": (b'"op 1500"', b"op 1500"),
    "nested too deep": (b'"External id":1501', b'"x":' + b"[" * 2000 + b"]" * 2000),
}


class Spent:
    """What was asked of the decoder."""

    def __init__(self) -> None:
        self.decoded_bytes = 0
        self.repaired = 0


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spent]:
    """Counts what is decoded meanwhile."""
    spent = Spent()
    decode, repair = EventDecoder.events, EventDecoder.repair

    def events(decoder: EventDecoder, array: memoryview | bytes) -> list[Event]:
        spent.decoded_bytes += len(array)
        return decode(decoder, array)

    def repaired(decoder: EventDecoder, raw: bytes) -> list[Event]:
        spent.repaired += 1
        return repair(decoder, raw)

    with monkeypatch.context() as patch:
        patch.setattr(EventDecoder, "events", events)
        patch.setattr(EventDecoder, "repair", repaired)
        yield spent


def read(content: bytes) -> int:
    """How many events there are."""
    reader = ChunkReader(ByteStream(io.BytesIO(content)), chunk_bytes=CHUNK_BYTES)
    return sum(len(chunk) for chunk in reader.chunks())


def content(sound: bytes = b"", broken: bytes = b"") -> bytes:
    """Operators, with something in them replaced."""
    builder = TraceBuilder()
    for number in range(EVENTS):
        builder.op(f"op {number}", number, number + 1)
    return builder.text().replace(sound, broken)


def test_a_sound_file_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = content()
    with watched(monkeypatch) as spent:
        assert read(text) == EVENTS
    assert spent.decoded_bytes < 1.01 * len(text)
    assert spent.repaired == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_costs_one_event_and_a_chunk_decoded_again(
    fault: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = content(*fault)
    assert len(text) > 20 * CHUNK_BYTES
    with watched(monkeypatch) as spent:
        assert read(text) >= EVENTS - 1
    assert spent.decoded_bytes < 1.01 * len(text) + 3 * CHUNK_BYTES
    assert spent.repaired == 1


def test_a_fault_in_every_event_costs_at_most_one_chunk_each(monkeypatch: pytest.MonkeyPatch) -> None:
    text = content(b'"name":"op ', b'"name":"\x01op ')
    with watched(monkeypatch) as spent:
        assert read(text) == EVENTS
    assert spent.repaired == EVENTS
    assert spent.decoded_bytes < EVENTS * CHUNK_BYTES


@pytest.mark.parametrize("nested", [b'{"a":1}', b'{"name":"inner"}'])
def test_a_long_list_in_an_event_costs_a_few_attempts(nested: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    giant = b'{"ph":"X","name":"giant","args":{"list":[' + b",".join([nested] * 50_000) + b"]}}"
    text = b"[" + b",".join([giant, giant, b'{"ph":"X","name":"last"}']) + b"]"
    with watched(monkeypatch) as spent:
        assert read(text) == 3
    assert spent.decoded_bytes < 40 * len(text)
