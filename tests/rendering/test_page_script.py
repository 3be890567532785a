"""The page's script in a real browser: tables, the trace, links into it; and the page without scripts."""

import ast
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build_report import one_recording
from tests.rendering.browsing import asked, dumped
from tests.rendering.formatted import page
from tests.rendering.reading import Page
from tests.shared import CHECKOUT
from traceadvisor import load
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.timeline import PARTS, Activity, StepTrace, TraceLane
from traceadvisor.rendering.writers.templates import hashed, script

pytestmark = pytest.mark.slow

KEY = 'const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));\n'
CANVAS = 'reveal(".trace"); const canvas = document.querySelector(".trace canvas");\n'
REVEAL = (
    "const reveal = (what) => { for (let at = document.querySelector(what); at; at = at.parentElement)"
    ' if (at.tagName === "DETAILS") at.open = true; };\n'
    "const range = () => [Number(canvas.dataset.from), Number(canvas.dataset.to)];\n"
    "const later = () => new Promise((done) => setTimeout(done, 50));\n"
)


@pytest.fixture(scope="module")
def content() -> str:
    return page(load(CHECKOUT / "sample_traces" / "loader-bound"))


def test_the_policy_lets_the_page_s_own_script_run(chromium: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(content, encoding="utf-8")
    assert '<html lang="en" class="live">' in dumped(chromium, tmp_path / "page.html")


def test_without_scripts_all_rows_are_there_and_no_control_is(chromium: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(content.replace(f"'sha256-{hashed(script())}'", "'none'"), encoding="utf-8")
    seen = Page(dumped(chromium, tmp_path / "page.html"))
    assert "live" not in seen.attributes
    assert (seen.elements["button"], seen.elements["canvas"], seen.elements["input"]) == (0, 0, 0)
    assert seen.elements["tr"] == Page(content).elements["tr"]


def test_a_table_is_sorted_filtered_and_bounded(chromium: str, content: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        content,
        REVEAL
        + """
reveal('[id$="-operators"]');
const box = document.querySelector('[id$="-operators"] .table'), table = box.querySelector("table");
const shown = () => [...table.tBodies[0].rows].filter((row) => !row.hidden);
const values = (column) => shown().map((row) => Number(row.cells[column].dataset.v));
const names = () => shown().map((row) => row.cells[0].textContent);
const buttons = table.querySelectorAll("button.sort"), out = { first: shown().length };
buttons[1].click(); out.calls = values(1); out.sorted = table.tHead.rows[0].cells[1].getAttribute("aria-sort");
buttons[1].click(); out.fewest = values(1);
const filter = box.previousElementSibling.querySelector("input");
filter.value = "CONV"; filter.dispatchEvent(new Event("input")); out.found = names();
filter.value = ""; filter.dispatchEvent(new Event("input"));
box.nextElementSibling.click(); out.all = shown().length; out.rows = table.tBodies[0].rows.length;
return out;
""",
        tmp_path,
    )
    assert answer["first"] == 12
    assert answer["calls"] == sorted(answer["calls"], reverse=True)
    assert answer["sorted"] == "descending"
    assert answer["fewest"] == sorted(answer["fewest"])
    assert answer["found"]
    assert all("conv" in name.lower() for name in answer["found"])
    assert answer["all"] == answer["rows"] > 12


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_a_button_copies_the_code_of_a_fix_or_selects_it(chromium: str, content: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        content,
        """
const later = () => new Promise((done) => setTimeout(done, 50));
const pre = document.querySelector(".finding pre"), button = pre.querySelector("button"), out = {};
const clipboard = (writeText) =>
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
clipboard(async (text) => { out.copied = text; });
button.click(); await later(); out.said = button.textContent;
clipboard(async () => { throw new Error("refused"); });
button.click(); await later(); out.then = button.textContent; out.selected = String(getSelection());
return out;
""",
        tmp_path,
    )
    call = ast.parse(textwrap.dedent(answer["copied"]))
    assert "num_workers=1" in ast.unparse(call)
    assert "options.workers" not in ast.unparse(call), "the new lines are copied, not the difference"
    assert (answer["said"], answer["then"]) == ("Copied", "Selected")
    assert "-    num_workers=options.workers," in answer["selected"]


def test_the_trace_zooms_and_pans_by_keys_and_names_events(chromium: str, content: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        content,
        REVEAL
        + CANVAS
        + KEY
        + """
const out = { whole: range() };
press("+"); out.zoomed = range();
press("ArrowRight"); out.later = range();
press("ArrowLeft"); press("-"); press("0"); out.again = range();
press("ArrowDown"); out.named = document.querySelector("output.pointed").textContent;
return out;
""",
        tmp_path,
    )
    length = answer["whole"][1]
    assert answer["whole"] == answer["again"] == [0, length]
    assert answer["zoomed"][1] - answer["zoomed"][0] == pytest.approx(0.6 * length, abs=2)
    assert answer["later"][0] > answer["zoomed"][0]
    assert answer["later"][1] - answer["later"][0] == pytest.approx(0.6 * length, abs=2)
    assert "training thread" in answer["named"]


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_the_trace_follows_wheel_drag_and_pinch_and_names_what_is_under_the_pointer(
    chromium: str, content: str, tmp_path: Path
) -> None:
    answer = asked(
        chromium,
        content,
        REVEAL
        + CANVAS
        + """
canvas.setPointerCapture = () => {};
const box = canvas.getBoundingClientRect(), out = { whole: range() };
const point = (kind, x, y, id = 1) => canvas.dispatchEvent(
  new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerId: id, bubbles: true }));
point("pointermove", 5, 60); out.named = document.querySelector("output.pointed").textContent;
const place = { clientX: box.left + 400, clientY: box.top + 60, cancelable: true };
const turn = (more) => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, ...place, ...more }));
canvas.focus();
out.scrolls = turn({}); out.unchanged = range();
canvas.blur();
out.kept = !turn({ ctrlKey: true }); out.wheel = range();
turn({ shiftKey: true, deltaY: 100 }); out.sideways = range(); turn({ shiftKey: true, deltaY: -100 });
point("pointerdown", 400, 22); point("pointermove", 300, 22); point("pointerup", 300, 22); out.dragged = range();
point("pointerdown", 300, 22, 1); point("pointerdown", 500, 22, 2); point("pointermove", 700, 22, 2);
point("pointerup", 700, 22, 2); point("pointerup", 300, 22, 1); out.pinched = range();
return out;
""",
        tmp_path,
    )

    def length(name: str) -> float:
        return float(answer[name][1] - answer[name][0])

    assert "DataLoader" in answer["named"]
    assert (answer["scrolls"], answer["unchanged"]) == (True, answer["whole"]), "the wheel alone scrolls the page"
    assert answer["kept"] is True
    assert answer["sideways"][0] > answer["wheel"][0]
    assert answer["sideways"][1] - answer["sideways"][0] == pytest.approx(length("wheel"), abs=2)
    assert length("wheel") < 0.5 * length("whole")
    assert length("dragged") == pytest.approx(length("wheel"), abs=2)
    assert answer["dragged"][0] > answer["wheel"][0]
    assert length("pinched") == pytest.approx(length("wheel") / 2, rel=0.01)


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_a_finding_leads_to_its_place_in_the_trace(chromium: str, content: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        content,
        REVEAL
        + """
const link = document.querySelector("#finding-1 a[data-from]"); link.click(); await later();
const canvas = document.querySelector(".trace canvas");
return { range: range(), wanted: [Number(link.dataset.from), Number(link.dataset.to)], open: canvas.checkVisibility() };
""",
        tmp_path,
    )
    start, end = answer["wanted"]
    assert answer["range"][0] <= start < end <= answer["range"][1]
    assert answer["open"] is True


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_findings_are_open_on_paper_and_as_before_afterwards(chromium: str, content: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        content,
        """
const why = document.querySelector("details.why"), out = [why.open];
dispatchEvent(new Event("beforeprint")); out.push(why.open);
dispatchEvent(new Event("afterprint")); out.push(why.open);
return out;
""",
        tmp_path,
    )
    assert answer == [False, True, False]


def on_a_gpu() -> str:
    """The page of a step with two kernels: one of a call with a name, one whose launch was not recorded."""
    first = one_recording()
    drawn = first.recordings[0].timeline
    assert drawn is not None
    none = np.zeros(PARTS, dtype=np.int64)

    def lane(title: str, *events: tuple[int, ...], left_out: int = 0) -> TraceLane:
        columns = (np.array(column, dtype=np.int64) for column in zip(*events, strict=True))
        return TraceLane(title, *(*columns, none + left_out))

    host = lane("training thread", (0, 100_000, 0, 0, 0, 5, NONE), (20_000, 4_000, 1, 1, 1, 6, NONE), left_out=3)
    stream = lane("stream 7", (30_000, 10_000, 2, 2, 0, 7, 6), (60_000, 10_000, 2, 2, 0, 8, NONE))
    kinds = (Activity.OPERATOR, Activity.RUNTIME_CALL, Category.KERNEL)
    trace = StepTrace(("aten::mm", "cudaLaunchKernel", "gemm"), kinds, (host, stream))
    traced = replace(drawn, start_ns=0, end_ns=100_000, trace=trace)
    return page(replace(first, recordings=(replace(first.recordings[0], timeline=traced),)))


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_a_kernel_names_its_launch_and_a_lane_says_where_events_are_missing(chromium: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        on_a_gpu(),
        REVEAL
        + CANVAS
        + KEY
        + """
const named = () => document.querySelector("output.pointed").textContent, out = {};
press("ArrowDown"); press("n"); out.call = named();
press("ArrowDown"); out.kernel = named(); press("n"); out.other = named();
return out;
""",
        tmp_path,
    )
    assert "launches gemm" in answer["call"]
    assert "600 shorter events left out" in answer["call"]
    assert "launched 10 µs before by cudaLaunchKernel" in answer["kernel"]
    assert "launched" not in answer["other"]


def test_one_click_saves_the_step_for_perfetto(chromium: str, tmp_path: Path) -> None:
    answer = asked(
        chromium,
        on_a_gpu(),
        REVEAL
        + CANVAS
        + """
let saved = null;
URL.createObjectURL = (blob) => { saved = blob; return "#"; };
[...document.querySelectorAll("button")].find((button) => button.textContent === "Save for Perfetto").click();
return { trace: JSON.parse(await saved.text()), said: document.querySelector("output.pointed").textContent };
""",
        tmp_path,
    )
    events = answer["trace"]["traceEvents"]
    drawn = {(event["name"], event["ts"], event["dur"], event["tid"]) for event in events if event["ph"] == "X"}
    assert {("aten::mm", 0, 100, 1), ("cudaLaunchKernel", 20, 4, 1), ("gemm", 30, 10, 2)} <= drawn
    assert [(event["ph"], event["ts"], event["tid"]) for event in events if event["name"] == "launch"] == [
        ("s", 20, 1),
        ("f", 30, 2),
    ]
    assert "--save-steps" in answer["said"]


@pytest.mark.nightly("traceadvisor/rendering", "templates")
def test_without_scripts_the_timeline_is_a_picture(chromium: str, content: str, tmp_path: Path) -> None:
    see = "const drawn = document.querySelector('.trace svg.chart'); return drawn.checkVisibility();"
    assert asked(chromium, content, see, tmp_path / "with") is False
    assert asked(chromium, content.replace(script(), ""), see, tmp_path / "without") is True
