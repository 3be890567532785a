"""An index of runs: what it lists, and that nothing is read twice."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.build import TraceBuilder
from tests.build_report import one_recording
from tests.cli.reporting import reported
from tests.rendering.reading import Page
from tests.shared import CHECKOUT
from traceadvisor import api
from traceadvisor.cli.index_output import MOST_IN_ONE_REPORT, runs_to_list
from traceadvisor.config import Settings
from traceadvisor.errors import OutputError, UsageError
from traceadvisor.indexing.cache import Cache
from traceadvisor.indexing.index import make_index
from traceadvisor.indexing.runs import separate_runs
from traceadvisor.judging import plugins
from traceadvisor.model.findings import Estimate, Method, RuleMeta, Severity
from traceadvisor.model.index import SCHEMA, FirstFinding, Index, IndexedRun, RunFigures
from traceadvisor.model.report import Report
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rendering.content.index import MOST_ROWS, index_document, run_figures
from traceadvisor.rendering.writers.html import write
from traceadvisor.rendering.writers.markdown import write as as_markdown
from traceadvisor.results.json_schemas import schema_text
from traceadvisor.results.report_json import render_index as render

DAY_MS = 86_400_000
FIRST_MS = 1_700_000_000_000


def _recording(folder: Path, name: str, *, day: int = 0, step_us: int = 100) -> Path:
    builder = TraceBuilder()
    for start in builder.steps(4, step_us):
        builder.op("aten::mm", start, start + 2).launch(start, start + 1, kernel=(start + 2, start + step_us // 2))
    (folder / name).mkdir(parents=True, exist_ok=True)
    return builder.write(folder / name / f"host_1.{FIRST_MS + day * DAY_MS}.pt.trace.json")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    for day, name in enumerate(("oldest", "middle", "newest")):
        _recording(folder, name, day=day)
    return folder


class Making:
    """Makes the index of a folder, and counts what is read."""

    def __init__(self, logs: Path, tmp_path: Path) -> None:
        self._logs, self.out, self.folder = logs, tmp_path / "out", tmp_path / "cache"
        self.folder.mkdir()
        self.read: set[str] = set()

    def __call__(self, settings: Settings = api.DEFAULTS, *, cached: bool = True, has_pages: bool = True) -> Index:
        self.read = set()
        return make_index(
            [self._logs],
            separate_runs([self._logs]),
            settings=settings,
            selection=api.EVERYTHING,
            processes=1,
            progress=lambda origin, _done, _size: self.read.add(origin.run),
            cache=Cache(self.folder) if cached else None,
            folder=self.out if has_pages else None,
        )

    def unpacked(self) -> list[str]:
        """The entries of the cache that hold pages."""
        return sorted(path.name for path in self.folder.glob("*.page"))


@pytest.fixture
def making(logs: Path, tmp_path: Path) -> Making:
    return Making(logs, tmp_path)


def test_runs_stand_in_order_of_time_with_a_report_each(making: Making) -> None:
    index = making()
    assert [run.name for run in index.runs] == ["newest", "middle", "oldest"]
    for run in index.runs:
        assert run.page is not None
        assert b"Content-Security-Policy" in (making.out / run.page).read_bytes()
        assert run.figures is not None
        assert run.figures.step_ns == 100_000


def test_nothing_is_read_twice(making: Making) -> None:
    first = making()
    assert len(making.read) == 3
    assert making() == first
    assert making.read == set()
    for page in (making.out / "runs").iterdir():
        page.unlink()
    assert making() == first
    assert making.read == set()
    assert len(list((making.out / "runs").iterdir())) == 3


def test_only_the_newest_of_many_runs_have_a_page(making: Making, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {row.name: row.figures for row in making(cached=False).runs}
    monkeypatch.setattr("traceadvisor.indexing.index.MOST_PAGES", 2)
    made = making()
    assert [(row.name, row.page is None) for row in made.runs] == [
        ("newest", False),
        ("middle", False),
        ("oldest", True),
    ]
    assert {row.name: row.figures for row in made.runs} == figures
    assert {path.name for path in (making.out / "runs").iterdir()} == {
        Path(row.page or "").name for row in made.runs[:2]
    }
    assert b"2 runs have a page, those with the newest files." in write(index_document(made))
    assert making() == made
    assert not making.read
    shutil.rmtree(logs / "newest")
    assert all((making.out / (row.page or "none")).is_file() for row in making().runs)
    assert making.read == {"oldest"}


def test_a_list_that_is_no_page_has_the_same_figures_and_keeps_them(making: Making) -> None:
    whole = making(cached=False)
    alone = making(has_pages=False)
    assert [row.figures for row in alone.runs] == [row.figures for row in whole.runs]
    assert not any(row.page for row in alone.runs)
    assert making(has_pages=False) == alone
    assert not making.read


def test_what_other_packages_offer_is_looked_up_once_for_all_runs(
    making: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[list[str]] = []

    def search(path: list[str]) -> list[Distribution]:
        searched.append(path)
        return []

    monkeypatch.setattr(plugins, "distributions", search)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))  # another path than in earlier tests
    assert len(making().runs) == 3
    assert len(searched) == 1


def test_a_command_that_is_interrupted_keeps_the_reports_before(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = api.load, iter(range(3))

    def interrupted(*paths: Any, **options: Any) -> Report:
        if next(loaded) == 2:
            raise KeyboardInterrupt
        return load(*paths, **options)

    monkeypatch.setattr(api, "load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        making()
    assert len(making.unpacked()) == len(list((making.out / "runs").iterdir())) == 2


def test_only_what_changed_is_read_again_and_its_old_report_goes(making: Making, logs: Path) -> None:
    before = {run.name: run for run in making().runs}
    _recording(logs, "middle", day=1, step_us=400)
    after = {run.name: run for run in making().runs}
    assert making.read == {"middle"}
    assert {name for name in before if before[name] != after[name]} == {"middle"}
    assert len(list((making.out / "runs").iterdir())) == 3


def test_a_copy_with_another_time_is_known_by_its_content(making: Making, logs: Path) -> None:
    first, pages = making(), making.unpacked()
    for path in logs.rglob("*.json"):
        os.utime(path, ns=(0, 1))
    assert making() == first
    assert making.unpacked() == pages
    making()
    assert making.read == set()


@pytest.mark.nightly("traceadvisor/indexing")
def test_damaged_words_of_the_cache_are_made_anew(making: Making) -> None:
    first = making()
    damages = (b"\xff", b'{"headline":3}', b'{"headline":"x","recordings":1,"ranks":-1e999}')
    for path, damage in zip(making.folder.glob("*.told"), damages, strict=True):
        path.write_bytes(damage)
    assert making() == first
    assert len(making.read) == 3


@pytest.mark.nightly("traceadvisor/indexing")
def test_a_damaged_page_of_the_cache_is_made_anew(making: Making) -> None:
    first = making()
    pages = {path: path.read_bytes() for path in (making.out / "runs").iterdir()}
    for path in (*making.folder.glob("*.page"), *pages):
        path.write_bytes(b"") if path.suffix == ".page" else path.unlink()
    assert making() == first
    assert {path: path.read_bytes() for path in pages} == pages


def test_a_page_that_was_damaged_is_written_anew_and_another_file_in_its_place_is_an_error(making: Making) -> None:
    first = making()
    pages = {path: path.read_bytes() for path in sorted((making.out / "runs").iterdir())}
    damaged, foreign, _ = pages
    damaged.write_bytes(pages[damaged][:3000])
    assert making() == first
    assert {path: path.read_bytes() for path in pages} == pages
    foreign.write_text("mine")
    with pytest.raises(OutputError, match="not a TraceAdvisor report"):
        making()
    assert foreign.read_text() == "mine"


def test_no_report_is_removed_behind_a_link(making: Making, logs: Path, tmp_path: Path) -> None:
    making.out.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (making.out / "runs").symlink_to(tmp_path / "elsewhere")
    making()
    shutil.rmtree(logs / "newest")
    making()
    assert len(list((tmp_path / "elsewhere").iterdir())) == 3


def test_a_secret_in_the_name_of_a_folder_is_in_no_name_of_a_page(making: Making, logs: Path) -> None:
    _recording(logs, "lr=0.1,api_key=kx82hunterQ7")
    _recording(logs, "token ghp_" + "0123456789abcdef" * 2 + "0123")
    index = making()
    assert all((making.out / (run.page or "none")).is_file() for run in index.runs)
    names = " ".join(path.name for path in (making.out / "runs").iterdir())
    assert "kx82" not in names
    assert "ghp_" not in names


@pytest.mark.nightly("traceadvisor/indexing")
def test_other_settings_make_other_reports(making: Making) -> None:
    making()
    making(Settings(ignore=("IDLE",)))
    assert len(making.read) == 3


@pytest.mark.nightly("traceadvisor/indexing")
def test_without_a_cache_everything_is_read_and_nothing_kept(making: Making) -> None:
    first = making(cached=False)
    assert making(cached=False) == first
    assert len(making.read) == 3
    assert list(making.folder.iterdir()) == []


def test_what_cannot_be_read_is_listed_with_the_reason(making: Making, logs: Path) -> None:
    (logs / "newest" / f"host_1.{FIRST_MS + 2 * DAY_MS}.pt.trace.json").write_bytes(b"\x1f\x8bno recording")
    row = making().runs[0]
    assert (row.name, row.figures, row.page) == ("newest", None, None)
    assert "host_1" in (row.error or "")


def _told(text: str) -> bytes:
    """What a cache that somebody else wrote might say."""
    return json.dumps({"headline": text, "recordings": 1, "ranks": 1, "script": text, "device": text}).encode()


def test_a_fix_that_was_measured_as_slower_is_no_saving_of_a_run() -> None:
    report = one_recording()
    refuted = replace(report, findings=tuple(replace(one, is_refuted=True) for one in report.findings))
    assert run_figures(report).finding is not None
    assert run_figures(refuted).finding is None


def test_hostile_words_of_the_cache_are_escaped(making: Making) -> None:
    making()
    for path in making.folder.glob("*.told"):
        path.write_bytes(_told("<script>alert(1)</script>\x1b[31m"))
    page = write(index_document(making())).decode()
    assert "<script>alert" not in page
    assert "\x1b" not in page


def _finding(share: float) -> FirstFinding:
    saving = Estimate(share * 9e7, share * 1e8, share * 1.1e8, Method.REPLAY)
    return FirstFinding(RuleMeta("DATA001", "wait", "The GPU waits for the data loader"), Severity.HIGH, saving, share)


def _many(count: int, *, newest_ns: float = 1e8) -> Index:
    """So many runs of ten programs on the newest of which the step changes."""
    runs = tuple(
        IndexedRun(
            f"experiments/resnet50-imagenet-bs256-run-{number:05}",
            (Path(f"experiments/resnet50-imagenet-bs256-run-{number:05}"),),
            (FIRST_MS - number * DAY_MS // 24) * 1_000_000,
            f"train_{number % 10}.py",
            RunFigures(
                "The GPU waits for the data loader.",
                1,
                8,
                script=f"train_{number % 10}.py",
                device="NVIDIA H100 80GB HBM3",
                step_ns=newest_ns if number < 1 else 1e8 + number,
                busy_share=0.5,
                finding=_finding(number / count),
            ),
            page=f"runs/experiments-resnet50-imagenet-bs256-run-{number:05}-0123456789ab.html",
        )
        for number in range(count)
    )
    return Index((Path("experiments"),), runs, "1")


@pytest.mark.nightly("traceadvisor/indexing")
def test_the_page_on_5000_runs_is_below_2_mb_and_says_what_it_leaves_out() -> None:
    content = write(index_document(_many(5000)))
    assert len(content) < 2_000_000
    page = Page(content.decode())
    assert f"{5000 - MOST_ROWS:,} more runs in the JSON" in page.text
    assert page.elements["figure"] == 10


def test_a_slower_newest_run_is_named_first() -> None:
    assert "train_0.py" not in str(index_document(_many(100)).top)
    slower = index_document(_many(100, newest_ns=1.3e8))
    assert "train_0.py on 8 x NVIDIA H100 80GB HBM3: a step of the newest run takes 130.0 ms." in str(slower.top)
    assert "30.0% more than the median of the 9 runs before it (100.0 ms)" in str(slower.top)


def test_the_headline_counts_runs_worth_fixing() -> None:
    assert (
        index_document(_many(100)).headline
        == "100 runs: in 90 of them, the first fix may save 10% of the step or more."
    )


def test_an_upper_limit_counts_in_full_as_in_its_row() -> None:
    index = _many(1)
    saving = Estimate(0, 5e6, 2e7, Method.BOUND, of_the_fix("not simulated"))
    finding = replace(_finding(0.05), saving=saving)
    run = replace(index.runs[0], figures=replace(_figures(index), finding=finding))
    document = index_document(replace(index, runs=(run,)))
    assert document.headline == "1 run: in 1 of them, the first fix may save 10% of the step or more."
    assert "up to 20.0%" in write(document).decode()


def _figures(index: Index) -> RunFigures:
    figures = index.runs[0].figures
    assert figures is not None
    return figures


@pytest.mark.nightly("traceadvisor/indexing")
def test_markdown_stays_within_a_comment() -> None:
    content = as_markdown(index_document(_many(5000)))
    assert len(content) < 65_536
    assert b"more runs in the full index" in content


def test_an_impossible_date_is_not_shown() -> None:
    index = _many(1)
    late = replace(index, runs=(replace(index.runs[0], time_ns=2**63 - 1), replace(index.runs[0], time_ns=-(2**62))))
    write(index_document(late))


def test_the_json_follows_its_schema(making: Making) -> None:
    schema = json.loads(schema_text(Index, SCHEMA))
    for index in (making(), _many(3)):
        Draft202012Validator(schema).validate(json.loads(render(index)))


def test_the_committed_schema_of_an_index_is_that_of_the_document(golden: Callable[[Path, str], None]) -> None:
    golden(CHECKOUT / "docs" / "index.schema.json", schema_text(Index, SCHEMA))


def _listed(path: Path, **options: Any) -> int:
    given: dict[str, Any] = {"asked": None, "only_of_a_report": ()} | options
    return len(runs_to_list([path], api.EVERYTHING, **given))


def test_many_runs_make_an_index_and_few_one_report(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    content = _recording(folder, "0").read_bytes()
    for number in range(1, MOST_IN_ONE_REPORT):
        (folder / f"{number}").mkdir()
        (folder / f"{number}" / "host_1.1.pt.trace.json").write_bytes(content)
    assert _listed(folder) == 0
    assert _listed(folder, asked=True) == MOST_IN_ONE_REPORT
    _recording(folder, "more")
    assert _listed(folder) == MOST_IN_ONE_REPORT + 1
    assert _listed(folder, asked=False) == 0
    assert _listed(folder, only_of_a_report=["--base"]) == 0
    with pytest.raises(UsageError, match="--base"):
        _listed(folder, asked=True, only_of_a_report=["--base"])


def test_the_command_writes_all_formats_and_prints_the_newest_runs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out"
    result = reported(logs, "--index", "-o", out, "--format", "html,md,json")
    assert result.exit_code == 0, result.output
    assert result.output.index("newest: Date") < result.output.index("oldest: Date")
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "index.json", "index.md", "runs"]
    links = {run["page"] for run in json.loads((out / "index.json").read_bytes())["runs"]}
    assert links == {f"runs/{path.name}" for path in (out / "runs").iterdir()}
    assert all(f'href="{link}"' in (out / "index.html").read_text() for link in links)
    assert (tmp_path / "cache" / "traceadvisor" / "reports").is_dir()


def test_standard_output_takes_an_index_without_links(logs: Path) -> None:
    result = reported(logs, "--index", "--no-cache", "-o", "-", "--format", "json")
    assert [run.get("page") for run in json.loads(result.stdout)["runs"]] == [None] * 3


def test_an_index_has_no_annotations(logs: Path) -> None:
    result = reported(logs, "--index", "--format", "sarif")
    assert result.exit_code == 2
    assert "format sarif" in result.output


def test_a_damaged_recording_is_marked(logs: Path, making: Making) -> None:
    (path,) = (logs / "middle").iterdir()
    path.write_bytes(path.read_bytes()[:-300])
    index = making()
    assert [run.figures.is_damaged for run in index.runs if run.figures] == [False, True, False]
    assert as_markdown(index_document(index)).decode().count("Damaged recording.") == 1
