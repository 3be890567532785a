"""The magic ``%%traceadvisor``: records the training in a cell of a notebook, and shows the report below it."""

from __future__ import annotations

from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from traceadvisor import api
from traceadvisor.config import find_settings
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.model.report import Report


@magics_class
class TraceAdvisorMagics(Magics):
    """Magics of TraceAdvisor."""

    @magic_arguments()
    @argument("-o", "--output", metavar="FOLDER", help="The new folder of the capture; by default in runs/.")
    @argument("--active", type=int, metavar="STEPS", help="Steps to record.")
    @argument("--no-stacks", action="store_true", help="Do not record Python stacks.")
    @argument("--stop-after-window", action="store_true", help="End the cell when the steps are recorded.")
    @cell_magic
    def traceadvisor(self, line: str, cell: str) -> Report:
        """Run the cell, record its training steps, and return the report, which the notebook shows."""
        given = parse_argstring(self.traceadvisor, line)
        shell = self.shell
        source = shell.transform_cell(cell)
        code = compile(source, shell.compile.cache(source, shell.execution_count, raw_code=cell), "exec")
        try:
            with api.capture(
                given.output, active=given.active, stacks=not given.no_stacks, stop_after_window=given.stop_after_window
            ) as run:
                exec(code, shell.user_ns)  # noqa: S102  # what the user wrote into the cell
            captured = run.captured
            if captured is None or captured.problem:
                raise UsageError(f"traceadvisor: nothing was recorded: {captured.problem if captured else ''}.")
            return api.load(captured.folder, settings=find_settings(Path.cwd()), processes=1)
        except TraceAdvisorError as error:
            raise UsageError(f"traceadvisor: {error}") from error
