"""Runs readers in turns, each in a fresh process, and keeps what they took."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks.contenders import Contender
from benchmarks.machine import memory_bytes
from benchmarks.measuring import RunError, Series, measure
from benchmarks.results import Results, Workload


class Bench:
    """Fills :attr:`results`."""

    def __init__(self) -> None:
        self.results = Results()

    def run(self, workload: Workload, counts: Mapping[Contender, int], *, after: Workload | None = None) -> None:
        """Run each contender so many times, in turns; what is known already is not measured again.

        Args:
            workload: what they read.
            counts: how often each is run.
            after: a smaller workload; by what a contender took of memory there it is left out if it does not fit here.
        """
        left = {one: count for one, count in counts.items() if (workload, one) not in self.results.series}
        for contender in left:
            reason = contender.missing or self._too_large(contender, workload, after)
            self.results.series[workload, contender] = Series(not_run=reason)
        for number in range(max(left.values(), default=0)):
            for contender, count in left.items():
                if number < count:
                    self._run_once(workload, contender)

    def _run_once(self, workload: Workload, contender: Contender) -> None:
        series = self.results.series[workload, contender]
        if series.not_run:
            return
        with tempfile.TemporaryDirectory() as folder:
            try:
                usage = measure(contender.argv(workload.path, Path(folder)))
            except RunError as error:
                series.not_run = str(error)
                click.echo(f"{contender.title}: {error}", err=True)
                return
        series.runs.append(usage)
        click.echo(f"{workload.size}: {contender.title}: {usage.wall_s:.2f} s", err=True)

    def _too_large(self, contender: Contender, workload: Workload, after: Workload | None) -> str | None:
        known = self.results.of(after, contender) if after else None
        if not known or not after:
            return None
        needed_bytes = known.peak_bytes * workload.json_bytes / after.json_bytes
        if needed_bytes < memory_bytes():
            return None
        return f"would take about {needed_bytes / 2**30:.0f} GiB of memory, more than there is"
