"""The notes of a release, from the changelog."""

import shutil
from pathlib import Path

import pytest

from tests.children import run
from tests.shared import CHECKOUT

CHANGES = """# Changelog

## 1.1.0, 2027-02-01

### 2027-01-30

- A new thing.

## 1.0.0, 2027-01-01

- The first thing.
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The script in a checkout of version 1.1.0."""
    for folder in (".ci", "traceadvisor"):
        (tmp_path / folder).mkdir()
    (tmp_path / "traceadvisor" / "__init__.py").write_text('__version__ = "1.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return Path(shutil.copy(CHECKOUT / ".ci" / "notes", tmp_path / ".ci"))


def test_the_notes_of_a_version_are_its_section(notes: Path) -> None:
    assert run(notes, "1.1.0", check=True).stdout == "### 2027-01-30\n\n- A new thing.\n\n"


@pytest.mark.parametrize(
    ("version", "changes", "reason"),
    [
        ("1.0.0", CHANGES, "another version"),
        ("1.1.0", CHANGES.replace("1.1.0", "1.2.0"), "does not have it"),
        ("1.1.0", CHANGES.replace("2027-02-01", "unreleased"), "no date"),
    ],
)
def test_a_version_without_notes_or_a_date_is_not_released(
    notes: Path, version: str, changes: str, reason: str
) -> None:
    (notes.parents[1] / "CHANGELOG.md").write_text(changes)
    done = run(notes, version)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
