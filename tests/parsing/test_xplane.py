import json
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random
from shutil import copy

import pytest

from traceadvisor import api
from traceadvisor.errors import InputError
from traceadvisor.model.findings import Found, Skipped
from traceadvisor.model.limits import Limits
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.model.workload import Framework
from traceadvisor.parsing import xplane
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.parsing.xplane import chrome_json

HERE = Path(__file__).parent / "xplane"
JAX, UNNAMED, TENSORFLOW = (HERE / f"{name}.xplane.pb" for name in ("jax_annotated", "jax_unnamed", "tf_loop"))
"""Eight steps each, of which nearly all is input. The second has no marks, and no name that tells of its input."""

OF_TORCH = re.compile(r"DataLoader|num_workers|pin_memory|\.item\(|torch\.|persistent")


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def _field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _profile(name: bytes, events: bytes) -> bytes:
    """A profile of one thread whose events have one name, with the number 1."""
    line = _field(3, _field(2, b"python") + events)
    named = _field(4, _field(1, 1) + _field(2, _field(1, 1) + _field(2, name)))
    return _field(1, _field(2, b"/host:CPU") + line + named)


def _event(offset_ps: int, duration_ps: int) -> bytes:
    return _field(4, _field(1, 1) + _field(2, offset_ps) + _field(3, duration_ps))


def _text(data: bytes, limits: Limits | None = None) -> tuple[bytes, bool]:
    """The text made of a profile, and whether it was damaged."""
    stream, whole, block = chrome_json(Path("a.xplane.pb"), BytesIO(data), limits or Limits()), b"", bytearray(1 << 16)
    try:
        while count := stream.readinto1(memoryview(block)):
            whole += block[:count]
    except EOFError:
        return whole, True
    return whole, False


def _read(path: Path) -> Trace:
    return read_trace(Origin(path, "run", "host", ""))


def _finding(path: Path) -> tuple[str, list[str], str, str]:
    """Rule, places, fix and evidence of the first finding."""
    first = api.load(path).findings[0].finding
    places = [f"{one.file} {one.function}" for one in first.locations]
    words = " ".join(f"{row.label}: {row.value}" for row in first.evidence)
    return first.rule.id, places, f"{first.fix.summary} {first.fix.change}", words


def test_events_keep_their_times_to_the_nanosecond() -> None:
    text, is_damaged = _text(_profile(b"load_batch", _event(1_234_567, 2_000_400) + _event(5_000_000, 1_000)))
    timed = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert not is_damaged
    assert b'"ts":1.235,"dur":2.000}' in text
    assert [(one["name"], one["cat"]) for one in timed] == [("load_batch", "user_annotation")] * 2


def test_a_profile_of_jax_has_its_steps_python_calls_and_operations() -> None:
    report = api.load(JAX)
    (recording,) = report.recordings
    assert (recording.framework, recording.step_source) == (Framework.JAX, StepSource.MARKS)
    assert [row.step.index for row in recording.steps] == [*range(8)]
    assert {"dot", "wrapped_tanh"} <= {row.name for row in recording.operators}
    assert "train_jax.py(20): load" in _read(JAX).names


def test_the_first_advice_on_jax_is_on_its_own_input_code() -> None:
    rule, places, fix, evidence = _finding(JAX)
    assert (rule, places[0]) == ("DATA014", "train_jax.py load")
    assert "another thread or process" in fix
    assert "recognised by: load_batch" in evidence
    assert not OF_TORCH.search(fix)


def test_the_first_advice_on_tensorflow_names_the_stage_of_its_pipeline() -> None:
    rule, _, fix, evidence = _finding(TENSORFLOW)
    assert rule == "DATA014"
    assert "map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)" in fix
    assert "slowest stage of tf.data: Map" in evidence


def test_time_in_code_whose_name_says_nothing_is_not_called_input() -> None:
    report = api.load(UNNAMED)
    (recording,) = report.recordings
    rule, places, _, _ = _finding(UNNAMED)
    assert (rule, recording.step_source, recording.loader_kinds) == ("IDLE012", StepSource.COMPILED, ())
    assert places[0] == "train_jax.py batch_of"
    assert any("input is unknown" in caveat for caveat in report.findings[0].finding.caveats)


@pytest.mark.parametrize("path", [JAX, UNNAMED, TENSORFLOW], ids=lambda path: path.name)
def test_checks_of_pytorch_are_silent_on_other_frameworks(path: Path) -> None:
    outcomes = api.load(path).outcomes
    spoke = {row.rule_id for row in outcomes if isinstance(row.outcome, Found) or not isinstance(row.outcome, Skipped)}
    assert spoke <= {"DATA014", "IDLE012"}


def test_the_excerpt_beside_a_profile_is_not_read_and_profiles_of_a_run_follow_one_another(tmp_path: Path) -> None:
    for run, date in (("a", "2026_01_01"), ("a", "2026_01_02"), ("b", "2026_01_01")):
        folder = tmp_path / run / "plugins" / "profile" / date
        folder.mkdir(parents=True)
        copy(JAX, folder / "host.xplane.pb")
        (folder / "host.trace.json.gz").write_bytes(b'{"traceEvents": []}')
    found = find_recordings([tmp_path])
    assert [f"{one.run} {one.worker} {one.cycle}" for one in found.origins] == ["a host 0", "a host 1", "b host 0"]
    assert not found.notes


def test_without_protobuf_the_message_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    xplane._messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(InputError, match=re.escape("pip install 'traceadvisor[xplane]'")):
        _read(JAX)


@pytest.mark.parametrize("content", [b"\xff" * 40, b"\x0a", b"not a profile", _field(1, b""), JAX.read_bytes()[:60]])
def test_what_is_no_profile_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(InputError, match="no whole profile of XLA"):
        _read(path)


def test_a_profile_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(JAX.read_bytes()[:-2000])
    assert _read(path).is_truncated


def _damaged() -> Iterator[bytes]:
    random, whole = Random(0), JAX.read_bytes()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(random.choice((1, 3, 20))):
            data[random.randrange(len(data))] = random.randrange(256)
        yield bytes(data[: random.choice((len(data), random.randrange(len(data))))])


def test_a_damaged_profile_is_always_text_of_a_trace() -> None:
    for data in _damaged():
        text, _ = _text(data)
        assert json.loads(text)["framework"] in {one.value for one in Framework}


@pytest.mark.parametrize(
    "tag",
    [b"\x0b" * 1000, b"\x80" * 1000, *(_field(1, b"\x1a" + b"\xff" * count + b"\x01") for count in (9, 4))],
    ids=["nested groups", "endless integer", "length of 2**64", "length of 2**35"],
)
def test_hostile_encodings_end_the_reading(tag: bytes) -> None:
    assert _text(tag)[1]


def test_a_long_name_is_cut_and_what_is_not_utf_8_replaced() -> None:
    text, _ = _text(_profile(b"\xff" * 100_000, _event(0, 1000)), Limits(text_length=50))
    assert json.loads(text)["traceEvents"][-1]["name"] == "\ufffd" * 50


def test_a_name_repeated_by_tiny_events_ends_at_the_ratio(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(_profile(b"n" * 20_000, _event(0, 1000) * 20_000))
    assert [note.code for note in _read(path).health.notes] == ["limit-inflation-ratio"]
