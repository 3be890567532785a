"""How far the reading of files has come, drawn on a terminal while it lasts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from traceadvisor import api, judging


@contextmanager
def reading_progress() -> Iterator[judging.Progress]:
    """Who is told how the reading gets on; nobody where nobody looks on."""
    if not sys.stderr.isatty():
        yield api.silent
        return
    from traceadvisor.cli.progress_bars import bars  # noqa: PLC0415  # what draws them takes time to import

    with bars() as show:
        yield show
