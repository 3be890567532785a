import json
from dataclasses import replace
from pathlib import Path

import pytest

from traceadvisor.bundle import stacks as layout
from traceadvisor.bundle.stacks import MOST_DEPTH, SAMPLES_PER_LINE, read_stacks, write_stacks
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import OnlyCall, Sampled, SampledFrame, SampledStack, StackSamples, TimedSample
from traceadvisor.recording.stacks.tally import MOST_SINGLE

SAMPLES = StackSamples(
    frames=(SampledFrame("train", "train.py", 12, is_user=True), SampledFrame("sleep")),
    stacks=(
        SampledStack((0,), {StepState.PLAIN: Sampled(100, 2), None: Sampled(50, 1)}),
        SampledStack((0, 1), {StepState.OTHER: Sampled(70, 1)}, is_fetching=True),
    ),
    other={StepState.RECORDED: Sampled(30, 1)},
    squares_ns2=2500.0,
    late_ns=20,
    late_by_ns=3,
    cpu_ns=7,
    only_calls=(OnlyCall("train.py", "train", 10, 20, "item", 12, has_calls_outside_loops=True),),
    timed=tuple(TimedSample(7_000 * (at + 1), at % 3 - 1, 5_000, 2_000) for at in range(2 * SAMPLES_PER_LINE + 1)),
)


def written(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "stacks.0.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


HEADER = {
    "record": "header",
    "format": "traceadvisor.stacks/1",
    "squares_ns2": 1.0,
    "late_ns": 0,
    "late_by_ns": 0,
    "cpu_ns": 0,
}
FRAME = {"record": "frame", "function": "f", "file": "a.py", "line": 3, "user": True}


def stack(*frames: int, ns: int = 5, count: int = 1) -> dict[str, object]:
    return {"record": "stack", "frames": frames, "samples": {"plain": [ns, count]}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_stacks(tmp_path / "s", SAMPLES)
    assert read_stacks(tmp_path / "s") == (SAMPLES, ())


def test_sums_are_over_all_samples() -> None:
    assert (SAMPLES.time_ns, SAMPLES.count, SAMPLES.effective_count) == (250, 5, 25.0)


def test_a_file_that_a_kill_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, FRAME, stack(0), '{"record":"stack","frames":[0],"sam')
    found, notes = read_stacks(path)
    assert found
    assert found.time_ns == 5
    assert [note.message for note in notes] == ["1 of 4 lines of stacks.0.jsonl could not be read."]


@pytest.mark.parametrize(
    "line",
    [
        stack(1),
        stack(-1),
        stack(0, ns=-1),
        stack(0, ns=1 << 63),
        stack(0, count=-2),
        stack(*[0] * (MOST_DEPTH + 1)),
        "[" * 5000,
        "null",
        '{"record":"other","samples":{"plain":[1]}}',
        json.dumps(FRAME | {"line": -1}),
        {"record": "call", "file": "a.py", "function": "f", "first_line": 3, "last_line": 5, "name": "g", "line": 6},
        '{"record":"frame","function":"' + "x" * 20_000 + '","file":null,"line":null,"user":true}',
    ],
)
def test_an_impossible_line_is_counted_and_left_out(tmp_path: Path, line: object) -> None:
    found, notes = read_stacks(written(tmp_path, HEADER, FRAME, stack(0), line))
    assert found
    assert found.time_ns == 5
    assert [note.code for note in notes] == ["stacks-dropped"]


def test_a_broken_frame_keeps_the_numbers_of_later_ones(tmp_path: Path) -> None:
    later = FRAME | {"function": "g"}
    found, _ = read_stacks(written(tmp_path, HEADER, FRAME | {"line": "x"}, later, stack(1)))
    assert found
    assert found.frames[found.stacks[0].frames[0]].function == "g"


def test_unknown_states_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    line = {"record": "stack", "frames": [0], "samples": {"plain": [5, 1], "resting": [9, 1]}}
    found, notes = read_stacks(written(tmp_path, HEADER, FRAME, line))
    assert found
    assert (found.time_ns, notes) == (5, ())


@pytest.mark.parametrize(
    "lines", [(), (FRAME, stack(0)), (HEADER | {"format": "traceadvisor.stacks/9"}, FRAME, stack(0))]
)
def test_without_a_header_of_this_format_nothing_is_read(tmp_path: Path, lines: tuple[object, ...]) -> None:
    assert read_stacks(written(tmp_path, *lines))[0] is None


def test_a_header_with_infinite_figures_is_refused(tmp_path: Path) -> None:
    header = json.dumps(HEADER).replace("1.0", "1e999")
    assert read_stacks(written(tmp_path, header, FRAME, stack(0)))[0] is None


def test_a_file_larger_than_any_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LARGEST_STACKS_BYTES", 10)
    found, notes = read_stacks(written(tmp_path, HEADER))
    assert (found, [note.code for note in notes]) == (None, ["stacks-too-large"])


def test_a_missing_file_is_a_note(tmp_path: Path) -> None:
    found, notes = read_stacks(tmp_path / "none")
    assert (found, [note.code for note in notes]) == (None, ["stacks-dropped"])
    assert notes[0].message == "none could not be read: No such file or directory."


def test_the_largest_written_file_is_smaller_than_the_largest_read() -> None:
    longest = layout.MOST_STACKS * (MOST_DEPTH * 6 + 600) + layout.MOST_FRAMES * (2 * layout.LONGEST_TEXT + 100)
    assert longest < layout.LARGEST_STACKS_BYTES


TIMES = {"record": "times", "start_ns": 9000, "samples": [[0, 0, 5, 1], [3, -1, 6, 0]]}


def test_single_samples_have_their_time_since_the_one_before(tmp_path: Path) -> None:
    found, notes = read_stacks(written(tmp_path, HEADER, FRAME, stack(0), TIMES))
    assert found
    assert notes == ()
    assert found.timed == (TimedSample(9000, 0, 5000, 1000), TimedSample(12_000, -1, 6000, 0))


@pytest.mark.parametrize(
    "sample",
    [
        [0, 1, 5, 1],
        [0, -2, 5, 1],
        [-3, 0, 5, 1],
        [0, 0, 1 << 62, 1],
        [0, 0, 1 << 61, 1],
        [0, 0, 5, 1 << 61],
        [0, 0, 5, -1],
    ],
)
def test_impossible_single_samples_are_left_out(tmp_path: Path, sample: list[int]) -> None:
    found, notes = read_stacks(written(tmp_path, HEADER, FRAME, stack(0), TIMES | {"samples": [sample]}))
    assert found
    assert not found.timed
    assert len(notes) == 1


def test_without_a_broken_stack_before_them_single_samples_name_the_right_ones(tmp_path: Path) -> None:
    found, _ = read_stacks(written(tmp_path, HEADER, FRAME, stack(3), stack(0), TIMES))
    assert found
    assert not found.timed


def test_the_single_samples_of_a_week_fit_the_largest_file(tmp_path: Path) -> None:
    """As many as are kept, 20 bytes each, beside the 25 MB of a file without them."""
    many = tuple(TimedSample(at * 2_500_000_000, at % 2, 2_500_000_000, 1_500_000_000) for at in range(20_000))
    write_stacks(tmp_path / "s", replace(SAMPLES, timed=many))
    each = (tmp_path / "s").stat().st_size / len(many)
    assert 25e6 + MOST_SINGLE * each < layout.LARGEST_STACKS_BYTES
    assert max(map(len, (tmp_path / "s").read_bytes().splitlines())) < layout.LONGEST_LINE
    found, _ = read_stacks(tmp_path / "s")
    assert found
    assert found.timed == many
