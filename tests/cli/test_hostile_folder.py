"""No code or settings are loaded from the folder of the recordings, even as working directory."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.children import added, run
from tests.shared import CHECKOUT

SHADOWED = ("click", "isal", "markupsafe", "msgspec", "numpy", "pandas", "rich", "weasyprint")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A recording in a folder with hostile modules, rules, style sheets and settings."""
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "worker0.1.pt.trace.json").write_bytes(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 50).text())
    spring = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n"
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(spring)
    for name in ("rules/evil.py", "traceadvisor_rules/__init__.py", "sitecustomize.py", "conftest.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(spring)
    for name in ("report.html.j2", "report.md.j2", "report.css.j2"):
        for place in ("templates", "_templates"):
            (folder / place).mkdir(exist_ok=True)
            (folder / place / name).write_text("the template of somebody else")
    (folder / "pyproject.toml").write_text("[tool.traceadvisor]\nselect = ['DATA001']\nplugins = true\n")
    return folder


def _script() -> list[str]:
    return [str(Path(sys.executable).parent / "traceadvisor")]


def _module() -> list[str]:
    return [sys.executable, "-m", "traceadvisor"]


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("command", [_script, _module])
def test_a_report_in_a_hostile_folder_runs_no_foreign_code(command: Callable[[], list[str]], trap: Path) -> None:
    arguments = ["report", ".", "-o", "out", "--format", "html,md,json"]
    result = run(*command(), *arguments, cwd=trap, env=added(PYTHONPATH=str(CHECKOUT)))
    assert result.returncode == 0, result.stderr
    assert not (trap.parent / "sprung").exists()
    for name in ("report.html", "report.md", "report.json"):
        content = (trap / "out" / name).read_text()
        assert "somebody else" not in content
        assert "DATA002" in content or name != "report.json"
