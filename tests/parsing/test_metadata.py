"""A trace file that holds secrets is named, and no report shows them."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from traceadvisor import load
from traceadvisor.api import write
from traceadvisor.cli import main
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.text.documents import secret_members, secrets_in
from traceadvisor.text.secrets import beginning

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"  # noqa: S105  # looks like one


def recording(folder: Path, **members: Any) -> Path:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 5).op("aten::mm", 5, 90)
    for key, value in members.items():
        builder.member(key, value)
    return builder.write(folder / "worker0.1.pt.trace.json")


def secrets(report: Report) -> list[str]:
    return [row.note.message for row in report.health_notes if row.note.code == "secrets"]


@pytest.mark.parametrize(
    ("members", "places"),
    [
        ({"env": {"HOME": "/root", "WANDB_API_KEY": "0123abc9"}}, ["env.WANDB_API_KEY"]),
        ({"command": ["train.py", f"--token={TOKEN}"]}, ["command"]),
        ({"command": ["train.py", "--db-password", "pw"]}, ["command"]),
        ({"proxy": "http://ada:lovelace@proxy:3128"}, ["proxy"]),
        ({"a": [{"b": {"password": "hunter2hunter2"}}]}, ["a.b.password"]),
        ({"INFO": ["INFO: Authorization: Bearer abcdefghijklmnop1234"] * 3}, ["INFO"]),
        ({"trace_id": "094DFF9CD7781F8ADDEAFBA6A8855CA7", "max_tokens": "4096", "host_name": "node7"}, []),
        ({"pg_config": [{"pg_name": "0", "ranks": list(range(1000))}]}, []),
    ],
)
def test_a_secret_is_reported_by_the_name_of_its_member(members: dict[str, Any], places: list[str]) -> None:
    assert secret_members(members) == places


def test_a_long_name_is_shortened_to_its_beginning() -> None:
    assert "in " + "x" * 80 + ". " in (secrets_in("trace.json", {"x" * 3_000_000: TOKEN}) or "")
    assert set(map(len, secret_members({"x" * 3_000_000: {f"{n}_token": TOKEN for n in range(1000)}}))) <= {88, 89, 90}


def test_the_warning_names_the_file_and_the_report_hides_the_secret(tmp_path: Path) -> None:
    report = load(recording(tmp_path, env={"GITHUB_TOKEN": TOKEN, "DB_PASSWORD": "correct-horse", "PATH": "/bin"}))
    (message,) = secrets(report)
    assert message.startswith("worker0.1.pt.trace.json seems to contain secrets, in env.")
    assert "env.GITHUB_TOKEN" in message
    for path in write(report, tmp_path / "out", ["html", "md", "json"]).values():
        assert "seems to contain secrets" in path.read_text()
        assert TOKEN not in path.read_text()
        assert "correct-horse" not in path.read_text()


def test_members_that_are_not_known_are_not_shown_at_all(tmp_path: Path) -> None:
    report = load(recording(tmp_path, env={"LD_LIBRARY_PATH": "/opt/somewhere"}, username="mojif", tw_job="resnet"))
    for path in write(report, tmp_path / "out", ["html", "md", "json"]).values():
        assert not any(word in path.read_text() for word in ("somewhere", "mojif", "resnet", "LD_LIBRARY_PATH"))


def test_secrets_do_not_degrade_the_figures(tmp_path: Path) -> None:
    report = load(recording(tmp_path, token=TOKEN))
    assert secrets(report)
    assert report.health.status is HealthStatus.OK


def test_the_terminal_warns(tmp_path: Path) -> None:
    path = recording(tmp_path, token=TOKEN)
    result = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out")])
    assert "Secrets: worker0.1.pt.trace.json seems to contain secrets, in token." in result.stdout
    assert TOKEN not in result.output


def test_a_long_name_is_cut_only_after_the_secrets_in_it_are_gone() -> None:
    token = "ghp_" + "a" * 36
    assert beginning("x" * 60 + " " + token) == "x" * 60 + " [redacted]"
    assert beginning("x" * 75 + " " + token) == "x" * 75 + " [red"


def test_the_only_described_device_is_the_one_that_works_by_whatever_number(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name="AMD Instinct MI210").launch(0, 5, kernel=(10, 50), device=2)
    assert builder.trace(tmp_path).device(2).name == "AMD Instinct MI210"
    assert builder.trace(tmp_path).device(2).index == 2


def test_of_several_devices_none_stands_for_another(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name="AMD Instinct MI210").launch(0, 5, kernel=(10, 50), device=2)
    assert builder.launch(60, 65, kernel=(70, 90), device=3).trace(tmp_path).device(2).name is None
