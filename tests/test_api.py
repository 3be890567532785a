from pathlib import Path

import pytest

import traceadvisor
from tests.build import TraceBuilder
from tests.growth.bundles import small
from tests.shared import SAMPLES
from traceadvisor import api
from traceadvisor.config import Settings
from traceadvisor.errors import InputError, PdfUnavailableError, UsageError
from traceadvisor.model.breakdown import Category
from traceadvisor.model.cost import Price
from traceadvisor.model.findings import Failed
from traceadvisor.model.trace import MOST_DEVICES
from traceadvisor.rendering.formats import FORMATS, PAGES


def _record(path: Path, devices: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    builder = TraceBuilder()
    for number in range(3):
        start, ready, end = 100_000 * number, 100_000 * number + 40_000, 100_000 * (number + 1)
        builder.step(number, start, end).loader(start, ready).op("aten::mm", ready, ready + 10)
        for device in range(devices):
            builder.launch(ready + 1, ready + 3, kernel=(ready + 4, end), device=device)
    return builder.write(path)


def test_a_report_names_each_recording_by_run_worker_and_span(tmp_path: Path) -> None:
    _record(tmp_path / "base" / "w.1.pt.trace.json")
    _record(tmp_path / "base" / "w.2.pt.trace.json")
    assert [one.id for one in api.load(tmp_path).recordings] == ["base/w/1", "base/w/2"]


def test_ids_of_equal_names_begin_with_the_folders_that_differ(tmp_path: Path) -> None:
    paths = [_record(tmp_path / run / "log" / "w.1.pt.trace.json") for run in ("a", "b")]
    assert [one.id for one in api.load(*paths).recordings] == ["a/log/w/1", "b/log/w/1"]


def test_ids_are_unique_even_if_names_are_not(tmp_path: Path) -> None:
    first, second = _record(tmp_path / "a" / "w.1.pt.trace.json"), _record(tmp_path / "b" / "w.1.pt.trace.json")
    assert [one.id for one in api.load(first, second).recordings] == ["a/w/1", "b/w/1"]


def test_each_device_of_a_trace_is_a_recording_and_its_events_are_counted_once(tmp_path: Path) -> None:
    report = api.load(_record(tmp_path / "w.1.pt.trace.json", devices=2))
    assert [one.id for one in report.recordings] == ["w/1/device0", "w/1/device1"]
    assert [one.device.index for one in report.recordings if one.device] == [0, 1]
    assert report.health.events_read == 3 * (3 + 2 * 2)


@pytest.mark.nightly("traceadvisor")
def test_impossible_device_numbers_are_left_out_with_a_note(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 60)
    for device in range(MOST_DEVICES + 1):
        builder.launch(10, 20, kernel=(20, 50), device=device)
    report = api.load(builder.write(tmp_path / "w.1.pt.trace.json"), settings=Settings(select=("DATA001",)))
    assert len(report.recordings) == MOST_DEVICES
    (message,) = {row.note.message for row in report.health_notes if row.note.code == "devices-left-out"}
    assert message == "The file contains 65 GPUs. The report shows only the first 64."


def test_operations_of_any_device_number_belong_to_a_device(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 60).launch(10, 20, kernel=(20, 50), device=10**10)
    report = api.load(builder.write(tmp_path / "w.1.pt.trace.json"))
    (recording,) = report.recordings
    assert recording.device is not None
    assert not any(isinstance(row.outcome, Failed) for row in report.outcomes)
    assert recording.steps[0].breakdown.parts_ns[Category.KERNEL] == 30_000


def test_an_unreadable_file_among_several_is_a_note(tmp_path: Path) -> None:
    _record(tmp_path / "w.1.pt.trace.json")
    (tmp_path / "w.2.pt.trace.json").write_text("")
    report = api.load(tmp_path)
    assert len(report.recordings) == 1
    assert [row.note.code for row in report.health_notes if row.recording_id is None] == ["unreadable"]


def test_without_a_readable_file_the_reason_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "w.1.pt.trace.json"
    path.write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        api.load(path)


def test_a_selection_takes_shell_patterns(tmp_path: Path) -> None:
    for run in ("base", "tuned"):
        _record(tmp_path / run / "w.1.pt.trace.json")
    report = api.load(tmp_path, selection=api.Selection(run="t*"))
    assert [one.run for one in report.recordings] == ["tuned"]


def test_a_selection_without_a_match_lists_the_recordings(tmp_path: Path) -> None:
    _record(tmp_path / "base" / "w.1.pt.trace.json")
    with pytest.raises(UsageError, match="run 'base' worker 'w' span '1'"):
        api.load(tmp_path, selection=api.Selection(worker="other"))


def test_settings_choose_the_rules_that_run(tmp_path: Path) -> None:
    report = api.load(_record(tmp_path / "w.1.pt.trace.json"), settings=Settings(select=("DATA",), ignore=("DATA003",)))
    ran = {row.rule_id for row in report.outcomes}
    assert "DATA001" in ran
    assert not [rule for rule in ran if not rule.startswith("DATA") or rule == "DATA003"]


def test_settings_change_a_threshold(tmp_path: Path) -> None:
    path = _record(tmp_path / "w.1.pt.trace.json")  # two fifths of each step is data wait
    found = [api.load(path, settings=Settings(rules={"DATA001": {"min_share": limit}})) for limit in (0.3, 0.5)]
    assert [{row.finding.rule.id for row in one.findings} for one in found] == [{"DATA001"}, set()]


def test_settings_beside_the_recordings_are_ignored(tmp_path: Path) -> None:
    path = _record(tmp_path / "w.1.pt.trace.json")
    (tmp_path / "pyproject.toml").write_text("[tool.traceadvisor]\nselect = ['GPU']", encoding="utf-8")
    assert "DATA001" in {row.rule_id for row in api.load(path).outcomes}


def test_a_report_shows_its_settings(tmp_path: Path) -> None:
    thresholds = {"DATA001": {"min_share": 0.3}}
    settings = Settings(ignore=("GPU",), rules=thresholds, gpu_price_per_hour=2, file=tmp_path / "pyproject.toml")
    used = api.load(_record(tmp_path / "w.1.pt.trace.json"), settings=settings).settings
    assert (used.file, used.ignore, used.thresholds) == (tmp_path / "pyproject.toml", ("GPU",), thresholds)
    assert used.price == Price(2.0, "USD")


def test_with_a_price_each_recording_has_a_cost_and_each_finding_its_worth(tmp_path: Path) -> None:
    path = _record(tmp_path / "w.1.pt.trace.json", devices=2)
    report = api.load(path, settings=Settings(gpu_price_per_hour=2, currency="EUR"))
    assert [one.cost.per_hour for one in report.recordings if one.cost] == [4.0, 4.0]
    row = next(row for row in report.findings if row.finding.rule.id == "DATA001")
    assert row.worth is not None
    assert row.worth.per_hour.high == pytest.approx(4.0 * 0.4, rel=0.01)  # two fifths of each step is data wait


def test_without_a_price_nothing_has_a_cost(tmp_path: Path) -> None:
    report = api.load(_record(tmp_path / "w.1.pt.trace.json"))
    assert [one.cost for one in report.recordings] == [None]
    assert all(row.worth is None for row in report.findings)


def test_a_report_is_written_in_each_format_asked_for(tmp_path: Path) -> None:
    report, written = api.report(_record(tmp_path / "w.1.pt.trace.json"), out=tmp_path / "out", formats=["md", "json"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]
    assert written["md"].read_text().strip()
    assert api.write(report, str(tmp_path / "again"), ["md"])["md"].is_file()


@pytest.mark.nightly("traceadvisor/api.py", "traceadvisor/rendering")
def test_without_a_pdf_the_other_formats_are_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weasyprint.py").write_text("raise OSError('pango is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    result = api.load(_record(tmp_path / "w.1.pt.trace.json"))
    with pytest.raises(PdfUnavailableError):
        api.write(result, tmp_path / "out", ["pdf", "html"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_pages_of_many_recordings_need_the_details_of_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MANY", 8)
    for number in range(8):
        small(number).write(tmp_path / f"host{number}.1.pt.trace.json")
    ranks = next(path for path in SAMPLES if path.name == "two-ranks")  # whose findings on communication are read twice
    whole = api.load(tmp_path, ranks, processes=1)
    brief = api.load(tmp_path, ranks, processes=1, details=api.Details.SHOWN)
    assert all(one.timeline and one.origins and one.operators for one in whole.recordings)
    with_details = [one.id for one in brief.recordings if one.timeline]
    assert 0 < len(with_details) < len(whole.recordings)
    for name in PAGES - {"pdf"}:
        assert FORMATS[name].render(brief) == FORMATS[name].render(whole), name


def test_the_details_of_few_recordings_are_all_kept(tmp_path: Path) -> None:
    small(0).write(tmp_path / "host0.1.pt.trace.json")
    assert all(one.timeline and one.operators for one in api.load(tmp_path, details=api.Details.SHOWN).recordings)


def test_steps_are_available_as_a_table(tmp_path: Path) -> None:
    frame = api.to_frame(api.load(_record(tmp_path / "w.1.pt.trace.json")))
    assert list(frame["duration_ns"]) == [100_000_000] * 3
    assert list(frame["data_wait"]) == [40_000_000] * 3


def test_all_public_names_exist() -> None:
    assert all(getattr(traceadvisor, name) is not None for name in traceadvisor.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        traceadvisor.nonsense  # noqa: B018  # asked for its error
