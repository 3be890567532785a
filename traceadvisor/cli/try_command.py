"""``traceadvisor try``: measure the fixes that a report proposes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.script_options import Asked, shared_options
from traceadvisor.cli.streams import tell
from traceadvisor.cli.suggestions import RunsScript
from traceadvisor.errors import UsageError
from traceadvisor.text.cleaning import clean

SETTINGS_SHARE = 0.5
"""Share of the time in which the fixes are measured, if a patch of them is measured, too."""

CHANGE_IT = "Make the change, and measure it with --edit, or record again and compare"
"""The remedy where every fix is a change of code."""

NO_FINDINGS = "It has no findings. To measure a change of your own, write it as a patch: --edit my.patch."

if TYPE_CHECKING:
    from traceadvisor.experiments.result import Surroundings
    from traceadvisor.model.report import Report


class _Command(RunsScript):
    """Takes options behind REPORT, too, where ``--`` separates them from those of the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words."""
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@click.command("try", cls=_Command, context_settings={"max_content_width": 100, "allow_interspersed_args": False})
@click.argument("report", type=click.Path(path_type=Path, exists=True), metavar="REPORT")
@click.option("--fix", "fixes", multiple=True, metavar="RULE", help="Only this fix; can be repeated.  [default: all]")
@click.option(
    "--patch",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the fixes that were faster as a patch of your files, after it ran in a copy. Takes half of the time.",
)
@click.option(
    "--edit",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Measure this patch of your files instead of the report's fixes. It is applied to a copy.",
)
@shared_options
def command(*, report: Path, fixes: tuple[str, ...], patch: Path | None, edit: Path | None, asked: Asked) -> None:
    """Measure the fixes that a report proposes, one by one and together, beside what the report predicts.

    REPORT is a folder written by `traceadvisor capture`, a trace, or a JSON report. SCRIPT is the training script that
    was recorded, with its arguments. It runs unchanged for a limited time; meanwhile, the fixes alternate in short
    blocks of steps in random order.

        traceadvisor try runs/my-run -- train.py --epochs 3

        traceadvisor try report.json --fix DATA002 --fix GPU001 -- train.py

        traceadvisor try runs/my-run --patch fix.patch -- train.py

        traceadvisor try runs/my-run --edit my.patch -- train.py

    Fixes that change code, not a setting, are listed with the reason. Ctrl-C reports what was measured so far.

    Exit codes: 0 success; 2 wrong usage; 3 REPORT unreadable, or nothing was measured; 4 PDF is not available on this
    machine; 70 unexpected error; 130 Ctrl-C.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        from traceadvisor.cli.experiment_run import check_script, run  # noqa: PLC0415  # not for --help
        from traceadvisor.experiments.fixes import changes, proposals  # noqa: PLC0415
        from traceadvisor.experiments.plan import Plan  # noqa: PLC0415
        from traceadvisor.experiments.result import Surroundings  # noqa: PLC0415

        if patch and edit:
            raise UsageError("--patch writes a patch, and --edit measures one. Use one of them at a time.")
        if edit and fixes:
            raise UsageError("--edit measures a patch and no fix of the report. Leave --fix out.")
        if patch or edit:
            check_script(asked.words, is_module=asked.runs_module)
        read = _read(report)
        _warn_of_another_script(read, asked)
        if edit:
            _measure_edit(edit, asked, Surroundings("try", trace_report=str(report)), read)
            return
        follow_up = None
        if patch:
            from traceadvisor.experiments.patching.proved import PatchWriter  # noqa: PLC0415

            follow_up = PatchWriter(patch, read, Plan(script=asked.words, is_module=asked.runs_module))
        found, others = proposals(read, fixes)
        if not found:
            listed = "; ".join(f"{rule}: {reason}" for rule, reason in others.items())
            why = f"{listed}. {CHANGE_IT}." if listed else NO_FINDINGS
            raise UsageError(f"The report proposes no setting that can be tried. {why}")
        around = Surroundings("try", proposals=found, not_applicable=tuple(others.items()), trace_report=str(report))
        plan = Plan(changes=changes(found), until_decided=True)
        run(asked, plan, around, read, follow_up, SETTINGS_SHARE if patch else 1.0)


def _measure_edit(edit: Path, asked: Asked, around: Surroundings, report: Report) -> None:
    from traceadvisor.cli.experiment_run import run  # noqa: PLC0415  # not for --help
    from traceadvisor.experiments.patching.edit import Edit  # noqa: PLC0415
    from traceadvisor.experiments.plan import Plan  # noqa: PLC0415
    from traceadvisor.experiments.run import terminated_as_interrupted  # noqa: PLC0415

    with terminated_as_interrupted():
        change = Edit(edit, Plan(script=asked.words, is_module=asked.runs_module))
    try:
        run(asked, change.plan(Plan(until_decided=True)), around, report, change)
    finally:
        change.close()


def _warn_of_another_script(report: Report, asked: Asked) -> None:
    from traceadvisor.model.command import script_name  # noqa: PLC0415  # not for --help

    runs = (one.captured for one in report.recordings)
    recorded = {name for run in runs if run and (name := script_name(run.command))}
    given = script_name((*(("-m",) if asked.runs_module else ()), *asked.words))
    if recorded and given not in recorded:
        listed = " and ".join(sorted(map(clean, recorded)))
        tell(f"the report is of {listed}: its fixes may not fit {clean(given or '')}.")


def _read(path: Path) -> Report:
    from traceadvisor import api  # noqa: PLC0415  # it imports numpy
    from traceadvisor.cli.progress_bars import reading_progress  # noqa: PLC0415  # as above
    from traceadvisor.results.report_json import read  # noqa: PLC0415

    if path.is_file() and path.name.endswith("report.json"):
        return read(path)
    with reading_progress() as progress:
        return api.load(path, progress=progress)
