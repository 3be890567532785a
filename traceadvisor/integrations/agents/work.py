"""The process that reads for a call: it can be killed, what it prints reaches nobody, and it opens nothing outside."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from traceadvisor import api
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.errors import InputError, TraceAdvisorError
from traceadvisor.indexing.runs import files_in
from traceadvisor.integrations.agents.answers import (
    CaptureAnswer,
    EndedRun,
    Refusal,
    Refused,
    Tool,
    bounded,
    quoted_line,
)
from traceadvisor.integrations.agents.digest import (
    compare_answer,
    explain_answer,
    report_answer,
    try_answer,
    whatif_answer,
)
from traceadvisor.integrations.telling import ReadingTold, tell
from traceadvisor.model.experiment import FILE
from traceadvisor.model.report import Report
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.system.confined import confine

JOB = "TRACEADVISOR_JOB"
"""The variable that holds the job, as JSON. Other users see the arguments of a process, but not its environment."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that ``whatif`` simulates."""

    gpus: tuple[str, ...] = ()
    batches: tuple[int | str, ...] = ()
    workers: int | None = None
    ranks: tuple[int, ...] = ()
    prices: dict[str, float] = {}
    recorded_batches: tuple[int, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Paths to read and what to make of them. All lie below the roots."""

    tool: Tool
    roots: tuple[str, ...]
    paths: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rule: str = ""
    page: str | None = None
    """A folder for the HTML page."""

    ended: EndedRun | None = None
    changes: Changes | None = None

    def answer(self) -> bytes:
        """Make the answer."""
        match self.tool:
            case Tool.COMPARE:
                comparison = compare_paths(self.paths, self.head, progress=self._progress())
                return bounded(lambda most: compare_answer(comparison, most))
            case Tool.EXPLAIN:
                found = self._report() if self.paths else None
                return bounded(lambda most: explain_answer(self.rule, found, most))
            case Tool.TRY:
                return self._tried()
            case Tool.WHATIF:
                return self._simulated()
            case Tool.CAPTURE:
                return self._captured()
            case Tool.REPORT:
                return self._reported()

    def _captured(self) -> bytes:
        (run,), ended, report = self.paths, self.ended, self._report()
        assert ended  # noqa: S101  # it ran
        return bounded(lambda most: CaptureAnswer(run=run, ended=ended, report=report_answer(report, self.paths, most)))

    def _reported(self) -> bytes:
        report = self._report()
        page = str(api.write(report, self.page, ("html",))["html"]) if self.page else None
        return bounded(lambda most: report_answer(report, self.paths, most, page))

    def _report(self) -> Report:
        return api.load(*self.paths, progress=self._progress(), within=[Path(root) for root in self.roots])

    def _tried(self) -> bytes:
        folder, ended = Path(self.paths[0]), self.ended
        assert ended  # noqa: S101  # it ran
        result = read_experiment(folder) if (folder / FILE).exists() else None
        return bounded(lambda most: try_answer(result, folder, ended, most))

    def _simulated(self) -> bytes:
        asked = msgspec.structs.asdict(self.changes or Changes())
        found = api.whatif(*self.paths, **asked, progress=self._progress())
        return bounded(lambda most: whatif_answer(found, most))

    def _progress(self) -> ReadingTold:
        return ReadingTold.of(files_in(_paths((*self.paths, *self.head)), _paths(self.roots)))


def _paths(names: Sequence[str]) -> list[Path]:
    return [Path(name) for name in names]


def main() -> None:
    """Do the job of the environment, and tell the answer."""
    try:
        job = msgspec.json.decode(os.fsencode(os.environ.pop(JOB)), type=Job)
        confine(_paths(job.roots))
        tell(answer=msgspec.Raw(job.answer()))
    except InputError as error:
        tell(refused=Refused(Refusal.INPUT, "It cannot be read.", quoted_line(error)))
    except (TraceAdvisorError, OSError) as error:
        tell(refused=Refused(Refusal.USAGE, "It cannot be done.", quoted_line(error)))
    except Exception:  # noqa: BLE001  # nobody else would see it
        sys.stderr.write(traceback.format_exc())
        tell(refused=Refused(Refusal.UNEXPECTED, "A bug in TraceAdvisor: the server's standard error has more."))


if __name__ == "__main__":
    main()
