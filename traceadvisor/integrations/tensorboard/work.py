"""The process that makes a report for the tab. It ends with whoever started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor import api
from traceadvisor.comparing.compare import compare
from traceadvisor.errors import InputError, TraceAdvisorError
from traceadvisor.indexing.cache import Cache
from traceadvisor.indexing.runs import is_below, shown
from traceadvisor.integrations.telling import ReadingTold, tell
from traceadvisor.integrations.tensorboard.job import Job, Side
from traceadvisor.model.report import Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.content.report.health import is_damaged
from traceadvisor.rendering.document.blocks import Document
from traceadvisor.rendering.writers.html import write
from traceadvisor.system.confined import confine
from traceadvisor.text.cleaning import clean


def main() -> None:
    """Make what a line of the standard input names; the cache is in the folder of the command line."""
    with suppress(OSError):
        os.nice(10)
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        job = msgspec.json.decode(line, type=Job)
        confine([Path(os.fsdecode(root)) for side in job.sides for root in side.roots])
        tell(key=_made(job, Cache(Path(sys.argv[1]))))
    except (TraceAdvisorError, OSError) as error:  # a file is gone, or the disk is full
        tell(error=clean(str(error)))
    except Exception:  # noqa: BLE001  # nobody else would see it
        tell(error=clean(traceback.format_exc()))
    sys.stdout.flush()
    os._exit(0)


def _made(job: Job, cache: Cache) -> str:
    key = job.key()
    if not cache.holds(key):
        progress = ReadingTold.of(file for side in job.sides for file in side.files())
        reports = [_loaded(side, progress) for side in job.sides]
        document = report_document(reports[0])
        if len(reports) > 1:
            document = comparison_document(compare(reports[:1], reports[1:]))
        cache.put(key, write(document), _told(document, reports))
    return key


def _told(document: Document, reports: list[Report]) -> dict[str, Any]:
    """Return the facts on a report that the list of runs shows."""
    steps: defaultdict[str, float] = defaultdict(float)
    for one in reports[-1].recordings:
        if one.typical_step_ns and one.step_source is not StepSource.WINDOW:
            run = shown(one.run)  # a folder's name need not be UTF-8
            steps[run] = max(steps[run], one.typical_step_ns / 1e6)
    return {
        "headline": document.headline,
        "step_ms": max(steps.values(), default=None),
        "steps_ms": steps,
        "is_damaged": is_damaged(reports[-1]),
    }


def _loaded(side: Side, progress: ReadingTold) -> Report:
    roots, paths = ([Path(os.fsdecode(path)) for path in some] for some in (side.roots, side.paths))
    for path in paths:
        if not is_below(path, roots):
            raise InputError(path, "leads out of the log folder", expected="a recording in it", remedy="Copy it there.")
    chosen = api.Selection(worker=side.worker, span=side.span)
    return api.load(*paths, selection=chosen, progress=progress, within=roots)


def _end_with_starter() -> None:
    """Kill this process and those that it started when nobody can read its result any more."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
