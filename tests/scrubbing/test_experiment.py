"""A copy of what `sweep` or `try` wrote holds nothing private, whichever version wrote it."""

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.experiments.building import facts, finished, plan_in
from tests.scrubbing.private_capture import HOME, PRIVATE
from traceadvisor.cli import main
from traceadvisor.experiments.plan import Axis
from traceadvisor.experiments.result import Surroundings, result_of
from traceadvisor.experiments.run import Outcome
from traceadvisor.rendering.formats import EXPERIMENT_FORMATS, write_formats
from traceadvisor.results.experiment_json import read_experiment, render

ARGUMENTS = ("--password", "zqpass1", "--db=zqbase", "--pin", "zq", "--url", "https://zqserver/x")
VALUES = ("zqsecret", "zq")
ERROR = f"OSError: cannot open {HOME}/data with zqpass1, zqsecret and zqsecret-in-the-message"


def _result(*values: str) -> dict[str, Any]:
    """The JSON file of a sweep of an environment variable, and of the threads."""
    axes = (Axis("env:DB_LOGIN", values), Axis("env:OMP_NUM_THREADS", ("1", "2")))
    plan = plan_in(Path("never-made"), switches=axes, separate_processes=True)
    arms = {f"{axis.name.partition(':')[2]}={value}": 0.5 for axis in axes for value in axis.values}
    rows = [facts(), *finished("processes", arms)]
    around = Surroundings(kind="sweep", seconds=60.0, changed_files=(), price=None)
    document = json.loads(render(result_of(plan, Outcome(rows, None, interrupted=False, processes=1), around)))
    assert isinstance(document, dict)
    return document


@pytest.fixture
def folder(tmp_path: Path, pango: None) -> Path:
    """As the first versions wrote it, with secrets in all files."""
    folder = tmp_path / "zqsweep"
    (folder / "processes" / "001").mkdir(parents=True)
    (folder / "saved-by-the-script").mkdir()
    document = _result(*VALUES)
    document |= {
        "command": [f"{HOME}/train.py", *ARGUMENTS],
        "problem": f"The script failed: {ERROR}. See {HOME}/output.log.",
        "notes": [f"On zqada@zqmail.org: the copy failed with {ERROR}"],
        "left_out": [f"The batch size: no. To measure: `traceadvisor sweep -- {HOME}/train.py {' '.join(ARGUMENTS)}`"],
        "unavailable": {"compile": ERROR},
        "scratch": f"{HOME}/zqsweep/saved-by-the-script",
        "changed_files": ["zqmodel.pt", "zqmodels/zqmodel.pt", "train.py"],
        "trace_report": "runs/zqrun",
        "lines": ["export DB_LOGIN=zqsecret", "export DB_LOGIN=zq", "export OMP_NUM_THREADS=2"],
    }
    document["sections"][0]["arms"][0]["problem"] = ERROR
    document["sections"][0]["arms"][1] |= {"name": "patch=zqmy.patch", "settings": {"patch": "zqmy.patch"}}
    document["lines"].append("git apply zqmy.patch")
    document["code"] = {
        "outcome": "faster",
        "path": f"{HOME}/zqmy.patch",
        "files": ["zqfolder/train.py"],
        "fixes": ["DATA002"],
        "loss": "within",
        "apart": "other_file",
        "apart_at": "train.py",
        "problem": ERROR,
        "left_out": [
            {"fix": "DATA002", "setting": "amp", "value": "bfloat16", "reason": "expression", "detail": "zqargs.zqamp"}
        ],
    }
    (folder / "experiment.json").write_text(json.dumps(document))
    write_formats(read_experiment(folder), folder, ("html", "md", "pdf"), EXPERIMENT_FORMATS)
    plan = {"script": [f"{HOME}/train.py", *ARGUMENTS], "switches": [{"name": "env:DB_LOGIN", "values": VALUES}]}
    for name in ("plan.json", "processes/001/plan.json", "journal.jsonl", "output.log", "report.html", "zqother.txt"):
        (folder / name).write_text(json.dumps(plan))
    return folder


def _scrubbed(folder: Path, copy: Path) -> str:
    done = CliRunner().invoke(main, ["scrub", str(folder), "-o", str(copy)])
    assert done.exit_code == 0, done.output
    return done.output


def _bytes(path: Path) -> bytes:
    """The content; of what is packed in a PDF the texts, as fonts and pictures hold any letters."""
    content, streams = path.read_bytes(), re.compile(rb"stream\r?\n(.*?)endstream", re.DOTALL)
    unpacked = [_unpacked(stream) for stream in streams.findall(content)]
    return (streams.sub(b"", content) if any(unpacked) else content) + b"".join(
        one for one in unpacked if _is_text(one)
    )


def _is_text(content: bytes) -> bool:
    printable = sum(32 <= byte < 127 or byte in b"\r\n\t" for byte in content)
    return printable >= 0.9 * len(content)


def _unpacked(stream: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream)
    except zlib.error:
        return b""


def test_no_byte_of_a_copied_experiment_is_private(folder: Path, tmp_path: Path) -> None:
    private = PRIVATE.encode()
    pages = [path for path in folder.iterdir() if path.suffix in {".json", ".html", ".md", ".pdf"}]
    assert all(private in _bytes(path).lower() for path in pages)
    _scrubbed(folder, tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy").iterdir()}
    assert names == {"experiment.json", "experiment.html", "experiment.md", "experiment.pdf"}
    for path in (tmp_path / "copy").iterdir():
        content = re.sub(rb"sha256-[\w+/]+=*", b"", _bytes(path).lower())  # of the page's own script
        place = content.find(private)
        assert place < 0, (path.name, content[max(place - 100, 0) : place + 60])


@pytest.mark.nightly("traceadvisor/scrubbing")
def test_the_copy_has_the_figures_and_the_names_of_the_original(folder: Path, tmp_path: Path) -> None:
    _scrubbed(folder, tmp_path / "copy")
    before, after = read_experiment(folder), read_experiment(tmp_path / "copy")
    assert after.command == ("train.py",)
    assert after.problem == "The script failed: OSError"
    assert [re.sub(r"\d", "", name) for name in after.changed_files or ()] == ["file", "folder/file", "train.py"]
    assert after.notes == ("On [address]: the copy failed with OSError",)
    assert after.left_out == ("The batch size: no. To measure: `traceadvisor sweep -- train.py`",)
    arms = [arm for section in after.sections for arm in section.arms]
    assert [arm.measured for arm in arms] == [arm.measured for section in before.sections for arm in section.arms]
    assert {arm.name for arm in arms} >= {"OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"}
    logins = {arm.settings["env:DB_LOGIN"] for arm in arms if "env:DB_LOGIN" in arm.settings}
    assert len(logins) == 1
    assert after.code
    assert before.code
    assert (after.code.outcome, after.code.loss, after.code.fixes) == (
        before.code.outcome,
        before.code.loss,
        ("DATA002",),
    )
    assert after.code.left_out == (replace(before.code.left_out[0], detail=None),)
    patch = next(arm.settings["patch"] for arm in arms if "patch" in arm.settings)
    assert f"git apply {patch}" in after.lines
    assert {f"DB_LOGIN={value}" for value in logins} <= {arm.name for arm in arms}


def test_an_experiment_without_anything_private_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "experiment.json").write_text(json.dumps(_result("1")).replace("DB_LOGIN", "OMP_NUM_THREADS"))
    _scrubbed(tmp_path / "in", tmp_path / "copy")
    assert read_experiment(tmp_path / "copy") == read_experiment(tmp_path / "in")


@pytest.mark.nightly("traceadvisor/scrubbing")
def test_the_command_says_what_the_copy_lacks(folder: Path, tmp_path: Path) -> None:
    output = _scrubbed(folder, tmp_path / "copy")
    assert "output.log was left out: it is what the script printed." in output
    assert "plan.json was left out: an earlier version wrote it, with the command as it was." in output
    assert "events" not in output


@pytest.mark.nightly("traceadvisor/scrubbing", "traceadvisor/experiments")
@pytest.mark.parametrize("content", ["", "{}", '{"schema": "traceadvisor.experiment/9"}', "[" * 100_000])
def test_a_damaged_result_is_refused_and_nothing_is_written(folder: Path, tmp_path: Path, content: str) -> None:
    (folder / "experiment.json").write_text(content)
    done = CliRunner().invoke(main, ["scrub", str(folder), "-o", str(tmp_path / "copy")])
    assert done.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_an_experiment_that_ended_without_a_result_names_what_to_delete(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "journal.jsonl").write_text("{}")
    done = CliRunner().invoke(main, ["scrub", str(tmp_path / "in"), "-o", str(tmp_path / "copy")])
    assert done.exit_code == 3
    assert "no capture and no result of sweep or try" in done.output
