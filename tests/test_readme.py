from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.shared import CHECKOUT
from traceadvisor.cli import main

README = CHECKOUT / "README.md"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/architecture.md",
    "docs/ci/README.md",
    "docs/comparing.md",
    "docs/settings.md",
    "docs/writing-a-rule.md",
    "docs/rules/README.md",
    "docs/validation.md",
    "docs/experiments.md",
    "sample_traces/README.md",
    "benchmarks/gpu/README.md",
    "docs/mutants.md",
)

_HELP_BLOCK = re.compile(r"(<!-- help: traceadvisor([a-z ]*?) -->\n```text\n)(.*?)(```\n)", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_SHELL_BLOCK = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)


def _help(verb: str) -> str:
    """What `traceadvisor [VERB] --help` prints on a terminal of 80 columns."""
    arguments = [*verb.split(), "--help"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments, prog_name="traceadvisor", catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_readme_shows_the_current_help_of_each_verb(golden: Callable[[Path, str], None]) -> None:
    shown = README.read_text(encoding="utf-8")
    golden(README, _HELP_BLOCK.sub(lambda block: f"{block[1]}{_help(block[2])}{block[4]}", shown))


def test_the_readme_shows_the_help_of_the_command_and_of_report() -> None:
    verbs = [block[2].strip() for block in _HELP_BLOCK.finditer(README.read_text(encoding="utf-8"))]
    assert {"", "report"} <= set(verbs)


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not ((CHECKOUT / page).parent / link).exists()]
    assert not missing


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands: list[str] = _SHELL_BLOCK.findall(README.read_text(encoding="utf-8"))
    (tests,) = [command for command in commands if command.endswith("pytest")]
    assert tests in (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
