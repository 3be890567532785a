import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from traceadvisor.api import load
from traceadvisor.bundle.folder import Start, start_of
from traceadvisor.bundle.layout import FORMAT, MANIFEST, TELEMETRY_FORMAT
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.bundle.stacks import STACKS_FORMAT
from traceadvisor.bundle.steps import LARGEST_STEPS_BYTES
from traceadvisor.errors import InputError
from traceadvisor.model.report import Report, SourceKind
from traceadvisor.model.run import LoaderSettings, Repository
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.system.processes import host_name, start_ticks

SETTINGS = {"loader": {"batch_size": 8, "num_workers": 2, "file": "train.py", "line": 41}, "cpu_count": 4}
STEPS = "step,start_ns,duration_ns,loader_ns,fetches,state\n" + "".join(
    f"{number},{10**18 + number * 100_000},100000,40000,1,{'recorded' if number > 5 else 'plain'}\n"
    for number in range(9)
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A capture of one rank: nine steps of 100 us, the last three of them recorded."""
    folder = tmp_path / "2026-11-20-train"
    folder.mkdir()
    builder = TraceBuilder()
    for number in (6, 7, 8):
        start = (number - 6) * 100
        builder.step(number, start, start + 100).loader(start, start + 40).op("aten::mm", start + 40, start + 100)
    builder.write(folder / "host_1.100.pt.trace.json")
    (folder / "steps.0.csv").write_text(STEPS)
    (folder / "settings.0.json").write_text(json.dumps(SETTINGS))
    (folder / "telemetry.host.jsonl").write_text("")
    _manifest(folder)
    return folder


def _manifest(folder: Path, **changes: Any) -> None:
    kinds = {
        "host_1.100.pt.trace.json": "trace",
        "steps.0.csv": "steps",
        "settings.0.json": "settings",
        "telemetry.host.jsonl": "telemetry",
    }
    files = [
        {
            "path": path,
            "kind": kind,
            "rank": None if kind == "telemetry" else 0,
            "cycle": 0 if kind == "trace" else None,
        }
        for path, kind in kinds.items()
    ]
    content = {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "started_ns": 10**18,
        "command": ["train.py"],
        "schedule": {"skip_first": 5, "wait": 5, "warmup": 3, "active": 8, "repeat": 1},
        "world_size": 1,
        "endings": [{"rank": 0, "ending": "completed", "exit_code": 0, "steps": 9, "recorded_steps": 3}],
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps({**content, **changes}))


def _codes(report: Report) -> set[str]:
    return {row.note.code for row in report.health_notes}


def _message(report: Report, code: str) -> str:
    (message,) = {row.note.message for row in report.health_notes if row.note.code == code}
    return message


def test_a_capture_is_read_with_its_step_times_and_settings(bundle: Path) -> None:
    report = load(bundle)
    (recording,) = report.recordings
    assert report.source.kind is SourceKind.CAPTURE
    assert (recording.worker, recording.undisturbed_median_step_ns) == ("rank0", 100_000)
    assert recording.samples_per_s == pytest.approx(8 / 100e-6)


def test_savings_are_of_the_undisturbed_step(bundle: Path) -> None:
    plain = STEPS.replace("100000,40000,1,plain", "50000000,20000000,1,plain")
    text = plain.replace("100000,40000,", "100000000,40000000,")
    (bundle / "steps.0.csv").write_text(text)
    builder = TraceBuilder()  # two steps of 100 ms: the saving is up to the wait of 40 ms
    for number, start in ((7, 0), (8, 100_000)):
        builder.step(number, start, start + 100_000).loader(start, start + 40_000)
        builder.op("aten::mm", start + 40_000, start + 100_000)
    builder.write(bundle / "host_1.100.pt.trace.json")
    (row,) = load(bundle).findings
    assert row.finding.saving.high_ns <= 50_000_000
    assert row.step_ns == 50_000_000


def test_a_folder_of_captures_holds_a_run_each(bundle: Path) -> None:
    assert [one.run for one in load(bundle.parent).recordings] == [bundle.name]


def test_a_recording_that_was_cut_short_is_marked(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    for whole, is_cut_short in ((False, True), (True, False), (None, False)):
        for file in manifest["files"]:
            if file["kind"] == "trace":
                file["whole"] = whole
        (bundle / "manifest.json").write_text(json.dumps(manifest))
        assert load(bundle).recordings[0].is_cut_short is is_cut_short


def test_what_lies_between_epochs_is_named_and_left_out(bundle: Path) -> None:
    rows = STEPS.replace("7,1000000000000700000,100000,40000,1,recorded", "7,1000000000000700000,100000,0,0,other")
    (bundle / "steps.0.csv").write_text(rows)
    steps = [row.step for row in load(bundle).recordings[0].steps]
    assert [(step.index, step.kept) for step in steps] == [(6, True), (7, False), (8, True)]
    assert steps[1].left_out == "it is the time between two epochs, or before or after validation"


def test_unusable_telemetry_is_a_note_and_not_the_end(bundle: Path) -> None:
    (bundle / "telemetry.host.jsonl").write_bytes(b"\xff\x00garbage" * 1000)
    assert len(load(bundle).recordings) == 1


def test_a_rank_that_recorded_nothing_still_shows_its_step_times(bundle: Path) -> None:
    (bundle / "host_1.100.pt.trace.json").unlink()
    report = load(bundle)
    assert report.recordings[0].undisturbed_median_step_ns == 100_000
    assert "nothing-recorded" in _codes(report)
    assert "no-steps" not in _codes(report)
    assert _message(report, "missing-trace") == "The capture lacks its file host_1.100.pt.trace.json."


def test_a_report_says_why_a_capture_recorded_nothing(bundle: Path) -> None:
    (bundle / "host_1.100.pt.trace.json").unlink()
    said = "The script ended after 9 training steps: they were timed, but none was recorded. Train 21 steps."
    _manifest(bundle, notes=[{"code": "window-not-reached", "message": said, "rank": 0}])
    report = load(bundle)
    assert said in [row.note.message for row in report.health_notes]
    shown = FORMATS["md"].render(report).decode()
    assert said in shown
    assert "Nothing was recorded:" not in shown, "one sentence says so"


@pytest.mark.parametrize("path", ["../outside.json", "/etc/passwd", "a\0b", "x" * 5000])
def test_a_manifest_that_points_elsewhere_is_not_followed(path: str, bundle: Path) -> None:
    _manifest(bundle, files=[{"path": path, "kind": "trace", "rank": 0, "cycle": 0}])
    assert "nothing-recorded" in _codes(load(bundle))


def test_a_file_that_links_to_itself_is_left_out(bundle: Path) -> None:
    (bundle / "steps.0.csv").unlink()
    (bundle / "steps.0.csv").symlink_to(bundle / "steps.0.csv")
    assert "missing-steps" in _codes(load(bundle))


@pytest.mark.parametrize(
    "row",
    [
        "x" * 200_000,
        "9,1,-5,0,1,plain",
        "9,1,9000000000000000000,0,1,plain",
        "9,9223372036854775807,5,0,1,plain",
        "9,1,5,9223372036854775808,1,plain",
        "9,1,5,0,9223372036854775808,plain",
        "9223372036854775808,1,5,0,1,plain",
        "9,1,5,0,1,odd",
    ],
)
def test_a_row_with_an_impossible_step_is_counted(row: str, bundle: Path) -> None:
    with (bundle / "steps.0.csv").open("a") as file:
        file.write(row + "\n")
    report = load(bundle)
    assert "steps-dropped" in _codes(report)
    assert report.recordings[0].undisturbed_median_step_ns == 100_000


def test_step_times_of_any_size_take_no_memory(bundle: Path) -> None:
    with (bundle / "steps.0.csv").open("r+b") as file:
        file.truncate(LARGEST_STEPS_BYTES + 1)
    report = load(bundle)
    assert "steps.0.csv was not read" in _message(report, "steps-too-large")
    assert report.recordings[0].steps


@pytest.mark.slow
def test_an_endless_line_of_step_times_is_read_in_pieces(bundle: Path) -> None:
    with (bundle / "steps.0.csv").open("a") as file:
        file.write("9" * 40_000_000 + "\n9,1,100000,0,1,plain\n")
    tracemalloc.start()
    run, notes = BundleRuns(bundle).run(0)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert run.steps[-1].index == 9
    assert "steps-dropped" in {note.code for note in notes}


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"loader": "\xff"}', b'{"loader": {"batch_size": "many"}}'])
def test_unreadable_settings_are_a_note(content: bytes, bundle: Path) -> None:
    (bundle / "settings.0.json").write_bytes(content)
    assert "no-settings" in _codes(load(bundle))


def test_a_capture_by_an_earlier_version_lacks_the_start_of_epochs(bundle: Path) -> None:
    run, _ = BundleRuns(bundle).run(0)
    assert {step.loader_start_ns for step in run.steps} == {None}


def test_the_time_to_start_an_epoch_is_read(bundle: Path) -> None:
    lines = STEPS.splitlines()
    rows = [f"{line},{7 * (number == 4)}" for number, line in enumerate(lines[1:])]
    (bundle / "steps.0.csv").write_text("\n".join([f"{lines[0]},loader_start_ns", *rows]))
    run, _ = BundleRuns(bundle).run(0)
    assert [step.index for step in run.steps if step.loader_start_ns] == [4]


@pytest.mark.parametrize("key", ["sample_count", "batch_count", "batch_size"])
@pytest.mark.parametrize("number", [-1, 10**20])
def test_an_impossible_count_of_the_loader_is_unknown(key: str, number: int, bundle: Path) -> None:
    (bundle / "settings.0.json").write_text(json.dumps({"loader": {key: number}}))
    loader = BundleRuns(bundle).run(0)[0].settings.loader
    assert loader is not None
    assert getattr(loader, key) is None


def test_only_known_environment_variables_are_read(bundle: Path) -> None:
    environment = {"CUDA_LAUNCH_BLOCKING": "1", "PATH": "/home/ada/bin"}
    (bundle / "settings.0.json").write_text(json.dumps({"environment": environment, "own_profiler_share": 7}))
    found = BundleRuns(bundle).run(0)[0].settings
    assert (found.environment, found.own_profiler_share) == ({"CUDA_LAUNCH_BLOCKING": "1"}, None)


def test_the_scripts_own_modules_are_read(bundle: Path) -> None:
    (bundle / "settings.0.json").write_text(json.dumps({"own_code": ["train.py", "datasets"]}))
    assert BundleRuns(bundle).run(0)[0].settings.own_code == frozenset({"train.py", "datasets"})


@pytest.mark.parametrize(("own_code", "named"), [(["train.py", "queue.py"], [["queue.py"]]), (["train.py"], [])])
def test_a_report_names_the_scripts_own_modules_even_if_a_library_has_the_same_name(
    own_code: list[str], named: list[list[str]], bundle: Path
) -> None:
    builder = TraceBuilder().python("train.py(9): main", 0, 300)
    for start in (0, 100, 200):
        builder.step(start // 100 + 6, start, start + 100).loader(start, start + 40)
        builder.python("queue.py(7): wait", start, start + 40).op("aten::mm", start + 40, start + 100)
    builder.write(bundle / "host_1.100.pt.trace.json")
    (bundle / "settings.0.json").write_text(json.dumps({"own_code": own_code}))
    assert [[location.file for location in row.finding.locations] for row in load(bundle).findings] == named


def test_the_optimizers_own_settings_are_read(bundle: Path) -> None:
    written = {"name": "AdamW", "fused": True, "foreach": None}
    (bundle / "settings.0.json").write_text(json.dumps({"optimizer": written}))
    found = BundleRuns(bundle).run(0)[0].settings
    assert (found.optimizer, found.optimizer_fused, found.optimizer_foreach) == ("AdamW", True, None)


@pytest.mark.parametrize(
    ("samples", "drop_last", "last"),
    [(64, False, 8), (65, False, 1), (65, True, 8), (7, True, 0), (7, False, 7), (0, False, 0)],
)
def test_the_size_of_the_last_batch_of_an_epoch(samples: int, drop_last: bool, last: int) -> None:  # noqa: FBT001
    assert LoaderSettings(batch_size=8, sample_count=samples, drop_last=drop_last).last_batch == last


def test_an_impossible_batch_size_gives_no_samples_per_second(bundle: Path) -> None:
    (bundle / "settings.0.json").write_text('{"loader": {"batch_size": -1}}')
    assert load(bundle).recordings[0].samples_per_s is None


@pytest.mark.parametrize(
    "content", [b'"traceadvisor.bundle.layout' + b"[" * 200_000, b'{"format": "traceadvisor.bundle/1", "x": "\xff"}']
)
def test_recordings_are_read_without_a_readable_manifest(content: bytes, bundle: Path) -> None:
    (bundle / "manifest.json").write_bytes(content)
    report = load(bundle)
    assert [one.worker for one in report.recordings] == ["host_1"]
    assert "manifest.json: is no readable manifest" in _message(report, "unreadable")


def test_recordings_are_read_beside_a_manifest_of_a_later_format(bundle: Path) -> None:
    _manifest(bundle, format="traceadvisor.bundle/9")
    report = load(bundle)
    assert report.recordings[0].captured is None
    assert "Use the version of TraceAdvisor that captured it" in _message(report, "unreadable")


def test_an_unreadable_manifest_without_recordings_is_refused(bundle: Path) -> None:
    _manifest(bundle, format="traceadvisor.bundle/9")
    (bundle / "host_1.100.pt.trace.json").unlink()
    with pytest.raises(InputError, match=r"manifest\.json: has the format 'traceadvisor.bundle/9'"):
        load(bundle)


@pytest.mark.parametrize(("content", "found"), [(b"", "the file is empty"), (b"{}", "an empty JSON object")])
def test_step_times_are_read_beside_an_unreadable_recording(content: bytes, found: str, bundle: Path) -> None:
    (bundle / "host_1.100.pt.trace.json").write_bytes(content)
    report = load(bundle)
    assert report.recordings[0].undisturbed_median_step_ns == 100_000
    assert "nothing-recorded" in _codes(report)
    message = _message(report, "unreadable")
    assert "host_1.100.pt.trace.json: " in message
    assert found in message


def test_ranks_of_a_host_share_its_cores_and_a_rank_has_its_own_hosts_telemetry(bundle: Path) -> None:
    steps = [
        {"path": "steps.0.csv", "kind": "steps", "rank": rank, "cycle": None, "host": host}
        for rank, host in enumerate(("a", "a", "b"))
    ]
    telemetry = [
        {"path": f"telemetry.{host}.jsonl", "kind": "telemetry", "rank": None, "cycle": None, "host": host}
        for host in ("a", "b")
    ]
    _manifest(bundle, files=telemetry + steps)
    (bundle / "telemetry.b.jsonl").write_text(
        '{"record": "header", "format": "traceadvisor.telemetry/1", "time_ns": 1000000000000000000, "host": "b"}\n'
    )
    first, third = BundleRuns(bundle).run(0)[0], BundleRuns(bundle).run(2)[0]
    assert (first.settings.ranks_on_host, third.settings.ranks_on_host) == (2, 1)
    assert third.telemetry is not None
    assert third.telemetry.host == "b"


def test_secrets_in_the_files_beside_a_trace_are_named(bundle: Path) -> None:
    _manifest(bundle, command=["train.py", "--db-password", "pw"])
    (bundle / "settings.0.json").write_text(json.dumps(SETTINGS | {"environment": {"HF_TOKEN": "hf_" + "a1B2" * 8}}))
    _, notes = BundleRuns(bundle).run(0)
    named = [note.message.partition(". ")[0] for note in notes if note.code == "secrets"]
    assert named == [
        "settings.0.json seems to contain secrets, in environment.HF_TOKEN",
        "manifest.json seems to contain secrets, in command",
    ]


def test_secrets_in_notes_the_repository_stacks_and_telemetry_are_named(bundle: Path) -> None:
    token = "ghp_" + "a1B2" * 8
    kinds = {"stacks.0.jsonl": "stacks", "telemetry.host.jsonl": "telemetry"}
    files = [{"path": path, "kind": kind, "rank": None} for path, kind in kinds.items()]
    repository = {"root": "~/x", "branch": token}
    _manifest(bundle, files=files, notes=[{"code": "a", "message": f"no {token}"}], repository=repository)
    lines: tuple[dict[str, Any], ...] = (
        {"record": "header", "format": STACKS_FORMAT, "squares_ns2": 1, "late_ns": 0, "late_by_ns": 0, "cpu_ns": 1},
        {"record": "frame", "function": "main", "file": f"{token}/train.py", "line": 1, "user": True},
        {"record": "stack", "frames": [0], "samples": {"plain": [5, 1]}},
    )
    (bundle / "stacks.0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    header = {"record": "header", "format": TELEMETRY_FORMAT, "host": "h", "nvml_unavailable": f"no {token}"}
    (bundle / "telemetry.host.jsonl").write_text(f"{json.dumps(header)}\n")

    _, notes = BundleRuns(bundle).run(0)

    assert [note.message.partition(". ")[0] for note in notes if note.code == "secrets"] == [
        "manifest.json seems to contain secrets, in repository.branch, notes",
        "stacks.0.jsonl seems to contain secrets, in file",
        "telemetry.host.jsonl seems to contain secrets, in nvml_unavailable",
    ]


@pytest.mark.parametrize(
    ("host", "pid", "ticks", "ending"),
    [
        (host_name(), os.getpid(), start_ticks(os.getpid()), "is still running"),
        (host_name(), os.getpid(), 1, "was killed"),
        (host_name(), 2**22 + 1, 5, "was killed"),
        ("elsewhere", os.getpid(), 5, "was killed, or is still running on elsewhere"),
    ],
    ids=["running", "another process", "no process", "elsewhere"],
)
def test_a_rank_without_an_end_was_killed_unless_its_process_runs(
    host: str, pid: int, ticks: int | None, ending: str, bundle: Path
) -> None:
    (bundle / "unfinished.host.1.manifest.json").touch()
    _manifest(bundle, endings=[], processes=[{"rank": 0, "host": host, "pid": pid, "start_ticks": ticks}])
    run, notes = BundleRuns(bundle).run(0)
    assert run.ending == ending
    left = [note.message for note in notes if note.code == "unfinished-files"]
    assert [name.endswith("unfinished.host.1.manifest.json.") for name in left] == [True] * (ticks in {1, 5})


def test_a_killed_run_without_a_recording_shows_its_step_times(bundle: Path) -> None:
    steps = {"path": "steps.0.csv", "kind": "steps", "rank": 0}
    _manifest(bundle, endings=[], files=[steps])
    (recording,) = load(bundle).recordings
    assert (recording.worker, recording.undisturbed_median_step_ns) == ("rank0", 100_000)


def test_the_repository_is_read(bundle: Path) -> None:
    _manifest(bundle, repository={"root": "~/src", "commit": "a" * 40, "branch": None, "dirty": True})
    assert BundleRuns(bundle).run(0)[0].repository == Repository("~/src", "a" * 40, None, dirty=True)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ('{"started_ns": 5, "command": ["a.py"], "repository": 7}', Start(5, ("a.py",))),
        ('{"started_ns": 5, "command": ["a.py"]}', Start(5, ("a.py",))),
    ],
)
def test_a_damaged_repository_hides_neither_start_nor_command(manifest: str, expected: Start, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(manifest)
    assert start_of(tmp_path) == expected


def test_a_manifest_that_cannot_be_read_began_when_it_was_written(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{")
    assert start_of(tmp_path) == Start((tmp_path / MANIFEST).stat().st_mtime_ns)
    assert start_of(tmp_path / "missing") == Start(0)
