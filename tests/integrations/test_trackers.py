"""The examples of docs/trackers.md, with the real libraries and without a network."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.children import added, run
from tests.shared import CHECKOUT, SAMPLES

pytestmark = pytest.mark.nightly("docs/trackers.md", "tests/integrations/test_trackers.py")

EXAMPLES = re.findall(r"```python\n(.*?)```", (CHECKOUT / "docs" / "trackers.md").read_text(), re.DOTALL)


def run_example(number: int, folder: Path, **variables: str) -> None:
    shutil.copytree(SAMPLES[0], folder / "runs" / "before")
    run(sys.executable, "-c", EXAMPLES[number], cwd=folder, env=added(**variables), check=True)


@pytest.mark.usefixtures("mlflow")
def test_mlflow_keeps_the_report_with_its_run(tmp_path: Path) -> None:
    logs = tmp_path / "mlruns"
    run_example(0, tmp_path, MLFLOW_TRACKING_URI=logs.as_uri(), MLFLOW_ALLOW_FILE_STORE="true")
    assert sorted(path.name for path in logs.glob("*/*/artifacts/traceadvisor/*")) == ["report.html", "report.json"]
    (metric,) = logs.glob("*/*/metrics/typical_step_ms")
    assert float(metric.read_text().split()[1]) > 0
    (tag,) = logs.glob("*/*/tags/first_fix")
    assert tag.read_text()


@pytest.mark.usefixtures("wandb")
def test_weights_and_biases_keeps_the_report_with_its_run(tmp_path: Path) -> None:
    run_example(1, tmp_path, WANDB_MODE="offline")
    (page,) = (tmp_path / "wandb").glob("offline-run-*/files/media/html/*.html")
    assert page.read_bytes() == (tmp_path / "traceadvisor-report" / "report.html").read_bytes()
    (record,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"traceadvisor-report" in record.read_bytes()
    assert b"typical_step_ms" in record.read_bytes()
