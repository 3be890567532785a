"""``traceadvisor report``: analyse recordings and write a report."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack, assert_never

import click

from traceadvisor import api
from traceadvisor.cli.exit_codes import ExitCode, ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.fail_on import Condition, first_met, parse_conditions
from traceadvisor.cli.index_output import runs_to_list, write_index
from traceadvisor.cli.options import (
    LOCATION,
    STANDARD_OUTPUT,
    SettingsOptions,
    chosen_formats,
    chosen_settings,
    chosen_workers,
    format_option,
    names_file,
    output_option,
    place_of,
    settings_options,
    workers_options,
)
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.streams import tell
from traceadvisor.cli.terminal_summary import print_report, print_summary, write_and_print
from traceadvisor.config import Settings
from traceadvisor.errors import UsageError
from traceadvisor.model.limits import Limits
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import (
    BESIDE_PLUGIN_FORMATS,
    FORMATS,
    FULL_FORMATS,
    INDEX_FORMATS,
    PAGES,
    PDF,
    Format,
    write_formats,
)
from traceadvisor.rendering.own_files import title_of
from traceadvisor.text.cleaning import clean, one_line

GITHUB = "github"
"""The format of GitHub's annotations."""


@click.command("report", context_settings={"max_content_width": 100})
@click.argument("paths", nargs=-1, type=LOCATION)
@output_option("traceadvisor-report")
@format_option(FORMATS, " 'github' prints annotations of a GitHub workflow, and appends to its step summary.")
@click.option("--run", metavar="PATTERN", help="Only runs whose name matches this shell pattern.")
@click.option("--worker", metavar="PATTERN", help="Only workers whose name matches.")
@click.option("--span", metavar="PATTERN", help="Only spans (the time stamp in the file name) that match.")
@click.option(
    "--fail-on",
    "fail_on",
    multiple=True,
    metavar="CONDITIONS",
    help="Exit with 1 if a condition is true. Comma-separated: a severity (high, medium, low: that or worse), "
    "a rule id, 'degraded' for damaged input, or 'failed-check' for a check that did not end. Overrides fail_on in "
    "the settings; '' for none.",
)
@click.option(
    "--base",
    multiple=True,
    type=LOCATION,
    metavar="PATH",
    help="Also compare with this capture, trace, log directory or JSON report, as `compare` does; give it several "
    "times for several captures. --fail-on then takes 'regression', 'regression=5%' and 'new:high', too.",
)
@click.option(
    "--full", is_flag=True, help="A PDF with all details, instead of two pages with the findings and the step."
)
@workers_options
@click.option(
    "--save-steps",
    is_flag=True,
    help="Also write the typical step of each recording as a small trace file for Perfetto, without secrets.",
)
@click.option(
    "--explain-silence",
    is_flag=True,
    help="Also print which findings a law dropped or cut down, and by how much.",
)
@click.option(
    "--beside-plugin",
    is_flag=True,
    help="Also set the figures of torch-tb-profiler beside those of the report, with the cause of each difference. It "
    "reads each recording again, without limits.",
)
@click.option(
    "--index/--no-index",
    default=None,
    help="One page that lists all runs, the newest first, with a report of each beside it; or one report that compares "
    "them.  [default: an index of more than 20 runs]",
)
@click.option(
    "--no-cache", is_flag=True, help="For an index: read all runs again, and keep no reports for the next time."
)
@settings_options
def command(
    *,
    paths: tuple[Path, ...],
    output: str,
    formats: str,
    run: str | None,
    worker: str | None,
    span: str | None,
    fail_on: tuple[str, ...],
    base: tuple[Path, ...],
    full: bool,
    processes: int | None,
    dask: str | None,
    save_steps: bool,
    explain_silence: bool,
    beside_plugin: bool,
    index: bool | None,
    no_cache: bool,
    **options: Unpack[SettingsOptions],
) -> None:
    """Show where the step time of a recording goes, and what to fix first.

    PATHS are folders written by `traceadvisor capture`, torch.profiler trace files (*.pt.trace.json, gzipped or not),
    TensorBoard log directories with such files, folders written by the profiler of torch_npu (*_ascend_pt), or memory
    snapshots of torch.cuda.memory._dump_snapshot (*.pickle, gzipped or not). Without PATHS, the newest capture in runs/
    is read. PATHS may be URLs: s3://, gs://, hf:// and https:// (of a file), with `pip install 'traceadvisor[remote]'`.

    Exit codes: 0 success; 1 a --fail-on condition is true; 2 wrong usage, or the output cannot be written; 3 input
    unreadable, or no step in it to report; 4 PDF is not available on this machine; 70 unexpected error. Formats without
    an error are written.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        paths = paths or (_newest(),)
        settings, catalogue = chosen_settings((*paths, *base), options)
        conditions = parse_conditions(fail_on, settings, catalogue, compares=bool(base))
        names = chosen_formats(formats, FORMATS, output)
        _check_files(names, output, full=full, with_base=bool(base), save_steps=save_steps)
        selection, workers = api.Selection(run, worker, span), chosen_workers(processes, dask)
        only = _only_of_a_report(names, output, conditions)
        if runs := runs_to_list(paths, selection, asked=index, only_of_a_report=only):
            cached = not no_cache
            write_index(
                paths, runs, output, names, settings=settings, selection=selection, processes=workers, cached=cached
            )
            return
        is_whole = bool(base) or save_steps or beside_plugin or not PAGES.issuperset(names)
        result = _read(paths, selection, settings, workers, is_whole=is_whole)
        _write(result, output, names, FULL_FORMATS if full else FORMATS, explain_silence=explain_silence)
        folder = place_of(output, names, FORMATS)[0]
        if save_steps:
            _save_steps(result, folder, settings.limits)
        if beside_plugin:
            _beside_plugin(result, output, folder, names)
        met = first_met(conditions, result)
        if base:
            from traceadvisor.cli.comparison_output import compare_beside  # noqa: PLC0415  # slow to import

            still = () if met else conditions
            compare_beside(result, base, still, folder=folder, names=names, settings=settings, processes=workers)
    _end(result, met, option="--fail-on" if fail_on else "fail_on")


def _end(result: Report, met: str | None, *, option: str) -> None:
    """Exit for a condition that is met, or a report without figures, after saying so."""
    if met:
        tell(f"exit code 1 because of {option}: {met}")
        sys.exit(ExitCode.CONDITION_MET)
    if not result.has_figures:
        tell("exit code 3: no step was found, see the report for the reason.")
        sys.exit(ExitCode.UNREADABLE)


def _only_of_a_report(names: Iterable[str], output: str, conditions: Sequence[Condition]) -> list[str]:
    """The options in use that an index does not have."""
    given = click.get_current_context().params
    flags = ("base", "full", "save_steps", "beside_plugin", "explain_silence")
    only = {
        **{f"format {name}": name not in INDEX_FORMATS for name in names},
        **{f"--{flag.replace('_', '-')}": given[flag] for flag in flags},
        "--fail-on": conditions,
        f"-o {output}": names_file(output, FORMATS),
    }
    return [name for name, is_used in only.items() if is_used]


def _check_files(names: Container[str], output: str, *, full: bool, with_base: bool, save_steps: bool) -> None:
    """Raise UsageError for a choice of details without its format, and for files beside a report that is printed."""
    if full and PDF not in names:
        raise UsageError("--full is for a PDF. Add `--format pdf`; the other formats have all details.")
    if with_base and output == STANDARD_OUTPUT:
        raise UsageError("--base writes a comparison beside the report. Choose a folder with -o, or use `compare`.")
    if save_steps and output == STANDARD_OUTPUT:
        raise UsageError("--save-steps writes files. Choose a folder with -o.")


def _beside_plugin(result: Report, output: str, folder: Path, names: list[str]) -> None:
    """Print the figures of torch-tb-profiler beside those of the report, and write them beside it."""
    from traceadvisor.integrations.beside_plugin import beside_plugin  # noqa: PLC0415  # most reports do not need it
    from traceadvisor.rendering.content.beside_plugin import beside_plugin_document  # noqa: PLC0415  # as above

    beside = beside_plugin(result)
    shared = [name for name in names if name in BESIDE_PLUGIN_FORMATS and output != STANDARD_OUTPUT]
    click.echo()
    write_and_print(beside, beside_plugin_document, folder, shared, BESIDE_PLUGIN_FORMATS)


def _save_steps(result: Report, folder: Path, limits: Limits) -> None:
    """Write the typical steps beside the report, and say where they are or why they are not there."""
    from traceadvisor.judging.saved_steps import SavedStep, UnsavedStep  # noqa: PLC0415  # most reports do not need it

    for step, path in api.save_steps(result, folder, limits=limits):
        name = one_line(clean(step.recording_id))
        match step:
            case SavedStep(is_same=is_same):
                differs = "" if is_same else "; read alone, its figures differ from those of the report"
                click.echo(f"{path}: a typical step of {name}{differs}", err=True)
                click.echo(f"To show it in Perfetto: traceadvisor open {shlex.quote(str(path))}", err=True)
            case UnsavedStep(reason=reason):
                click.echo(f"No step of {name} was saved: {one_line(clean(reason))}.", err=True)
            case _:
                assert_never(step)


def _newest() -> Path:
    """The newest capture, after saying which one it is."""
    path, among = api.newest_capture()
    which = "the only capture" if among == 1 else f"the newest of {among} captures"
    tell(f"reading {path}, {which} in {api.RUNS}/.")
    return path


def _read(
    paths: Iterable[Path], selection: api.Selection, settings: Settings, processes: int | str | None, *, is_whole: bool
) -> Report:
    """Read recordings with a progress bar; all details of them, or those that pages show."""
    details = api.Details.ALL if is_whole else api.Details.SHOWN
    load = partial(api.load, *paths, selection=selection, settings=settings, processes=processes, details=details)
    with reading_progress() as progress:
        return load(progress=progress)


def _write(
    result: Report, output: str, names: list[str], formats: Mapping[str, Format], *, explain_silence: bool
) -> None:
    """Write all formats, then print the summary; raise the error of a format that was not written."""
    if output == STANDARD_OUTPUT:
        print_report(formats[names[0]], result)
    else:
        folder, named = place_of(output, names, formats)
        before = title_of(folder / named["html"].file_name) if "html" in names else None
        written = write_formats(result, folder, [name for name in names if not FORMATS[name].is_printed], named)
        print_summary(result, list(written.paths.values()), explain_silence=explain_silence)
        page = written.paths.get("html")
        if page and before and (now := title_of(page)) != before:
            tell(f"the page on {one_line(clean(now or ''))} replaced that on {one_line(clean(before))}: {page}.")
        for name in names:
            if FORMATS[name].is_printed:
                print_report(FORMATS[name], result)
        api.raise_failure(written)
    if GITHUB in names:
        _append_step_summary(result)


VARIABLE = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1 << 20
"""A longer summary is refused as a whole."""


def _append_step_summary(report: Report) -> None:
    """Append the report as Markdown to the summary of this step; no-op outside of a GitHub workflow."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    content = FORMATS["md"].render(report) + b"\n"
    path = Path(file)
    try:
        before = path.stat().st_size if path.exists() else 0
        if before + len(content) > MOST_BYTES:
            tell(f"no step summary: it has {before:,} bytes already, and at most {MOST_BYTES:,} are allowed.")
            return
        with path.open("ab") as summary:
            summary.write(b"\n" * bool(before) + content)
    except OSError as error:
        tell(f"no step summary: {VARIABLE} names a file that could not be written ({error.strerror or error}).")
