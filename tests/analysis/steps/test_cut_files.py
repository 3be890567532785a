"""Of a file that is cut off anywhere, only whole steps count: they are as long as in the whole file."""

import gzip
from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.few import few
from tests.shared import CHECKOUT, LATER_RECORDINGS, RECORDINGS
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

SAMPLES = (*CHECKOUT.glob("sample_traces/*/*.pt.trace.json.gz"), *CHECKOUT.glob("tests/parsing/xplane/*.xplane.pb"))

SAME = 0.02
"""Share by which a step may differ, as its last operation on another stream may not belong to it."""


def read(content: bytes, folder: Path, ending: str = ".pt.trace.json") -> list[Facts]:
    """The facts of each device, none where nothing can be read."""
    path = folder / f"worker0.1{ending}"
    path.write_bytes(content)
    try:
        trace = read_trace(Origin(path, "", "worker0", "1"), details=False)
    except InputError:
        return []
    return [Facts(trace, device, "recording") for device in trace.device_indices or (None,)]


def check(part: list[Facts], whole: list[Facts]) -> None:
    """What is stated of a part is true of the whole."""
    recorded = {step.index: step.duration_ns for facts in whole for step in facts.steps.kept}
    for facts in part:
        assert (
            (facts.typical is None) == (not facts.steps.kept) == ("no-complete-step" in {n.code for n in facts.notes})
        )
        assert not (facts.steps.kept and facts.steps.source is StepSource.WINDOW)
        for step in facts.steps.kept:
            assert step.duration_ns == pytest.approx(recorded.get(step.index, step.duration_ns), rel=SAME), step.index
        if facts.typical:
            shortest_ns, longest_ns = min(recorded.values()), max(recorded.values())
            assert (1 - SAME) * shortest_ns <= facts.typical.duration_ns <= (1 + SAME) * longest_ns


@pytest.mark.nightly("traceadvisor/analysis/steps")
@pytest.mark.parametrize("lag_us", [0, 60, 150])
def test_a_gpu_trace_cut_behind_any_event_states_no_wrong_step(lag_us: int, tmp_path: Path) -> None:
    """First what threads did, then calls and kernels as they end: the order in which the profiler writes."""
    builder = TraceBuilder().device(0, name="A100")
    for start in builder.steps(6, 100):
        builder.op("aten::mm", start, start + 20)
        builder.op("autograd::engine::evaluate_function: MmBackward0", start + 40, start + 60, thread=AUTOGRAD)
        for launch in range(4):
            at = start + 20 * launch
            thread = AUTOGRAD if launch > 1 else 100
            builder.launch(at, at + 4, kernel=(at + lag_us + 5, at + lag_us + 24), thread=thread)
    events = builder.events
    host = [one for one in events if one["cat"] in {"cpu_op", "user_annotation"}]
    rest = sorted((one for one in events if one not in host), key=lambda one: one["ts"] + one["dur"])
    builder.events[:] = host + rest
    content = builder.text()
    whole = read(content, tmp_path)
    stated = 0
    for at in [place for place in range(len(content)) if content[place : place + 2] == b"},"]:
        part = read(content[: at + 2], tmp_path)
        check(part, whole)
        stated += any(facts.typical for facts in part)
    assert stated > len(rest) // 3  # steps before the cut do count


def _cut_anywhere(path: Path, folder: Path, places: int) -> None:
    content = path.read_bytes()
    ending = ".xplane.pb" if path.suffix == ".pb" else ".pt.trace.json"
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    whole = read(content, folder, ending)
    for place in range(1, places):
        check(read(content[: len(content) * place // places], folder, ending), whole)


@pytest.mark.parametrize(
    "path", few(SAMPLES, "traceadvisor/analysis/steps"), ids=lambda path: f"{path.parent.name}-{path.name[:12]}"
)
def test_a_sample_cut_at_many_places_states_no_wrong_step(path: Path, tmp_path: Path) -> None:
    _cut_anywhere(path, tmp_path, 6)


@pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis/steps")
@pytest.mark.parametrize("name", RECORDINGS + LATER_RECORDINGS)
def test_a_public_recording_cut_at_many_places_states_no_wrong_step(
    name: str, shared_traces: Path, tmp_path: Path
) -> None:
    _cut_anywhere(shared_traces / name, tmp_path, 12)


def test_a_packed_file_that_is_cut_off_is_no_other_case(tmp_path: Path) -> None:
    content = SAMPLES[0].read_bytes()
    whole = read(content, tmp_path)
    for place in (3, 6, 9):
        check(read(content[: len(content) * place // 10], tmp_path), whole)


def test_a_cut_recording_without_step_marks_states_no_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in range(0, 100, 10):
        builder.op("aten::mm", at, at + 9)
    content = builder.text()
    (facts,) = read(content[:-60], tmp_path)
    assert not facts.steps.steps
    assert next(one.message for one in facts.notes if one.code == "no-steps").startswith(
        "The recording has no step marks, and its file is cut off: no step is whole."
    )
