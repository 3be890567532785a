"""Trainings of kinds that have no recording here are captured anew, and the report names their fault first."""

from pathlib import Path

import pytest

from tests.recording.running import capture
from tests.shared import CHECKOUT
from traceadvisor import load
from traceadvisor.model.report import Report

SCRIPTS = CHECKOUT / "benchmarks" / "planted" / "scripts"


def _report(folder: Path, *command: str) -> Report:
    bundle = folder / "bundle"
    done = capture("-o", str(bundle), str(SCRIPTS / command[0]), *command[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    return load(bundle, processes=1)


def _rules(report: Report) -> list[str]:
    return [row.finding.rule.id for row in report.findings]


@pytest.mark.nightly("traceadvisor/analysis", "traceadvisor/rules")
def test_padding_to_a_constant_comes_first(tmp_path: Path) -> None:
    assert _rules(_report(tmp_path, "translation.py"))[0] == "DATA013"


@pytest.mark.nightly("traceadvisor/analysis", "traceadvisor/rules")
@pytest.mark.parametrize(("arguments", "found"), [((), True), (("--keep",), False)])
def test_checkpointed_blocks_are_found_where_there_are_any(
    arguments: tuple[str, ...], tmp_path: Path, *, found: bool
) -> None:
    assert ("MEM008" in _rules(_report(tmp_path, "checkpointed.py", *arguments))) is found
