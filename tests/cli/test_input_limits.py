import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from tests.cli.reporting import reported
from tests.growth.bundles import capture
from traceadvisor import Limits, load
from traceadvisor.cli import main
from traceadvisor.config import read_settings
from traceadvisor.errors import ConfigError
from traceadvisor.model.limits import TRUSTED


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording after 34 MB of spaces, which compress by a factor of 1,000."""
    content = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90).text()
    path = tmp_path / "worker0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b" " * 34_000_000 + content))
    return path


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/parsing")
def test_a_file_over_a_limit_is_read_with_the_suggested_option(recording: Path, tmp_path: Path) -> None:
    refused = reported(recording, "-o", tmp_path / "out")
    assert refused.exit_code == 3
    assert "add --trusted, or raise inflation_ratio in [tool.traceadvisor.limits]." in refused.stderr
    assert reported(recording, "-o", tmp_path / "out", "--trusted").exit_code == 0


def _settings(folder: Path, limit: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(f"[tool.traceadvisor.limits]\n{limit}\n", encoding="utf-8")
    return path


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/parsing")
def test_a_file_over_a_limit_is_read_with_the_suggested_setting(recording: Path, tmp_path: Path) -> None:
    settings = _settings(tmp_path, "inflation_ratio = 5000")
    assert reported(recording, "-o", tmp_path / "out", "--config", settings).exit_code == 0
    assert load(recording, settings=read_settings(settings)).health.events_read == 2


@pytest.mark.nightly("traceadvisor/scrubbing", "traceadvisor/parsing")
@pytest.mark.parametrize("options", [["--trusted"], []], ids=["option", "settings"])
def test_scrub_reads_a_file_over_a_limit(
    options: list[str],
    recording: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path_factory.mktemp("project")
    monkeypatch.chdir(project)
    scrub = ["scrub", str(recording), "-o", str(tmp_path / "copy.json")]
    assert CliRunner().invoke(main, scrub).exit_code == 3
    if not options:
        _settings(project, "inflation_ratio = 5000").rename(project / "pyproject.toml")
    assert CliRunner().invoke(main, [*scrub, *options]).exit_code == 0


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/parsing")
def test_compare_reads_a_file_over_a_limit(recording: Path, tmp_path: Path) -> None:
    compare = ["compare", str(recording), str(recording), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(main, compare).exit_code == 3
    assert CliRunner().invoke(main, [*compare, "--trusted"]).exit_code == 0


@pytest.mark.nightly("traceadvisor/cli")
def test_limits_can_be_set_from_python(recording: Path) -> None:
    assert load(recording, limits=Limits(inflation_ratio=5000)).health.events_read == 2


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/parsing")
def test_a_setting_and_trust_read_more_ranks_of_a_capture(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run", ranks=3)
    settings = _settings(tmp_path, "ranks = 2")
    few = reported(folder, "-o", tmp_path / "few", "--format", "json", "--config", settings)
    every = reported(folder, "-o", tmp_path / "all", "--format", "json", "--config", settings, "--trusted")
    assert (few.exit_code, every.exit_code) == (0, 0)
    counts = [len(json.loads((tmp_path / name / "report.json").read_text())["recordings"]) for name in ("few", "all")]
    assert counts == [2, 3]


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("inflation_ration = 5", "Did you mean 'inflation_ratio'?"),
        ("event_bytes = 0", "tool.traceadvisor.limits.event_bytes is 0. Expected a whole number from 1."),
        ("event_bytes = 'large'", "Expected a whole number from 1."),
    ],
)
def test_a_wrong_limit_is_wrong_usage(limit: str, error: str, recording: Path, tmp_path: Path) -> None:
    done = reported(recording, "--config", _settings(tmp_path, limit))
    assert done.exit_code == 2
    assert error in done.stderr


def test_limits_that_are_no_table_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[tool.traceadvisor]\nlimits = 5\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tool.traceadvisor.limits is 5. Expected a table."):
        read_settings(path)


@pytest.mark.parametrize("member", ["[" * 50_000 + "]" * 50_000, "9" * 100_000, '"' + "x" * 100_000 + '"'])
def test_trusted_input_that_python_cannot_hold_is_left_out(member: str, tmp_path: Path) -> None:
    content = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90).text()
    path = tmp_path / "worker0.1.pt.trace.json"
    path.write_bytes(content.replace(b"{", b'{"deep": ' + member.encode() + b", ", 1))
    assert load(path, limits=TRUSTED).health.events_read == 2
