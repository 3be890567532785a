"""Checks the page of every sample with axe-core in a real browser, and with html-validate."""

import gzip
import json
from pathlib import Path

import pytest

from tests.build_report import hostile, nothing_readable, three_recordings
from tests.children import run
from tests.needed import CHECKERS
from tests.rendering.browsing import DARK, asked
from tests.rendering.captures import captured, captured_ranks
from tests.rendering.formatted import page
from tests.sample_reports import sample
from tests.shared import CHECKOUT, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_traces")]
NIGHTLY = pytest.mark.nightly("traceadvisor/rendering", "templates")

BUILT = {
    "three recordings": three_recordings,
    "hostile": lambda: hostile(three_recordings()),
    "nothing readable": nothing_readable,
    "captured": captured,
    "captured ranks": captured_ranks,
}
SAMPLES = tuple(sorted(path.parent.name for path in (CHECKOUT / "sample_traces").glob("*/manifest.json")))
PUBLIC = ("tensorboard-logs", "formats", "unseen/hf-bert-h100-one-step.pt.trace.json.gz")
ALL = (*BUILT, *SAMPLES, *PUBLIC, "cut off")
OFTEN = ("cut off",)

RUN_AXE = """
document.querySelectorAll("details").forEach((each) => { each.open = true; });
const found = await axe.run(document, { resultTypes: ["violations"], rules: { "target-size": { enabled: true } } });
return {
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  passes: found.passes.length,
  violations: found.violations.map((each) => `${each.id}: ${each.nodes.length} times, ${each.nodes[0].html}`),
};
"""


def report_of(name: str, folder: Path) -> Report:
    if name in BUILT:
        return BUILT[name]()
    if name == "cut off":
        whole = gzip.decompress(next((SHARED_TRACES / PUBLIC[0]).glob("*_0/*.gz")).read_bytes())
        (folder / "cut.pt.trace.json").write_bytes(whole[: len(whole) // 2])
        return load(folder / "cut.pt.trace.json")
    return sample(name) if name in SAMPLES else load(SHARED_TRACES / name)


@pytest.mark.parametrize("name", [*OFTEN, *(pytest.param(name, marks=NIGHTLY) for name in ALL if name not in OFTEN)])
def test_axe_finds_nothing_in_light_and_dark(name: str, chromium: str, page_checkers: Path, tmp_path: Path) -> None:
    axe = (page_checkers / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    content = page(report_of(name, tmp_path)).replace("</head>", f"<script>{axe}</script></head>")
    for is_dark, switches in ((False, ()), (True, (DARK,))):
        answer = asked(chromium, content, RUN_AXE, tmp_path / str(is_dark), *switches)
        assert answer["violations"] == []
        assert answer["dark"] is is_dark
        assert answer["passes"] > 10


@NIGHTLY
def test_axe_finds_what_is_wrong(chromium: str, page_checkers: Path, tmp_path: Path) -> None:
    axe = (page_checkers / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    content = page(three_recordings()).replace("</head>", f"<script>{axe}</script></head>")
    broken = content.replace("</main>", '<img src="data:,"><p class="pale">a</p></main>')
    answer = asked(chromium, broken, RUN_AXE, tmp_path)
    assert [found.split(":")[0] for found in answer["violations"]] == ["image-alt"]


@NIGHTLY
def test_html_validate_finds_nothing(page_checkers: Path, tmp_path: Path) -> None:
    files = []
    for number, name in enumerate(ALL):
        (tmp_path / str(number)).mkdir()
        files.append(tmp_path / f"{number}.html")
        files[-1].write_text(page(report_of(name, tmp_path / str(number))), encoding="utf-8")
    assert _problems(page_checkers, *files) == []


def test_html_validate_finds_what_is_wrong(page_checkers: Path, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<!DOCTYPE html><html><body><p><div></div></p></body></html>")
    assert _problems(page_checkers, tmp_path / "a.html")


def _problems(page_checkers: Path, *files: Path) -> list[str]:
    program = page_checkers / "html-validate" / "bin" / "html-validate.mjs"
    done = run("node", program, "--config", CHECKERS / "html-validate.json", "--formatter", "json", *files)
    found = json.loads(done.stdout)
    return [f"{message['ruleId']}: {message['message']}" for file in found for message in file["messages"]]
