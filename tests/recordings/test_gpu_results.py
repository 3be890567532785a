"""What the kit for GPU machines measured, on the page of predictions."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu import tables
from tests.recordings.advice import PAGE, with_block

RESULTS = Path(__file__).parent / "gpu"


def test_the_page_has_the_results_of_gpu_machines(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE, with_block("gpu", tables.text(tables.read(RESULTS))))


def test_no_reduced_run_is_committed() -> None:
    assert not [document["part"] for document in tables.read(RESULTS) if document["reduced"] or not document["device"]]
