"""The workloads of the benchmarks are what they claim to be, and the benchmarks run. Nothing is timed here."""

import gzip
import json
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from benchmarks import capture_overhead
from benchmarks.bench import Bench
from benchmarks.contenders import BREAKDOWN, DECODE, GZIP, HELP, INFLATE, LOAD, PLUGIN, REPORT, Contender
from benchmarks.goals import Goal
from benchmarks.measuring import RunError, Series, Usage, measure
from benchmarks.reading import BEGIN, END, Part, Workloads, document, measured, put_into
from benchmarks.results import Ratio, Results, Workload
from benchmarks.stages import time_stages
from benchmarks.workloads import Framing, build, json_bytes, template
from tests.build import Generation, TraceBuilder
from tests.children import run
from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind
from traceadvisor.model.health import Health
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace

REPEATS = 3
ORIGIN_US = 1_600_000_000_000_000


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Steps 8 and 9 of 100 us, each with a fetch of 20 us and a kernel of 45 us, as the profiler would write them."""
    builder = TraceBuilder(Generation.Y2021, origin_us=ORIGIN_US)
    for begin, number in ((0, 8), (100, 9)):
        builder.step(number, begin, begin + 100).loader(begin, begin + 20).op("aten::mm", begin + 30, begin + 50)
        builder.launch(begin + 40, begin + 45, kernel=(begin + 45, begin + 90))
        builder.event(ph="s", cat="async", name="launch", id=number - 7, pid=100, tid=100, ts=ORIGIN_US + begin + 40)
    builder.thread_name("main").profiler_span(0, 210)
    return builder.write(tmp_path / "worker0.1.pt.trace.json.gz", indent=2)


def read(path: Path) -> Trace:
    return read_trace(Origin(path, "", "worker0", "1"))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("framing", Framing)
def test_a_workload_has_n_times_the_steps_and_the_events(
    recording: Path, tmp_path: Path, framing: Framing, *, packed: bool
) -> None:
    trace = read(build(recording, REPEATS, tmp_path, framing, packed=packed))

    facts = Facts(trace, 0, "worker0")
    assert [step.index for step in facts.steps.kept] == [8, 9, 10, 11, 12, 13]
    counts = {
        kind: trace.events.rows(kind).size for kind in (Kind.ANNOTATION, Kind.OPERATOR, Kind.RUNTIME, Kind.KERNEL)
    }
    assert counts == {Kind.ANNOTATION: 12, Kind.OPERATOR: 6, Kind.RUNTIME: 6, Kind.KERNEL: 6}
    assert trace.health == Health(events_read=12 + 6 + 6 + 6 + 1)  # and the profiler's own span
    assert trace.threads[0].name == "main"


def test_every_repetition_breaks_down_as_the_recording_does(recording: Path, tmp_path: Path) -> None:
    once, often = (Facts(read(path), 0, "worker0") for path in (recording, build(recording, REPEATS, tmp_path)))

    assert [row.breakdown for row in often.step_rows] == [row.breakdown for row in once.step_rows] * REPEATS


def test_every_kernel_of_a_workload_is_linked_to_a_launch_of_its_own(recording: Path, tmp_path: Path) -> None:
    launches = Facts(read(build(recording, REPEATS, tmp_path)), 0, "worker0").launches

    assert np.unique(launches.call_rows).size == REPEATS * 2
    assert launches.call_rows.min() >= 0


def test_flow_ids_go_on_with_the_correlation_ids(recording: Path, tmp_path: Path) -> None:
    events = json.loads(build(recording, REPEATS, tmp_path, packed=False).read_bytes())["traceEvents"]

    assert [event["id"] for event in events if event["ph"] == "s"] == [1, 2, 3, 4, 5, 6]


def test_the_profilers_span_covers_all_repetitions(recording: Path, tmp_path: Path) -> None:
    events = read(build(recording, REPEATS, tmp_path)).events

    row = events.rows(Kind.PROFILER_SPAN)
    assert events.duration_ns[row].tolist() == [(210 + 2 * 201) * 1000]  # a repetition begins 201 us after the last


def test_a_workload_is_as_long_as_its_gzip_file_says(recording: Path, tmp_path: Path) -> None:
    path = build(recording, REPEATS, tmp_path)

    assert json_bytes(path) == len(gzip.decompress(path.read_bytes()))
    assert template(recording).event_count(REPEATS) == len(
        json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    )


def test_a_workload_is_made_once(recording: Path, tmp_path: Path) -> None:
    first = build(recording, REPEATS, tmp_path)
    first.write_bytes(b"as it was")

    assert build(recording, REPEATS, tmp_path).read_bytes() == b"as it was"


def test_every_stage_of_a_report_is_timed(recording: Path) -> None:
    names = [stage.name for stage in time_stages(recording)]

    assert names[:3] == ["read: inflate", "read: decode", "read: columns"]
    assert "rule: DATA001 dataloader-wait" in names
    assert names[-1] == "report: HTML"


@pytest.mark.nightly("traceadvisor")
@pytest.mark.parametrize("contender", [LOAD, PLUGIN], ids=lambda contender: contender.title)
def test_a_reader_makes_something_of_a_recording(contender: Contender, recording: Path, tmp_path: Path) -> None:
    assert measure(contender.argv(recording, tmp_path)).peak_bytes > 0  # it raises where nothing came of it


@pytest.mark.nightly("benchmarks")
def test_results_are_written_between_the_markers_of_a_document(recording: Path, tmp_path: Path) -> None:
    document_path = tmp_path / "performance.md"
    document_path.write_text(f"Before.\n{BEGIN}old\n{END}After.\n")
    small, large = (Workload(build(recording, times, tmp_path), times, times) for times in (1, 10))
    inputs = Workloads(Workload(recording, 1, 1), small, large, None, {})
    counts = {GZIP: 1, INFLATE: 1, DECODE: 1, BREAKDOWN: 1, REPORT: 1}

    results = measured(inputs, list(Part), counts, peers_on=[])
    put_into(document_path, document(results, inputs, ["a machine"]))

    lines = document_path.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    assert "old" not in lines
    for contender in counts:
        assert sum(line.startswith(f"| {contender.title} | 1 |") for line in lines) == 3
    assert sum("torch-tb-profiler, run data | 0 | left out of this run" in line for line in lines) == 3
    assert results.of(inputs.recording, HELP)
    left_out = ("torch-tb-profiler", "5 times as much")
    assert not any("not measured" in line for line in lines if not any(words in line for words in left_out))


def test_a_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text("Prose.\n")

    with pytest.raises(click.ClickException, match="has no lines"):
        put_into(path, "figures")
    assert path.read_text() == "Prose.\n"


def test_a_reader_that_is_not_installed_has_a_row_that_says_so(recording: Path) -> None:
    bench, workload = Bench(), Workload(recording, 1, 1)
    stranger = Contender("stranger", ("stranger", "{trace}"), "a-distribution-that-nobody-made", is_peer=True)

    bench.run(workload, {stranger: 1})

    assert bench.results.series[workload, stranger].not_run == "no stranger here"


def test_a_reader_that_fails_says_why() -> None:
    with pytest.raises(RunError, match="failed: out of luck"):
        measure((sys.executable, "-c", "import sys; sys.exit('out of luck')"))


def test_a_reader_killed_by_the_system_is_named_with_its_signal() -> None:
    with pytest.raises(RunError, match="signal 9"):
        measure((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))


def test_peak_memory_is_the_commands_own() -> None:
    ballast = bytearray(200_000_000)

    assert measure((sys.executable, "-c", "bytearray(50_000_000)")).peak_bytes in range(50_000_000, 150_000_000)
    assert len(ballast) == 200_000_000


def test_what_would_not_fit_into_memory_is_not_tried(recording: Path, tmp_path: Path) -> None:
    bench = Bench()
    small, huge = Workload(recording, 1, 1), Workload(build(recording, 2, tmp_path), 10**9, 10**9)
    bench.results.series[small, GZIP] = Series([Usage(1.0, 1.0, 0.0, 10**6)])

    bench.run(huge, {GZIP: 1}, after=small)

    assert bench.results.series[huge, GZIP].not_run == "would take about 931323 GiB of memory, more than there is"


def test_ratios_are_of_medians() -> None:
    workload, results = Workload(Path("trace.json.gz"), 1, 1), Results()
    for contender, walls in ((GZIP, (1.0, 2.0, 9.0)), (REPORT, (5.0, 6.0, 7.0))):
        results.series[workload, contender] = Series(
            [Usage(wall, user_s=wall / 2, system_s=1.0, peak_bytes=1) for wall in walls]
        )

    assert results.in_g(workload, REPORT) == Ratio(wall=6.0 / 2.0, cpu=(3.0 + 1.0) / (1.0 + 1.0))


@pytest.mark.parametrize(
    ("measured_figure", "verdict"), [(1.4, "aim reached"), (2.9, "held"), (3.1, "**missed**"), (None, "not measured")]
)
def test_a_goal_says_which_line_is_held(measured_figure: float | None, verdict: str) -> None:
    assert Goal("time", must=3, aim=1.5, unit="G", measured=measured_figure).verdict == verdict


def test_of_a_gain_more_is_better() -> None:
    assert Goal("gain", must=3, aim=6, unit="times", measured=2.9, more_is_better=True).verdict == "**missed**"
    assert Goal("gain", must=3, aim=6, unit="times", measured=6.1, more_is_better=True).verdict == "aim reached"


@pytest.mark.nightly("benchmarks/capture_overhead.py", "benchmarks/tables.py")
def test_the_cost_of_a_capture_is_measured_and_written_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{capture_overhead.BEGIN}old\n{capture_overhead.END}After.\n")
    command = (sys.executable, "-m", "benchmarks.capture_overhead", "--short", "--minutes", "0", "--into", page)
    run(*command, cwd=Path(__file__).parents[1], limit_s=900, check=True)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| 1")]
    assert [row[0].strip() for row in rows] == ["1 ms, 4 layers", "10 ms, 24 layers"]
    assert [row[1].strip() for row in rows] == ["0", "2"]
    assert all(len(row) == 5 + len(capture_overhead.ARMS[2:]) for row in rows)
    assert any("5 rounds" in line for line in lines)


def test_the_measured_part_of_a_block_is_in_whole_bursts_of_the_workers() -> None:
    case = capture_overhead.Case(10, 3, has_device=False)
    assert capture_overhead.steps_of(case, block_s=0.4) == 42
    assert capture_overhead.steps_of(case, block_s=0.001) == 9
