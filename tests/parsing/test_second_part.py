"""A file read in two parts, one in another process, gives the trace that one process reads."""

from __future__ import annotations

import gzip
import pickle
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import pytest

from tests.build import TraceBuilder
from traceadvisor.errors import InputError
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing import second_part
from traceadvisor.parsing.json.windows import WINDOW_BYTES
from traceadvisor.parsing.second_part import SecondPart
from traceadvisor.parsing.trace_file import read_trace

PADDING = {"x": "-" * (1 << 14)}
"""Makes a file of several windows from few events."""

STEPS = 6 * WINDOW_BYTES // len(PADDING["x"])


def recording() -> TraceBuilder:
    """A recording in which both parts hold every kind of event, and each names and threads of its own."""
    builder = TraceBuilder().device()
    for number in range(STEPS):
        at, half = 100 * number, 2 * number // STEPS
        shape = [[number % 7, 3], [3, half]]
        builder.step(number, at, at + 90).thread_name(f"loop {number}", thread=number // 9)
        builder.op(f"aten::mm{half}", at, at + 9, dims=shape, types=["float"] * 2, stack=[f"a.py({half}): f"])
        builder.op("aten::relu", at + 10, at + 19, thread=50 + half, sequence=number, forward_thread=half)
        builder.copy(at + 20, at + 22, on_device=(at + 25, at + 30), direction="h2d")
        builder.memory(at + 40, 512, total_allocated=512 * number, thread=50 + half)
        name, sent = f"ncclKernel{number % 3 + half}", (1 << number % 4, "Float")
        builder.collective(at + 45, at + 50, kernel=(at + 50, at + 60), name=name, stream=7 + half, message=sent)
        builder.event(ph="s", id=number, args=PADDING)
    return builder


@pytest.fixture(scope="module")
def content() -> bytes:
    return recording().text(indent=2)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What the reader of the first part was told whenever it asked for the second one."""
    told: list[bool] = []
    asked = SecondPart.ends

    def ends(self: SecondPart, *given: Any) -> bool:
        told.append(asked(self, *given))
        return told[-1]

    monkeypatch.setattr(SecondPart, "ends", ends)
    yield told
    assert told


class Here:
    """Takes the place of another process: works when it is asked, on a copy, and returns a copy."""

    def __init__(self, work: Callable[[Any, Any], Any], item: Any) -> None:
        self._work, self._item = work, _copied(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def outcome(self) -> Any:
        return _copied(self._work(self._item, lambda amount: None))


def _copied(value: Any) -> Any:
    """What arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # its own text


def read(path: Path, *, in_two: bool, details: bool = True) -> Trace:
    return read_trace(Origin(path, run="", worker="w", span="1"), details=details, in_two=in_two)


def alike(one: Any, other: Any) -> bool:
    """Whether two traces, or parts of them, are the same."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if is_dataclass(one):
        names = [field.name for field in fields(one) if field.name != "known"]
        return all(alike(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


@pytest.mark.parametrize("details", [True, False])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_both_ways_give_the_same_trace(  # the cases
    content: bytes, suffix: str, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch, *, details: bool
) -> None:
    monkeypatch.setattr(second_part, "Aside", Here)
    path = tmp_path / f"a.json{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    trace = read(path, in_two=True, details=details)
    assert alike(trace, read(path, in_two=False, details=details))
    assert {"aten::mm0", "aten::mm1", "ncclKernel0", "ncclKernel3"} <= set(trace.names)
    assert ends[-1]


def test_another_process_reads_the_second_part(content: bytes, tmp_path: Path, ends: list[bool]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read(path, in_two=True), read(path, in_two=False))
    assert ends == [False] * (len(ends) - 1) + [True]


@pytest.mark.parametrize(
    ("place", "damage", "is_joined"),
    [
        (0.2, (b'"cat": "cpu_op"', b'"cat": "cpu_\x01op"'), False),
        (0.8, (b'"cat": "cpu_op"', b'"cat": "cpu_\x01op"'), True),
        (0.2, (b'"External id": ', b'"External id": ["x"], "": '), True),
        (0.8, (b'"cat": "cpu_op"', b"no JSON"), True),
        (0.2, (b"\n    },\n    {", b"\n    }, 42,\n    {"), False),
    ],
    ids=["malformed first part", "malformed second part", "wrong type", "beyond repair", "no object"],
)
def test_damage_is_treated_alike(
    content: bytes,
    tmp_path: Path,
    ends: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    *,
    place: float,
    damage: tuple[bytes, bytes],
    is_joined: bool,
) -> None:
    monkeypatch.setattr(second_part, "Aside", Here)
    begin = int(len(content) * place)
    path = tmp_path / "a.json"
    path.write_bytes(content[:begin] + content[begin:].replace(*damage, 1))
    trace = read(path, in_two=True)
    assert alike(trace, read(path, in_two=False))
    assert trace.health.events_repaired + trace.health.events_dropped == 1
    assert any(ends) == is_joined


@pytest.mark.parametrize("share", [0.3, 0.54, 0.7, 0.999])
def test_a_file_that_is_cut_off_is_read_alike(
    content: bytes, share: float, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_part, "Aside", Here)
    path = tmp_path / "a.json"
    path.write_bytes(content[: int(len(content) * share)])
    trace = read(path, in_two=True)
    assert trace.is_truncated
    assert alike(trace, read(path, in_two=False))


def test_a_file_that_was_replaced_meanwhile_is_read_by_one_process(
    content: bytes, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"

    class Later(Here):
        def outcome(self) -> Any:
            other = tmp_path / "b.json"
            other.write_bytes(content.replace(b"relu", b"gelu"))
            other.replace(path)
            return super().outcome()

    monkeypatch.setattr(second_part, "Aside", Later)
    path.write_bytes(content)
    assert "aten::gelu" not in read(path, in_two=True).names
    assert not any(ends)


def _dies(part: object, tell: object) -> NoReturn:
    raise SystemExit(9)


def _cannot_start(*_: object, **__: object) -> NoReturn:
    raise OSError("no more processes")


def test_without_the_other_process_this_one_reads_everything(
    content: bytes, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", _cannot_start)
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read(path, in_two=True), read(path, in_two=False))
    assert not any(ends)


def test_an_unexpected_end_of_the_other_process_costs_only_time(
    content: bytes, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_part, "_read", _dies)
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read(path, in_two=True), read(path, in_two=False))
    assert not any(ends)


def test_what_is_no_trace_is_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_part, "Aside", Here)
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": [' + b"1," * WINDOW_BYTES + b"1]}")
    with pytest.raises(InputError) as alone:
        read(path, in_two=False)
    with pytest.raises(InputError) as together:
        read(path, in_two=True)
    assert str(together.value) == str(alone.value)
