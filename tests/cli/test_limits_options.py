from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from tests.growth.bundles import capture
from traceadvisor import Limits, load
from traceadvisor.cli import main
from traceadvisor.model.limits import LIMITS
from traceadvisor.parsing.exceeded_limits import ExceededLimit, option_of


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording after 60 MB of spaces, which compress by a factor of 1,000."""
    content = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90).text()
    path = tmp_path / "worker0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b" " * 60_000_000 + content))
    return path


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_file_over_a_limit_is_read_with_the_suggested_option(recording: Path, tmp_path: Path) -> None:
    refused = _run(recording, "-o", tmp_path / "out")
    assert refused.exit_code == 3
    assert "raise the limit with --max-inflation-ratio." in refused.stderr
    assert _run(recording, "-o", tmp_path / "out", "--max-inflation-ratio", "5000").exit_code == 0


def test_limits_can_be_set_from_python(recording: Path) -> None:
    assert load(recording, limits=Limits(inflation_ratio=5000)).health.events_read == 2


def test_the_help_lists_the_input_limits_last() -> None:
    options, limits = _run("--help").output.split("Input limits")
    assert "--help" in options
    for field in fields(Limits):
        assert f"--max-{field.name.replace('_', '-')}" in limits
        assert str(getattr(LIMITS, field.name)) in limits
    assert all(option_of(excess) in limits for excess in ExceededLimit)


def test_the_suggested_option_reads_all_ranks_of_a_capture(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run", ranks=3)
    few = _run(folder, "-o", tmp_path / "few", "--format", "json", "--max-ranks", "2")
    every = _run(folder, "-o", tmp_path / "all", "--format", "json", "--max-ranks", "3")
    assert (few.exit_code, every.exit_code) == (0, 0)
    counts = [len(json.loads((tmp_path / name / "report.json").read_text())["recordings"]) for name in ("few", "all")]
    assert counts == [2, 3]


def test_a_limit_of_zero_is_wrong_usage(recording: Path) -> None:
    assert _run(recording, "--max-event-bytes", "0").exit_code == 2
