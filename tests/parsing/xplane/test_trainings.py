"""Profiles that jax and tensorflow-cpu make here: they and xprof are installed apart, half a gigabyte."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.children import run
from traceadvisor import api
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.report import RankedFinding
from traceadvisor.parsing.xplane import chrome_json
from traceadvisor.rules.data.data014_input_pipeline import FIXES

SCRIPTS = Path(__file__).parent / "scripts"
PACKAGES = "jax", "tensorflow-cpu", "tensorboard", "xprof"

pytestmark = pytest.mark.nightly  # names no files: installing takes minutes


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the frameworks."""
    folder = tmp_path_factory.mktemp("frameworks")
    run(sys.executable, "-m", "venv", folder, check=True)
    installed = run(folder / "bin/python", "-m", "pip", "install", "-q", *PACKAGES, limit_s=900)
    if installed.returncode:
        pytest.skip(f"needs {', '.join(PACKAGES)}, and pip cannot install them: {installed.stderr[-200:]}")
    return folder / "bin" / "python"


def _profile(python: Path, folder: Path, script: str, kind: str) -> Path:
    run(python, SCRIPTS / script, folder, kind, cwd=folder, limit_s=300, check=True)
    (path,) = folder.rglob("*.xplane.pb")
    return path


def _first(path: Path) -> RankedFinding:
    return api.load(path).findings[0]


@pytest.mark.parametrize(("kind", "rule"), [("annotated", "DATA014"), ("plain", "DATA014"), ("unnamed", "IDLE012")])
def test_a_starved_loop_of_jax(kind: str, rule: str, python: Path, tmp_path: Path) -> None:
    first = _first(_profile(python, tmp_path, "train_jax.py", kind)).finding
    assert first.rule.id == rule
    assert first.locations[0].function == ("batch_of" if kind == "unnamed" else "load")


@pytest.mark.parametrize("kind", ["loop", "fit"])
def test_a_starved_loop_of_tensorflow(kind: str, python: Path, tmp_path: Path) -> None:
    first = _first(_profile(python, tmp_path, "train_tf.py", kind)).finding
    assert (first.rule.id, first.fix.change) == (
        "DATA014",
        "ds.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    )


def test_events_and_times_are_those_that_xprof_reads(python: Path, tmp_path: Path) -> None:
    path = _profile(python, tmp_path, "train_jax.py", "annotated")
    theirs = json.loads(run(python, SCRIPTS / "xprof_totals.py", path, check=True).stdout)
    with path.open("rb") as file:
        stream, text, block = chrome_json(path, file, LIMITS), b"", bytearray(1 << 16)
        while count := stream.readinto1(memoryview(block)):
            text += block[:count]
    counts: Counter[str] = Counter()
    times_us: Counter[str] = Counter()
    events = json.loads(text)["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events[1:] if event["ph"] == "M"}
    for event in events:
        if event["ph"] == "X":
            counts[names[event["tid"]]] += 1
            times_us[names[event["tid"]]] += event["dur"]
    assert [[name, count] for name, count, _ in theirs if count] == sorted(map(list, counts.items()))
    for name, count, time_ns in theirs:
        assert 1000 * times_us[name] == pytest.approx(time_ns, abs=count)


def test_every_change_of_tf_data_runs(python: Path, tmp_path: Path) -> None:
    changes = [change for _, _, change in FIXES]
    done = run(python, SCRIPTS / "run_changes.py", cwd=tmp_path, stdin="\n".join(changes), limit_s=600, check=True)
    assert len(done.stdout.splitlines()) == len(changes)
