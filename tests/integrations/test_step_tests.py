"""`assert_no_regression` and `assert_no_finding`, in runs of pytest of their own."""

import os
import re
import sys
from pathlib import Path

import msgspec
import pytest

import traceadvisor
from tests.children import Done, added, run
from tests.shared import CHECKOUT
from traceadvisor.errors import UsageError
from traceadvisor.integrations.step_tests import SCHEMA, is_slower
from traceadvisor.integrations.step_timing import Timing, this_machine

_LOADED = """
import sys
import pytest
before = set(sys.modules)
import traceadvisor.integrations.pytest_plugin
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("traceadvisor")))
"""
_SLEEPS = """
import os, time

def test_step(traceadvisor):
    traceadvisor.assert_no_regression(sleep, baseline="perf/step.json")

def sleep():
    time.sleep(float(os.environ["SECONDS"]))
"""
_TRAINS = f"import torch{_SLEEPS}    torch.ones(8).sum()\n"
_WASTES = """
import torch

def test_step(traceadvisor):
    layer = torch.nn.Linear(8, 8)

    def step():
        layer(torch.ones(8, 8)).sum().backward()
        waste()

    traceadvisor.assert_no_finding(step, "python-overhead")

def waste():
    return sum(number * number for number in range(60_000))

def test_gpu(traceadvisor):
    traceadvisor.assert_no_finding(waste, "H2D002")
"""


_IN_PROCESSES = pytest.mark.nightly(
    *(f"traceadvisor/integrations/{name}.py" for name in ("pytest_plugin", "step_tests", "step_timing")),
    "tests/integrations/test_step_tests.py",
)


def _alone(**variables: str) -> dict[str, str]:
    """The environment of a pytest that does not run beside others, even where this one does."""
    return {name: value for name, value in added(**variables).items() if not name.startswith("PYTEST_XDIST")}


def _run(folder: Path, *options: str, seconds: float = 0.002) -> Done:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", *options)
    return run(*command, cwd=folder, env=_alone(SECONDS=str(seconds)), limit_s=600)


def _project(folder: Path, test: str, step_ns: float | None = None) -> Path:
    """A suite, with a baseline of this machine where a step time is given; returns the file of the baseline."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -m 'not slow'\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_step.py").write_text(test)
    baseline = folder / "perf" / "step.json"
    if step_ns:
        baseline.parent.mkdir()
        runs = {"machine": this_machine(), "timings": [Timing(step_ns, 1e6)] * 5, "parts_ns": {}, "rules": []}
        baseline.write_bytes(msgspec.json.encode({"schema": SCHEMA, "runs": [runs]}))
    return baseline


def _timings(step_ns: float, reference_ns: float, count: int) -> list[Timing]:
    return [Timing(step_ns * (1 + place / 100), reference_ns) for place in range(count)]


def test_a_slower_step_is_shown_unless_the_machine_is_slower_as_well() -> None:
    base = _timings(10e6, 1e6, 5)
    assert is_slower(base, _timings(15e6, 1e6, 3), 0.0)
    assert is_slower(base, _timings(15e6, 1e6, 3), 0.3)
    assert not is_slower(base, _timings(15e6, 1e6, 3), 0.5)
    assert not is_slower(base, _timings(15e6, 1.5e6, 3), 0.0)
    assert not is_slower(base, _timings(10e6, 0.5e6, 3), 0.0)
    assert not is_slower(base, [Timing(8e6, 1e6), Timing(15e6, 1e6), Timing(22e6, 1e6)], 0.0)


def test_the_plugin_costs_a_run_of_pytest_nothing() -> None:
    assert run(sys.executable, "-c", _LOADED, check=True).stdout.split() == []


def test_a_step_is_only_tested_in_a_test() -> None:
    os.environ.pop("PYTEST_CURRENT_TEST")
    with pytest.raises(UsageError, match="in processes of its own"):
        traceadvisor.assert_no_regression(str, baseline="step.json")


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_machine_without_a_baseline_skips_the_test(tmp_path: Path) -> None:
    _project(tmp_path, _SLEEPS)
    done = _run(tmp_path)
    assert "1 skipped" in done.stdout
    assert "Write it: pytest --traceadvisor-update 'tests/test_step.py::test_step'" in done.stdout


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_step_that_is_not_slower_passes_without_new_processes(tmp_path: Path) -> None:
    _project(tmp_path, _SLEEPS, 1e9)
    assert "1 passed" in _run(tmp_path).stdout


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_damaged_baseline_is_an_error(tmp_path: Path) -> None:
    baseline = _project(tmp_path, _SLEEPS, 1e9)
    for content, problem in ((b'{"schema": "other/1"}', "has the schema 'other/1'"), (b"\xff", "cannot be read")):
        baseline.write_bytes(content)
        done = _run(tmp_path)
        assert problem in done.stdout
        assert "1 failed" in done.stdout


@_IN_PROCESSES
def test_a_step_that_got_slower_fails_until_it_is_accepted(tmp_path: Path) -> None:
    baseline = _project(tmp_path, _TRAINS)
    done = _run(tmp_path, "--traceadvisor-update")
    assert "has the times of 5 processes" in done.stdout
    (runs,) = msgspec.json.decode(baseline.read_bytes())["runs"]
    assert len(runs["timings"]) == 5
    assert runs["parts_ns"]["other_host"] > 1e6
    done = _run(tmp_path, seconds=0.1)
    assert "1 failed" in done.stdout
    assert "98% interval +" in done.stdout
    assert "Grew in recorded steps: Other CPU work +" in done.stdout
    assert "To accept it: pytest --traceadvisor-update 'tests/test_step.py::test_step'" in done.stdout
    (report,) = re.findall(r"Report on the step: (\S+)", done.stdout)
    assert Path(report).is_file()


@_IN_PROCESSES
def test_a_finding_fails_with_its_line_and_a_rule_without_input_skips(tmp_path: Path) -> None:
    _project(tmp_path, _WASTES)
    done = _run(tmp_path)
    assert re.search(r"tests/test_step.py:\d+: IDLE004", done.stdout)
    assert "1 failed, 1 skipped" in done.stdout


@pytest.mark.nightly("traceadvisor/integrations", "traceadvisor/comparing", "docs/with-other-tools.md")
def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "with-other-tools.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    _project(tmp_path, example)
    assert "1 skipped" in _run(tmp_path).stdout
