"""What another process describes of a recording is what this one would describe."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.shared import SAMPLES
from traceadvisor import api
from traceadvisor.facts import Facts
from traceadvisor.judging import files, recording
from traceadvisor.judging.recording import Tables, tables_of
from traceadvisor.parsing import second_part
from traceadvisor.results import report_json
from traceadvisor.system.executor import Aside


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recordings of which this process made the tables, with a second one for files of any size."""
    here: list[str] = []

    def made(facts: Facts) -> Tables:
        here.append(facts.recording_id)
        return tables_of(facts)

    monkeypatch.setattr(recording, "tables_of", made)
    monkeypatch.setattr(files, "SPLIT_BYTES", 0)
    return here


def report(path: Path, processes: int) -> str:
    return report_json.render(api.load(path, processes=processes)).decode()


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("name", ["loader-bound", "two-ranks"])
def test_another_process_describes_a_recording_alike(name: str, made_here: list[str]) -> None:
    path = next(path for folder in SAMPLES if folder.name == name for path in sorted(folder.glob("*.json.gz")))
    by_two = report(path, 2)
    assert made_here == []
    assert by_two == report(path, 1)
    assert len(made_here) == 1
    assert '"origins"' in by_two


def _leave(kept: object) -> NoReturn:
    raise SystemExit(9)


class Leaving(Aside):
    """A process that ends at one of its tasks."""

    at = ""

    def begin(self, task: Any) -> int:
        return super().begin(_leave if type(task).__name__ == self.at else task)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize(("at", "count"), [("_Part", 1), ("_MakeTables", 1), ("_FindOrigins", 0)])
def test_this_process_does_what_the_other_one_left(
    at: str, count: int, made_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(path for folder in SAMPLES for path in sorted(folder.glob("*.json.gz")))
    monkeypatch.setattr(second_part, "Aside", type("LeavingAt", (Leaving,), {"at": at}))
    by_two = report(path, 2)
    assert len(made_here) == count
    assert by_two == report(path, 1)
