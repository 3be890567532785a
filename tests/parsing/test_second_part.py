"""A file read in two parts, one in another process, gives the trace that one process reads."""

import gzip
import pickle
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import pytest

from tests.build import TraceBuilder
from traceadvisor.errors import InputError
from traceadvisor.model.events import NONE
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.json.chunks import CHUNK_BYTES
from traceadvisor.parsing.second_part import SecondPart, second_part
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.system.executor import Aside

PADDING = {"x": "-" * (1 << 14)}
"""Makes a file of several chunks from few events."""

STEPS = 6 * CHUNK_BYTES // len(PADDING["x"])


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
        builder.python(f"b.py({half}): g", at + 70, at + 80, called=f"a.py:{number}")
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


class Here(Aside):
    """Takes the place of another process: carries out a task when asked for its outcome, on a copy."""

    def __enter__(self) -> Self:
        self._tasks: list[Any] = []
        return self

    def begin(self, task: Any) -> int:
        self._tasks.append(_copied(task))
        return len(self._tasks)

    def outcome(self, number: int) -> Any:
        return _copied(self._tasks[number - 1]({}))


def _copied(value: Any) -> Any:
    """What arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # its own text


def read(path: Path, *, details: bool = True) -> Trace:
    """In one process."""
    return read_trace(Origin(path, run="", worker="w", span="1"), details=details)


def read_in_two(path: Path, kind: type[Aside] = Here, *, details: bool = True) -> Trace:
    """With the help of another process, or of what takes its place."""
    with kind() as aside:
        second = SecondPart(path, aside, details=details)
        return read_trace(Origin(path, run="", worker="w", span="1"), details=details, second=second)


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
    content: bytes, suffix: str, tmp_path: Path, ends: list[bool], *, details: bool
) -> None:
    path = tmp_path / f"a.json{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    trace = read_in_two(path, details=details)
    assert alike(trace, read(path, details=details))
    assert {"aten::mm0", "aten::mm1", "ncclKernel0", "ncclKernel3"} <= set(trace.names)
    assert ends[-1]


@pytest.mark.parametrize("with_lines", [0, 1])
def test_lines_of_calls_in_one_part_only_stay_with_their_calls(
    with_lines: int, tmp_path: Path, ends: list[bool]
) -> None:
    builder = TraceBuilder()
    for number in range(STEPS):
        half = 2 * number // STEPS
        line = f"a.py:{number}" if half == with_lines else None
        builder.python("a.py(3): f", number, number + 1, called=line).event(ph="s", id=number, args=PADDING)
    path = builder.write(tmp_path / "a.json")
    trace = read_in_two(path)
    assert alike(trace, read(path))
    assert ends[-1]
    shown = [trace.texts[call] for call in trace.python_calls.call_from.tolist() if call != NONE]
    halves = [[f"a.py:{number}" for number in range(STEPS) if 2 * number // STEPS == half] for half in (0, 1)]
    assert shown == halves[with_lines]


def test_another_process_reads_the_second_part(content: bytes, tmp_path: Path, ends: list[bool]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read_in_two(path, Aside), read(path))
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
    *,
    place: float,
    damage: tuple[bytes, bytes],
    is_joined: bool,
) -> None:
    begin = int(len(content) * place)
    path = tmp_path / "a.json"
    path.write_bytes(content[:begin] + content[begin:].replace(*damage, 1))
    trace = read_in_two(path)
    assert alike(trace, read(path))
    assert trace.health.events_repaired + trace.health.events_dropped == 1
    assert any(ends) == is_joined


@pytest.mark.parametrize("share", [0.3, 0.54, 0.7, 0.999])
def test_a_file_that_is_cut_off_is_read_alike(content: bytes, share: float, tmp_path: Path, ends: list[bool]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content[: int(len(content) * share)])
    trace = read_in_two(path)
    assert trace.is_truncated
    assert alike(trace, read(path))


def test_a_file_that_was_replaced_meanwhile_is_read_by_one_process(
    content: bytes, tmp_path: Path, ends: list[bool]
) -> None:
    path = tmp_path / "a.json"

    class Later(Here):
        def outcome(self, number: int) -> Any:
            other = tmp_path / "b.json"
            other.write_bytes(content.replace(b"relu", b"gelu"))
            other.replace(path)
            return super().outcome(number)

    path.write_bytes(content)
    assert "aten::gelu" not in read_in_two(path, Later).names
    assert not any(ends)


def test_a_file_that_was_replaced_before_it_is_opened_is_read_by_one_process(
    content: bytes, tmp_path: Path, ends: list[bool]
) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"

    class Between(Here):
        def begin(self, task: Any) -> int:
            other.replace(path)
            return super().begin(task)

    path.write_bytes(content)
    other.write_bytes(content.replace(b"relu", b"gelu"))
    assert alike(read_in_two(path, Between), read(path))
    assert not any(ends)


def test_a_missing_file_is_refused_alike(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_in_two(tmp_path / "a.json")


def _cannot_start(*_: object, **__: object) -> NoReturn:
    raise OSError("no more processes")


def test_without_the_other_process_this_one_reads_everything(
    content: bytes, tmp_path: Path, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", _cannot_start)
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read_in_two(path, Aside), read(path))
    assert not any(ends)


def _die(kept: object) -> NoReturn:
    raise SystemExit(9)


class Dying(Aside):
    """A process that ends as it begins its task."""

    def begin(self, task: Any) -> int:
        return super().begin(_die)


def test_an_unexpected_end_of_the_other_process_costs_only_time(
    content: bytes, tmp_path: Path, ends: list[bool]
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert alike(read_in_two(path, Dying), read(path))
    assert not any(ends)


@pytest.mark.nightly("traceadvisor/parsing")
def test_what_is_no_trace_is_refused_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": [' + b"1," * CHUNK_BYTES + b"1]}")
    with pytest.raises(InputError) as alone:
        read(path)
    with pytest.raises(InputError) as together:
        read_in_two(path)
    assert str(together.value) == str(alone.value)


def test_the_other_process_ends_with_the_part(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with second_part(path, LIMITS) as second:
        assert isinstance(second.aside, Aside)
    assert isinstance(second.aside.outcome(second.aside.begin(len)), OSError)
