import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.children import run
from tests.cli.man_page import man_page
from tests.shared import CHECKOUT
from traceadvisor.cli import main

README = CHECKOUT / "README.md"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "GOVERNANCE.md",
    "ROADMAP.md",
    "SECURITY.md",
    "docs/README.md",
    "benchmarks/advice-by-recording.md",
    "docs/gallery.md",
    "docs/python.md",
    "docs/architecture.md",
    "docs/how-to-read-a-report.md",
    "docs/quick-starts.md",
    "docs/troubleshooting.md",
    "docs/ci/README.md",
    "docs/comparing.md",
    "docs/settings.md",
    "docs/writing-a-rule.md",
    "docs/rules/README.md",
    "docs/validation.md",
    "docs/experiments.md",
    "sample_traces/README.md",
    "benchmarks/gpu/README.md",
    "benchmarks/mutants.md",
    "benchmarks/validation/details.md",
    "docs/versions.md",
    *(f"docs/tutorials/{path.name}" for path in sorted((CHECKOUT / "docs" / "tutorials").glob("*.md"))),
)

COMMAND_LINE = CHECKOUT / "docs" / "command-line.md"
MANUAL = CHECKOUT / "docs" / "traceadvisor.1"
VERBS = tuple(main.list_commands(click.Context(main)))
_EVERYWHERE = re.compile(r"^  --debug  .*?^  -h, --help  [^\n]*\n", re.DOTALL | re.MULTILINE)
"""The options that every verb has; they stand at the top of the page."""
_OPTION = re.compile(r"^  \S.*\n(?:   .*\n|\n)*|^\n.*\n", re.MULTILINE)
"""An option with its explanation; or a heading, such as that of commands."""
_NAME = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_SHELL_BLOCK = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)


def _help(verb: str) -> str:
    """What `traceadvisor [VERB] --help` prints on a terminal of 80 columns."""
    arguments = [*verb.split(), "--help"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments, prog_name="traceadvisor", catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def _blocks() -> Iterator[str]:
    """The help of the tool and of each verb, without options that an earlier verb explains in the same words."""
    yield f"## traceadvisor\n\n```text\n{_help('')}```\n"
    told: dict[str, str] = {}
    for verb in VERBS:
        before, options, listed = _EVERYWHERE.sub("", _help(verb)).partition("\nOptions:\n")
        again: dict[str, list[str]] = {}
        kept = ""
        for option in _OPTION.findall(listed):
            words = " ".join(option.split())
            if told.setdefault(words, verb) == verb:
                kept += option
            else:
                again.setdefault(told[words], []).append(max(_NAME.findall(option.splitlines()[0])[:2], key=len))
        yield f"## traceadvisor {verb}\n\n```text\n{before}{options}{kept}```\n"
        if again:
            also = "; ".join(
                f"{', '.join(f'`{one}`' for one in names)} as in `{other}`" for other, names in again.items()
            )
            yield f"Also {also}.\n"


def test_the_page_of_the_command_line_and_the_manual_show_the_help_of_each_verb(
    golden: Callable[[Path, str], None],
) -> None:
    about = (
        "What `traceadvisor --help` and the help of each verb print; an option of several verbs is explained once. "
        "Every verb has `--debug` and `--help`, too."
    )
    golden(COMMAND_LINE, "\n".join(("# Command line\n", f"{about}\n", *_blocks())))
    golden(MANUAL, man_page())


@pytest.mark.usefixtures("groff")
def test_man_shows_the_manual_without_a_warning() -> None:
    shown = run("groff", "-man", "-Tutf8", "-ww", "-P-cbou", MANUAL, check=True)
    assert shown.stderr == ""
    assert "traceadvisor report [OPTIONS] [PATHS]..." in shown.stdout


def test_the_readme_stays_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 200


def test_the_entry_of_the_documentation_links_to_every_page() -> None:
    entry = (CHECKOUT / "docs" / "README.md").read_text(encoding="utf-8")
    docs = CHECKOUT / "docs"
    pages = {str(path.relative_to(docs)) for path in (*docs.glob("*.md"), *docs.glob("tutorials/*.md"))} - {"README.md"}
    assert not pages - set(_LINK.findall(entry))


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
