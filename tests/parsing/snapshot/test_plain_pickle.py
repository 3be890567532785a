"""A pickle of plain values is read as the standard unpickler reads it; anything else is refused before it can act."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from traceadvisor.parsing.snapshot.plain_pickle import NotPlainError, read_plain

STACK = [{"name": "forward", "filename": "model.py", "line": 7}, {"name": "main", "filename": "train.py", "line": 300}]


def _events(count: int) -> list[dict[str, Any]]:
    """Events as torch writes them: shared keys, shared frames, one text of its own each."""
    return [
        {
            "action": ("alloc", "free_completed")[number % 2],
            "addr": 1 << (number % 62),
            "size": number * 77 - 1,
            "frames": list(STACK[: number % 3]),
            "context": "".join(["N", "/A"]),
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_flat_dicts_come_back_with_their_numbers_words_and_lists(protocol: int) -> None:
    events = _events(2_000)
    plain = read_plain(pickle.dumps({"events": events}, protocol))
    assert isinstance(plain.root, dict)
    read = plain.dicts(plain.root["events"])
    assert read.numbers("addr").tolist() == [one["addr"] for one in events]
    assert read.numbers("size").tolist() == [one["size"] for one in events]
    assert read.words("action", {"alloc": 5}, 9).tolist() == [5, 9] * 1_000
    lists = read.lists("frames").tolist()
    for event, number in zip(events, lists, strict=True):
        assert list(plain.dicts(plain.lists[number])) == event["frames"]
    assert [one["context"] for one in read] == ["N/A"] * 2_000
    assert read.numbers("no such key").tolist() == [-1] * 2_000


def test_most_dicts_go_into_columns() -> None:
    plain = read_plain(pickle.dumps(_events(2_000)))
    assert isinstance(plain.root, list)
    assert sum(type(one) is int for one in plain.root) > 1_900


def test_values_of_any_size_and_kind_are_kept() -> None:
    values = {"a": [None, True, 1.5, "é" * 300, -(1 << 62) + 9, (0, 7)], "b": {}, "c": [], 3: "x"}
    assert read_plain(pickle.dumps({"outer": [values]})).root == {"outer": [values]}


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


REFUSED: dict[str, bytes] = {
    "a call": pickle.dumps([_Trap()]),
    "a call of protocol 0": pickle.dumps([_Trap()], 0),
    "a class": pickle.dumps({"segments": OrderedDict(a=1)}),
    "a path": pickle.dumps(Path("a")),
    "a set": pickle.dumps({1, 2}),
    "bytes": pickle.dumps(b"\0" * 999),
    "a large number": pickle.dumps(1 << 64),
    "deep tuples": pickle.dumps((((1, 2), 3), 4)),
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02K\x01Q.",
    "a memo entry far beyond": b"\x80\x02]r\xff\xff\xff\x7f.",
    "an unknown memo entry": b"\x80\x02]h\x05a.",
    "a text beyond the end": b"\x80\x04X\xff\xff\xff\x7fabc.",
    "an end without a beginning": b"\x80\x04e.",
    "a list as a key": b"\x80\x04}]K\x01s.",
    "an item of a number": b"\x80\x04K\x01K\x02a.",
    "nothing": b"\x80\x04.",
    "no end": pickle.dumps({"a": 1})[:-1],
    "no instruction": b"\x80\x04]\xff.",
    "nothing but lists": b"\x80\x04" + b"]" * 200_000 + b".",
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=list(REFUSED))
def test_anything_else_is_refused_and_nothing_is_called(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotPlainError):
        read_plain(content)
    assert not any(tmp_path.iterdir())


def test_the_memory_for_a_memo_entry_far_beyond_the_file_is_never_asked_for() -> None:
    with pytest.raises(NotPlainError, match="LONG_BINPUT at byte 3 is cut off or out of range"):
        read_plain(b"\x80\x02]r" + (70_000).to_bytes(4, "little") + b".")


def test_the_error_names_the_instruction() -> None:
    with pytest.raises(NotPlainError, match=r"STACK_GLOBAL at byte \d+ makes more than plain containers"):
        read_plain(REFUSED["a call"])


def test_a_pickle_that_is_cut_anywhere_is_refused() -> None:
    whole = pickle.dumps({"events": _events(5)})
    for size in range(2, len(whole) - 1):
        with pytest.raises(NotPlainError):
            read_plain(whole[:size])


def test_deep_nesting_does_no_harm() -> None:
    nested = b"\x80\x04" + b"](K\x01" * 5_000 + b"e" * 5_000 + b"."
    assert isinstance(read_plain(nested).root, list)
