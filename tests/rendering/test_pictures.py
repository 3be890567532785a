"""The pictures of docs/images/ show the pages of the code of today. ``make report-pictures`` draws them anew."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests import needed
from tests.children import run
from tests.rendering.browsing import DARK, SWITCHES
from tests.rendering.formatted import page
from tests.shared import CHECKOUT, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.writers.templates import script

IMAGES = CHECKOUT / "docs" / "images"
DRAWN_FROM = IMAGES / "drawn-from.json"
"""What each picture was drawn from, and the picture itself, as SHA-256."""

SAMPLE, PUBLIC = "sample_traces/loader-bound", "tensorboard-logs"
PICTURES = {
    "report-desktop.png": (SAMPLE, "--window-size=1280,1400"),
    "report-dark.png": (SAMPLE, "--window-size=1280,1400", DARK),
    "resnet50-desktop.png": (PUBLIC, "--window-size=1280,1500"),
    "resnet50-dark.png": (PUBLIC, "--window-size=1280,1500", DARK),
    "resnet50-phone.png": (PUBLIC, "--window-size=390,1500", "--allow-file-access-from-files"),
    "resnet50-pdf.png": (PUBLIC,),
}


def report_of(name: str) -> Report:
    return load(CHECKOUT / name if name == SAMPLE else SHARED_TRACES / name)


def seen(report: Report) -> str:
    """The part of a page that a picture shows: its style, its first screen and its findings."""
    return page(report).replace(script(), "").partition('<section id="details"')[0]


def hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def drawn_from() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(DRAWN_FROM.read_text()) if DRAWN_FROM.is_file() else {}
    return found


def draw(name: str, report: Report, folder: Path) -> None:
    """Draw one picture with Chromium, or a page of the PDF with pdftoppm."""
    chromium, pdftoppm = needed.chromium(), shutil.which("pdftoppm")
    assert chromium, "to draw pictures: apt-get install chromium"
    assert pdftoppm, "to draw pictures: apt-get install poppler-utils"
    if name.endswith("-pdf.png"):
        (folder / "report.pdf").write_bytes(FORMATS["pdf"].render(report))
        target = str((IMAGES / name).with_suffix(""))
        run(pdftoppm, "-png", "-r", "55", "-f", "1", "-singlefile", str(folder / "report.pdf"), target, check=True)
        return
    path = folder / "report.html"
    path.write_bytes(FORMATS["html"].render(report))
    if "-phone" in name:  # no window is as narrow as a phone, but a frame is
        path = folder / "frame.html"
        path.write_text("<body style='margin:0'><iframe src=report.html style='width:390px;height:1500px;border:0'>")
    switches = (*SWITCHES, *PICTURES[name][1:], f"--user-data-dir={folder / 'profile'}")
    run(chromium, *switches, f"--screenshot={IMAGES / name}", path.as_uri(), check=True)


def check(name: str, request: pytest.FixtureRequest, folder: Path) -> None:
    report = report_of(PICTURES[name][0])
    wanted = hashed(seen(report).encode())
    if request.config.getoption("--golden") and drawn_from().get(name, [""])[0] != wanted:
        draw(name, report, folder)
        made = drawn_from() | {name: [wanted, hashed((IMAGES / name).read_bytes())]}
        DRAWN_FROM.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
    found, picture = drawn_from()[name]
    assert found == wanted, f"docs/images/{name} shows an older page: run `make report-pictures`, and look at it"
    assert picture == hashed((IMAGES / name).read_bytes()), f"docs/images/{name} is another picture than the one drawn"


@pytest.mark.usefixtures("golden")
@pytest.mark.parametrize("name", [name for name, (source, *_) in PICTURES.items() if source == SAMPLE])
def test_a_picture_shows_the_page_of_today(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    check(name, request, tmp_path)


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.usefixtures("golden", "shared_traces")
@pytest.mark.parametrize("name", [name for name, (source, *_) in PICTURES.items() if source == PUBLIC])
def test_a_picture_of_a_public_recording_shows_the_page_of_today(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    check(name, request, tmp_path)


def test_every_picture_is_drawn_and_shown() -> None:
    assert {path.name for path in IMAGES.glob("*.png")} == PICTURES.keys() == drawn_from().keys()
    texts = "".join((CHECKOUT / path).read_text() for path in ("README.md", "docs/how-to-read-a-report.md"))
    assert [name for name in PICTURES if name not in texts] == []
