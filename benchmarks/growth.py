"""How the cost of every rule, analysis and view grows with its input, on generated worst cases.

    python -m benchmarks.growth [--short] [--into benchmarks/measured.md]

The cases and what is measured are in ``tests/growth``. Exits with 1 if a cost grows faster than the contract allows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from benchmarks.tables import put_between, table
from tests.growth.measuring import FACTORS, LEAST_S, MOST_GROWTH, Measured, measured, sizes
from traceadvisor.judging.catalogue import all_rules

BEGIN, END = "<!-- growth: begin -->\n", "\n<!-- growth: end -->"


@click.command()
@click.option("--short", is_flag=True, help="The sizes that the slow tests use.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="Write the table into this document.")
@click.argument("cases", nargs=-1)
def main(*, short: bool, into: Path | None, cases: tuple[str, ...]) -> None:
    """Measure all worst cases, or those named."""
    found = []
    for what, size in sizes(long=not short).items():
        if not cases or what in cases:
            found.append(measured(what, size))
            click.echo(_line(found[-1]), err=True)
    text = _text(found)
    if into:
        put_between(into, BEGIN, END, text)
    else:
        click.echo(text)
    if any(each.too_fast for each in found):
        sys.exit(1)


def _text(found: Iterable[Measured]) -> str:
    found = list(found)
    ran = {rule for each in found for watches in each.watches for watch in watches for rule in watch.ran}
    stages = {stage for each in found for stage in each.stages}
    header = ("what grows", *(f"T({factor}n), s" for factor in FACTORS), "n", "growth", "fastest part", "its growth")
    rows = [_row(each) for each in found]
    return (
        f"{len(stages)} stages on {len(found)} worst cases; {len(ran)} of {len(all_rules())} rules judged something. "
        f"At most {MOST_GROWTH:g} is allowed.\n\n{table(header, rows)}"
    )


def _row(each: Measured) -> tuple[str, ...]:
    whole, fastest = each.whole, max(each.stages.values(), key=lambda growth: growth.ratio)
    times = (f"{seconds:.2f}" for seconds in whole.seconds)
    part = (fastest.stage, f"{fastest.ratio:.1f}") if fastest.seconds[-1] > LEAST_S else ("-", "-")
    return each.what, *times, str(each.size), f"{whole.ratio:.1f}", *part


def _line(each: Measured) -> str:
    too_fast = ", ".join(f"{growth.stage} {growth.ratio:.1f}" for growth in each.too_fast)
    return f"{each.what}: {each.whole.ratio:.1f}{f'; too fast: {too_fast}' if too_fast else ''}"


if __name__ == "__main__":
    main()
