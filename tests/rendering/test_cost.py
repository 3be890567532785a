import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import one_recording
from tests.rendering.formatted import summary
from traceadvisor.model.cost import Amounts, Price, RunCost, Worth
from traceadvisor.model.report import Report, UsedSettings
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.units import joules, money

PRICE = Price(2.0, "EUR")


def _priced(per_million: float | None = 1.5) -> Report:
    """Two GPUs at two euros per hour; the first saving is simulated, the second is an upper limit."""
    report = one_recording()
    recording = replace(report.recordings[0], cost=RunCost(PRICE, 2, per_million), joules_per_sample=0.25)
    samples = None if per_million is None else Amounts(0.0, 0.25, 0.5)
    worth = Worth("EUR", Amounts(0.0, 0.66, 1.32), samples)
    first, second, *rest = report.findings
    findings = (replace(first, worth=worth), replace(second, worth=worth), *rest)
    return replace(report, recordings=(recording,), findings=findings, settings=UsedSettings(price=PRICE))


def _text(report: Report, name: str) -> str:
    return FORMATS[name].render(report).decode()


def test_the_page_shows_what_samples_cost_and_their_energy() -> None:
    page = _text(_priced(), "html")
    assert '<dt>Cost per million samples</dt><dd class="value">1.50 EUR</dd>' in page
    assert "2 GPUs at 2.00 EUR per hour" in page
    assert "250.0 mJ" in page


def test_without_a_sample_rate_the_page_shows_the_cost_per_hour() -> None:
    page = _text(_priced(None), "html")
    assert '<dt>Cost per hour</dt><dd class="value">4.00 EUR</dd>' in page
    assert "about 0.66 EUR per hour of training" in page


@pytest.mark.parametrize("name", ["html", "md"])
def test_the_words_for_worth_depend_on_the_method_of_the_saving(name: str) -> None:
    text = _text(_priced(), name)
    assert "about 0.25 EUR per million samples" in text
    assert "up to 0.50 EUR per million samples" in text


@pytest.mark.parametrize("name", ["html", "md"])
def test_without_a_price_no_cost_is_shown(name: str) -> None:
    text = _text(one_recording(), name)
    assert "Cost" not in text
    assert "orth</dt>" not in text
    assert "orth up to" not in text


def test_the_table_of_a_comment_has_a_column_for_the_cost() -> None:
    two = tuple(replace(_priced().recordings[0], id=name) for name in ("a", "b"))
    assert "| Cost |" in _text(replace(_priced(), recordings=two), "md")


def test_json_holds_every_amount() -> None:
    report = json.loads(_text(_priced(), "json"))
    (recording,) = report["recordings"]
    assert recording["cost"] == {
        "price": {"per_gpu_hour": 2, "currency": "EUR"},
        "gpu_count": 2,
        "per_million_samples": 1.5,
    }
    assert recording["joules_per_sample"] == 0.25
    assert ["worth" not in finding for finding in report["findings"]] == [False, False, True]
    assert report["findings"][0]["worth"] == {
        "currency": "EUR",
        "per_hour": {"low": 0.0, "expected": 0.66, "high": 1.32},
        "per_million_samples": {"low": 0.0, "expected": 0.25, "high": 0.5},
    }


def test_the_terminal_shows_cost_and_worth() -> None:
    lines = "\n".join(line.text for line in summary(_priced()))
    assert "Cost per million samples 1.50 EUR" in lines
    assert "Worth about 0.25 EUR per million samples" in lines


def test_a_report_shows_its_settings() -> None:
    settings = UsedSettings(
        Path("pyproject.toml"),
        select=("DATA",),
        ignore=("DATA003",),
        thresholds={"DATA001": {"min_share": 0.1}},
        providers={"ACME001": "acme-rules 1.0"},
        price=PRICE,
    )
    report = replace(one_recording(), settings=settings)
    comment = _text(report, "md")
    for phrase in (
        "Settings: pyproject.toml",
        "Rules selected: DATA",
        "Rules ignored: DATA003",
        "DATA001.min_share = 0.1",
        "ACME001 (acme-rules 1.0)",
        "2.00 EUR per hour",
    ):
        assert phrase in comment
    assert json.loads(_text(report, "json"))["settings"] == {
        "file": "pyproject.toml",
        "select": ["DATA"],
        "ignore": ["DATA003"],
        "thresholds": {"DATA001": {"min_share": 0.1}},
        "providers": {"ACME001": "acme-rules 1.0"},
        "price": {"per_gpu_hour": 2, "currency": "EUR"},
    }


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0.00 EUR"), (0.1, "0.10 EUR"), (0.0123, "0.012 EUR"), (0.00056, "0.00056 EUR"), (1234.5, "1,234.50 EUR")],
)
def test_small_amounts_keep_two_digits(amount: float, words: str) -> None:
    assert money(amount, "EUR") == words


@pytest.mark.parametrize(
    ("energy", "words"), [(0.0123, "12.3 mJ"), (1.5, "1.50 J"), (42, "42.0 J"), (None, "not measured")]
)
def test_energy_is_shown_in_a_suitable_unit(energy: float | None, words: str) -> None:
    assert joules(energy) == words
