"""Assertions on a step for the tests of a project: it did not get slower, and has no finding of some rules.

Processes differ more than steps within one, so a step is judged by the times of several processes, as captures are
compared. The test starts itself anew in each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from statistics import geometric_mean
from tempfile import TemporaryDirectory, mkdtemp

import msgspec
import pytest

from traceadvisor import api
from traceadvisor.comparing.verdict import RunComparison, compare_runs
from traceadvisor.config import find_settings
from traceadvisor.errors import InputError, TraceAdvisorError, UsageError
from traceadvisor.integrations.pytest_plugin import REMARKS, UPDATE, configs
from traceadvisor.integrations.step_timing import Machine, Timing, Work, this_machine, time_step
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report
from traceadvisor.model.verdict import NO_DIFFERENCE, Verdict
from traceadvisor.rendering.alerts.alert import alerts_of
from traceadvisor.rendering.content.comparison.sentences import signed, signed_percent
from traceadvisor.rendering.formats import write_file
from traceadvisor.rendering.units import from_to, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.ranges import between

SCHEMA = "traceadvisor.baseline/1"

PROCESSES_OF_BASELINE, PROCESSES = 5, 3
"""Three on each side give an interval; more of the baseline, which is measured rarely, make it narrower."""

MOST_STEPS = 300
"""Calls of a step within which a recording is complete: some thirty are usual."""

MOST_GROWN, MOST_FINDINGS = 4, 5
"""Parts of the step and findings in a message."""

_VARIABLE = "TRACEADVISOR_MEASURE"
_LAST_CHARACTERS = 1500


class _Task(msgspec.Struct, frozen=True):
    """The measurement for a process of its own."""

    baseline: str
    into: str
    """The file for the result."""

    folder: str | None = None
    """Folder in which to record the step, too."""


class _Profile(msgspec.Struct, frozen=True):
    """Report on the recorded step."""

    parts_ns: dict[str, float]
    findings: dict[str, str]
    """Rule to a line with the place and the fix."""


class _Result(msgspec.Struct, frozen=True):
    timing: Timing
    machine: Machine
    profile: _Profile | None = None


class _Runs(msgspec.Struct, frozen=True):
    """The processes of one machine."""

    machine: Machine
    timings: tuple[Timing, ...]
    parts_ns: dict[str, float]
    rules: tuple[str, ...]
    """Those with a finding."""


class _Baseline(msgspec.Struct, frozen=True):
    schema: str = SCHEMA
    runs: tuple[_Runs, ...] = ()


def assert_no_regression(step: Work, *, baseline: Path | str, limit: float = 0.0) -> None:
    """Fail if a step got slower than its baseline, and only if that is shown.

    To be called in a test of pytest. The step is timed here first. Only if it is slower than the baseline by over 3%,
    the test is run in three new processes, whose times decide: the 98% interval of the change must lie above the limit,
    also relative to work that the same processes timed in turn with the step, so that a slower machine is no failure.
    A machine without a baseline skips the test.

    Args:
        step: one training step; it is called some hundred times.
        baseline: a JSON file to commit, relative to the root of the tests; written by ``pytest --traceadvisor-update``.
        limit: the slowdown that is allowed, as a share.

    Raises:
        AssertionError: the step got slower; the message says by how much, what grew and what was found.
        InputError: the baseline is damaged.
        UsageError: it is not called in a test.
    """
    __tracebackhide__ = True
    test = _Test.running()
    path = test.config.rootpath / baseline
    if task := _task():
        if task.baseline == str(path):
            _measure(step, task, test)
            pytest.skip("measured")
        return
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        pytest.skip("A step is timed alone: run this test with -n0.")
    known = _read(path)
    if test.config.getoption(UPDATE):
        _update(path, known, test)
        return
    machine = this_machine()
    base = next((one for one in known.runs if one.machine == machine), None)
    if base is None:
        pytest.skip(f"{path} has no baseline of this machine ({_words(machine)}). Write it: {test.update_command}")
    usual_ns = geometric_mean(one.step_ns for one in base.timings)
    if time_step(step).step_ns <= usual_ns * (1 + max(NO_DIFFERENCE, limit)):
        return
    folder = Path(mkdtemp(prefix="traceadvisor-"))
    head, found = test.measured(path, PROCESSES, folder)
    size = f"{path}: {_change(base, head)}"
    if not is_slower(base.timings, head.timings, limit):
        rmtree(folder)
        test.remark(f"{size}. Not shown to be slower{f' by more than {percent(limit)}' if limit else ''}.")
        return
    new = [line for rule, line in found.items() if rule not in base.rules]
    lines = (
        f"{size}.",
        *_grown(base, head),
        *(f"New: {line}" for line in new[:MOST_FINDINGS]),
        *(f"Found before: {line}" for rule, line in found.items() if rule in base.rules and not new),
        f"Report on the step: {folder / 'report.html'}",
        f"To accept it: {test.update_command}",
    )
    raise AssertionError("\n".join(lines))


def _update(path: Path, known: _Baseline, test: _Test) -> None:
    """Measure the baseline of this machine anew, and write it beside those of others."""
    runs, _ = test.measured(path, PROCESSES_OF_BASELINE, None)
    others = tuple(one for one in known.runs if one.machine != runs.machine)
    write_file(path, (msgspec.json.format(msgspec.json.encode(_Baseline(runs=(*others, runs)))), b"\n"))
    test.remark(f"{path} has the times of {len(runs.timings)} processes.")


def _change(base: _Runs, head: _Runs) -> str:
    change, relative = _compared(base.timings, head.timings)
    before_ns, after_ns = (geometric_mean(one.step_ns for one in side.timings) for side in (base, head))
    return (
        f"{from_to(before_ns, after_ns)} per step, {signed_percent(change.ratio - 1)} "
        f"(98% interval {_interval(change)}; relative to reference work {_interval(relative)})"
    )


def assert_no_finding(step: Work, *rules: str) -> None:
    """Record some thirty steps, and fail if they have a finding of these rules.

    To be called in a test of pytest. If no rule could be checked, for example without a GPU, the test is skipped.

    Args:
        step: one training step.
        rules: ids, names or groups, such as ``IDLE001``, ``host-sync`` or ``H2D``.

    Raises:
        AssertionError: there is such a finding; the message has its line and its fix.
        UsageError: there is no such rule, or none is named.
    """
    __tracebackhide__ = True
    test = _Test.running()
    if _task():
        return
    catalogue = read_catalogue(find_settings(Path.cwd()))
    unknown = [name for name in rules if not catalogue.ids(name)]
    if unknown or not rules:
        raise UsageError(f"There is no rule {unknown[0]!r}." if unknown else "Name at least one rule.")
    asked = frozenset[str]().union(*map(catalogue.ids, rules))
    with TemporaryDirectory() as folder:
        report = _recorded(step, Path(folder) / "capture")
    if found := [line for rule, line in _found(report, test).items() if rule in asked]:
        raise AssertionError("\n".join(found))
    outcomes = [row.outcome for row in report.outcomes if row.rule_id in asked]
    skipped = [one.reason for one in outcomes if isinstance(one, Skipped)]
    if len(skipped) == len(outcomes):
        pytest.skip(skipped[0] if skipped else "These rules were not run.")


class _Test:
    """The test that runs now."""

    def __init__(self, config: pytest.Config, node: str) -> None:
        self.config, self._node = config, node
        self.update_command = f"pytest {UPDATE} '{node}'"

    @classmethod
    def running(cls) -> _Test:
        """The test; raises UsageError outside of one."""
        node, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
        if not configs or phase != "(call)":
            raise UsageError("assert_no_regression measures a test of pytest in processes of its own. Call it in one.")
        return cls(configs[-1], node)

    def file(self, recorded: str) -> str:
        """A file of a recording, which may be relative to the folder of the test."""
        below = Path(self._node.partition("::")[0]).parent / recorded
        return str(below) if (self.config.rootpath / below).is_file() else recorded

    def remark(self, line: str) -> None:
        """Print a line at the end of the run."""
        self.config.stash[REMARKS].append(line)

    def measured(self, baseline: Path, processes: int, folder: Path | None) -> tuple[_Runs, dict[str, str]]:
        """Measure in new processes; the first one also records the step, and writes its report to a folder."""
        with TemporaryDirectory() as own:
            into = Path(own) / "measured.json"
            results = [
                self._in_new_process(_Task(str(baseline), str(into), str(folder or own) if first else None))
                for first in (True, *[False] * (processes - 1))
            ]
        profile = results[0].profile or _Profile({}, {})
        timings = tuple(one.timing for one in results)
        return _Runs(results[0].machine, timings, profile.parts_ns, tuple(profile.findings)), profile.findings

    def _in_new_process(self, task: _Task) -> _Result:
        has = self.config.pluginmanager.hasplugin
        command = (
            *(sys.executable, "-m", "pytest", f"{self.config.rootpath}{os.sep}{self._node}"),
            *(f"--rootdir={self.config.rootpath}", *(("-c", str(path)) if (path := self.config.inipath) else ())),
            *("-q", "-m", "", "-p", "no:cacheprovider"),
            *(("-n0",) if has("xdist") else ()),
            *(("--no-cov",) if has("pytest_cov") else ()),
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment |= {_VARIABLE: msgspec.json.encode(task).decode(), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(  # noqa: S603  # this Python, without a shell
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        try:
            content = Path(task.into).read_bytes()
        except OSError:
            said = f"{done.stdout}{done.stderr}"[-_LAST_CHARACTERS:]
            raise TraceAdvisorError(f"{self._node} measured nothing in a new process: {said}") from None
        Path(task.into).unlink()
        return msgspec.json.decode(content, type=_Result)


def _task() -> _Task | None:
    """The measurement of this process; None in the one that the user started."""
    asked = os.environ.get(_VARIABLE)
    return msgspec.json.decode(asked, type=_Task) if asked else None


def _measure(step: Work, task: _Task, test: _Test) -> None:
    result = _Result(time_step(step), this_machine())
    if task.folder:
        with suppress(TraceAdvisorError):  # the times count without it
            result = msgspec.structs.replace(result, profile=_profile(step, Path(task.folder), test))
    Path(task.into).write_bytes(msgspec.json.encode(result))


def _profile(step: Work, folder: Path, test: _Test) -> _Profile:
    report = _recorded(step, folder / "capture")
    api.write(report, folder, ("html",))
    shown = report.recordings[0].breakdown if report.recordings else None
    parts_ns = {part.value: ns or 0.0 for part, ns in (shown.parts_ns if shown else {}).items()}
    return _Profile(parts_ns, _found(report, test))


def _recorded(step: Work, folder: Path) -> Report:
    """Record some steps, and read them."""
    with api.capture(folder, stop_after_window=True) as run:
        for _ in range(MOST_STEPS):
            step()
            run.step()
    return api.load(folder, settings=find_settings(Path.cwd()), processes=1)


def _found(report: Report, test: _Test) -> dict[str, str]:
    """The first place of each rule's findings, in a line."""
    lines: dict[str, str] = {}
    for alert in alerts_of(report):
        line = f"{test.file(alert.place.file)}:{alert.place.line}: {alert.rule.id} {alert.text}"
        lines.setdefault(alert.rule.id, line)
    return lines


def _read(path: Path) -> _Baseline:
    """The baseline; an empty one where there is no file yet."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Baseline)
        if found.schema == SCHEMA:
            return found
        problem = f"has the schema {found.schema!r}"
    except FileNotFoundError:
        return _Baseline()
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({error})"
    raise InputError(
        path, problem, expected=f"a file with the schema {SCHEMA!r}", remedy=f"Remove it, and run pytest {UPDATE}."
    )


def _compared(base: Sequence[Timing], head: Sequence[Timing]) -> tuple[RunComparison, RunComparison]:
    """The step, and the step as a multiple of the reference work."""
    return (
        compare_runs([one.step_ns for one in base], [one.step_ns for one in head]),
        compare_runs(*([one.step_ns / one.reference_ns for one in side] for side in (base, head))),
    )


def is_slower(base: Sequence[Timing], head: Sequence[Timing], limit: float) -> bool:
    """Whether a slowdown by more than a limit is shown, and is not that of the machine."""
    return all(one.verdict is Verdict.SLOWER and (one.low or 0.0) > 1 + limit for one in _compared(base, head))


def _interval(one: RunComparison) -> str:
    return between(signed_percent((one.low or 0.0) - 1), signed_percent((one.high or 0.0) - 1))


def _grown(base: _Runs, head: _Runs) -> Iterator[str]:
    """A line with the parts of the recorded step that grew most."""
    grown = {part: ns - base.parts_ns.get(part, 0.0) for part, ns in head.parts_ns.items()}
    most = sorted((part for part in grown if grown[part] > 0), key=lambda part: -grown[part])[:MOST_GROWN]
    if most:
        listed = ", ".join(f"{CATEGORY[Category(part)]} {signed(grown[part])}" for part in most)
        yield f"Grew in recorded steps: {listed}."


def _words(machine: Machine) -> str:
    return f"{machine.cpu}, {machine.cores} cores{f', {machine.accelerator}' if machine.accelerator else ''}"
