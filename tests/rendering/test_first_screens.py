"""How far down the first finding is, in a real browser."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.build_report import hostile, three_recordings
from tests.hostile_input import HOSTILE, write_hostile_input
from tests.rendering.browsing import dumped
from tests.rendering.formatted import page, render
from tests.shared import CHECKOUT, NO_WORKERS, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_traces")]
NIGHTLY = pytest.mark.nightly("traceadvisor/rendering", "templates")

SCREENS = {(1280, 800): 2, (390, 844): 3}
"""By the end of this screen the first finding has begun."""

SAMPLES = ("left-on", "loader-bound", "one-core", "stumbling-loader")
INPUTS = ("public runs", "formats", "ten", "hostile", "hostile report")


def report_of(name: str, folder: Path) -> Report:
    return hostile(three_recordings()) if name == "hostile report" else load(input_of(name, folder))


def input_of(name: str, folder: Path) -> Path:
    match name:
        case "public runs":
            return SHARED_TRACES / "tensorboard-logs"
        case "formats":
            return SHARED_TRACES / "formats"
        case "ten":
            return ten(folder)
        case "hostile":
            return write_hostile_input(folder / "input", HOSTILE)
        case "cut off":
            whole = gzip.decompress((SHARED_TRACES / NO_WORKERS).read_bytes())
            (folder / "cut.pt.trace.json").write_bytes(whole[: len(whole) * 9 // 10])
    return folder if name == "cut off" else CHECKOUT / "sample_traces" / name


def ten(folder: Path) -> Path:
    for number in range(10):
        (folder / f"run{number}").mkdir(parents=True)
        source = SHARED_TRACES / "formats" / "nccl-rank0of2-a100.pt.trace.json.gz"
        shutil.copy(source, folder / f"run{number}" / "w.pt.trace.json.gz")
    return folder


@pytest.mark.parametrize(
    "name", ["two-ranks", "cut off", *(pytest.param(name, marks=NIGHTLY) for name in (*SAMPLES, *INPUTS))]
)
def test_the_first_finding_begins_on_the_first_screens(name: str, chromium: str, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "report.html").write_text(page(report_of(name, tmp_path / "input")), encoding="utf-8")
    frames = "".join(
        f"<iframe id=f{width} src=report.html style='width:{width}px;height:{height}px;border:0'></iframe>"
        for width, height in SCREENS
    )
    (tmp_path / "frames.html").write_text(
        f"{frames}<p id=tops></p><script>onload = () => {{ tops.textContent = JSON.stringify([...document"
        ".querySelectorAll('iframe')].map((frame) => frame.contentDocument.querySelector('#finding-1')"
        ".getBoundingClientRect().top)) }</script>"
    )
    switches = ("--allow-file-access-from-files", "--window-size=2000,1000", "--virtual-time-budget=10000")
    tops = re.search(r'<p id="tops">(\[.*?\])</p>', dumped(chromium, tmp_path / "frames.html", *switches))
    assert tops is not None
    for top, ((_, height), screens) in zip(json.loads(tops[1]), SCREENS.items(), strict=True):
        assert top < screens * height


@NIGHTLY
def test_pages_stay_small(tmp_path: Path) -> None:
    assert len(render(load(SHARED_TRACES / NO_WORKERS))) < 401_000
    assert len(render(load(ten(tmp_path)))) < 700_000
