"""Runs each tutorial as a reader would."""

import gzip
import pickle
from pathlib import Path

import pytest

from tests.documentation.running import matches, run_page
from tests.memory import tutorials
from tests.shared import CHECKOUT

LONG = ("data-loader", "first-report", "guard-in-ci", "late-rank", "tensorboard")
NIGHTLY = pytest.mark.nightly(
    "docs/tutorials", "traceadvisor/cli", "traceadvisor/comparing", "traceadvisor/recording", "tests/documentation"
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=NIGHTLY if page.stem in LONG else pytest.mark.slow)
        for page in sorted((CHECKOUT / "docs" / "tutorials").glob("*.md"))
    ],
)
def test_the_commands_of_a_tutorial_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("name", tutorials.NAMES)
def test_a_snapshot_of_a_tutorial_is_what_its_script_writes(name: str) -> None:
    written = (tutorials.FOLDER / f"{name}.pickle.gz").read_bytes()
    batch, fused = tutorials.NAMES[name]
    assert _content(written) == _content(tutorials.snapshot(batch, fused=fused))


def _content(snapshot: bytes) -> object:
    return pickle.loads(gzip.decompress(snapshot))  # noqa: S301  # made by this project


def _page(folder: Path, text: str) -> Path:
    (folder / "page.md").write_text(text, encoding="utf-8")
    return folder / "page.md"


def test_a_page_saves_changes_and_runs_a_file(tmp_path: Path) -> None:
    page = """
Save this as `hello.py`:

```python
print("hello")
count = 1
```

In `hello.py`, change:

```diff
-print("hello")
+print("goodbye")
 count = 1
```

Run it:

```sh
python hello.py
```

It prints

```text
goodbye
```
"""
    run_page(_page(tmp_path, page), tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        "Run it:\n\n```sh\nfalse\n```\n",
        "Run it:\n\n```sh\necho 3 steps\n```\n\nIt prints\n\n```text\n3 batches\n```\n",
        "<!-- test: false -->\n",
    ],
)
def test_a_page_that_is_wrong_fails(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(_page(tmp_path, page), tmp_path)


def test_figures_may_differ_and_words_may_not() -> None:
    assert matches("186.1 ms per step, ... likely", "a\n95 ms per\n step, 44% less time, likely")
    assert not matches("186.1 ms per step, likely", "186.1 ms per step, shown")
