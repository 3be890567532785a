"""The magic ``%%traceadvisor``, in a kernel of Jupyter."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.shared import CHECKOUT

pytestmark = pytest.mark.nightly(
    "traceadvisor/integrations/jupyter.py", "tests/integrations/test_jupyter.py", "docs/with-other-tools.md"
)

_PAGE = (CHECKOUT / "docs" / "with-other-tools.md").read_text(encoding="utf-8")
_CELLS = re.findall(r"```ipython\n(.*?)```", _PAGE, re.DOTALL)


@pytest.mark.usefixtures("jupyter")
def test_a_cell_shows_the_report_on_its_training(tmp_path: Path) -> None:
    import nbclient  # noqa: PLC0415  # one of the frameworks
    import nbformat  # noqa: PLC0415  # as above

    cells = [
        *_CELLS,
        "losses[-1], _.recordings[0].captured.command",
        "%%traceadvisor -o runs/cell\n1",
        "%%traceadvisor\n1/0",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(
        notebook, timeout=600, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs: list[list[Any]] = [cell.outputs for cell in notebook.cells]
    (shown,) = (one for one in outputs[1] if one.output_type == "execute_result")
    assert "<iframe sandbox" in shown.data["text/html"]
    assert "1 recording" in shown.data["text/plain"]
    assert (tmp_path / "runs" / "cell").is_dir()
    assert outputs[2][-1].output_type == "execute_result", outputs[2]
    assert "already holds a capture" in str(outputs[3])
    assert "ZeroDivisionError" in str(outputs[4])
