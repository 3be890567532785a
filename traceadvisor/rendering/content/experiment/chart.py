"""The chart of samples per second: a bar for each setting, with its interval and the ceilings of an axis."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.frozen import frozen
from traceadvisor.model.experiment import MeasuredArm, Section
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Chart,
    Label,
    LegendEntry,
    Shape,
    Tone,
    number,
    rectangle,
)
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS, HOST_PAINT, LOADER_TIME, SAVING, SAVING_RANGE
from traceadvisor.rendering.content.experiment.words import (
    arm_words,
    base_words,
    ceilings,
    change,
    interval,
    rate_of,
    rate_words,
    verdict,
    without_reason,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Table, cells, titled
from traceadvisor.text.cleaning import clipped

MOST_BARS = 12
ROW_HEIGHT, BAR_TOP, BAR_HEIGHT = 54, 32, 12
NAME_AT, FIGURES_AT = 13, 26
"""Baselines of the two lines above a bar: beside each other, they overlap on a telephone."""

LONGEST_NAME = 50
"""Characters of a name on a telephone."""

TICK = 4
ROOM_ABOVE = 1.08

HIGHEST_CEILING = 2.0
"""A ceiling above this multiple of the fastest setting is not drawn, so that the bars stay readable."""


@frozen
class _Bar:
    name: str
    rate: float
    figures: str
    """The rate, its change and the verdict without its reason, which the table has."""

    words: str
    arm: MeasuredArm | None = None
    model: float | None = None
    loader: float | None = None


_RATES = (("Training loop", "rate"), ("Model alone (cached batches)", "model"), ("Loader alone", "loader"))
"""Titles and fields of a bar's rates."""


def rates_chart(section: Section, anchor: str) -> Chart | None:
    """A bar for each setting, the script as it is first; None without two bars."""
    own_rate = section.base_samples_per_s
    bars = list(_bars(section, own_rate))[: MOST_BARS + 1] if own_rate else []
    if not own_rate or len(bars) < 2:
        return None
    fastest = max(bar.rate for bar in bars)
    ceilings = [each for bar in bars for each in (bar.model, bar.loader) if each]
    top = ROOM_ABOVE * max(fastest, *(each for each in (0.0, *ceilings) if each <= fastest * HIGHEST_CEILING))
    measured = [(title, name) for title, name in _RATES if any(getattr(bar, name) for bar in bars)]
    return Chart(
        id=f"{anchor}-bars",
        title="Samples per second with each setting",
        caption="The thin line is the 99% interval.",
        description="; ".join(f"{bar.name}: {bar.words}" for bar in bars),
        height=len(bars) * ROW_HEIGHT,
        labels=tuple(label for place, bar in enumerate(bars) for label in _labels(bar, place * ROW_HEIGHT)),
        legend=tuple(_legend(bars, top)) if ceilings else (),
        text_bars=tuple(
            LegendEntry(DEVICE_PAINTS[0], name, words, share)
            for name, words, share in _text_bars(section, bars, fastest)
        ),
        data=Table(
            "Samples per second",
            titled("Setting", *(title for title, _ in measured)),
            tuple(cells(bar.name, *(_rate(getattr(bar, name)) for _, name in measured)) for bar in bars),
        ),
        shapes=tuple(
            shape for place, bar in enumerate(bars) for shape in _shapes(bar, place * ROW_HEIGHT, own_rate, top)
        ),
        detail=Detail.SUMMARY,
    )


def _bars(section: Section, own_rate: float | None) -> Iterator[_Bar]:
    axis = section.axis

    def ceilings_of(value: object) -> tuple[float | None, float | None]:
        return ceilings(axis, value) if axis else (None, None)

    if own_rate:
        rate = rate_words(own_rate)
        yield _Bar(base_words(section), own_rate, rate, rate, None, *ceilings_of(axis and axis.own))
    for arm in section.arms:
        found = rate_of(arm, own_rate)
        if found is not None and arm.measured and arm.is_compared:
            figures = f"{rate_words(found)}, {change(arm.measured.ratio)}"
            short, words = (f"{figures}, {said}" for said in (without_reason(arm.measured), verdict(arm)))
            value = arm.settings.get(axis.name) if axis else None
            yield _Bar(arm_words(arm, section), found, short, words, arm, *ceilings_of(value))


def _text_bars(section: Section, bars: list[_Bar], fastest: float) -> Iterator[tuple[str, str, float | None]]:
    """Names, words with the interval, and lengths; then the settings that were not measured."""
    for bar in bars:
        found = bar.arm.measured if bar.arm else None
        ends = f"; interval {interval(found)}" if found and interval(found) else ""
        yield bar.name, f"{bar.words}{ends}", bar.rate / fastest
    yield from ((arm_words(arm, section), verdict(arm), None) for arm in section.arms if not arm.is_compared)


def _rate(rate: float | None) -> str:
    return "" if rate is None else rate_words(rate)


def _labels(bar: _Bar, y: int) -> Iterator[Label]:
    yield Label("0%", number(y + NAME_AT), clipped(bar.name, LONGEST_NAME))
    yield Label("0%", number(y + FIGURES_AT), bar.figures, tone=Tone.QUIET)


def _shapes(bar: _Bar, y: int, own_rate: float, top: float) -> Iterator[Shape]:
    paint = DEVICE_PAINTS[0] if bar.arm else SAVING_RANGE
    yield Shape(rectangle(0, y + BAR_TOP, bar.rate / top * WIDTH, BAR_HEIGHT), paint)
    found = bar.arm.measured if bar.arm else None
    if found and interval(found):
        low, high = (min(own_rate / end / top, 1.0) for end in (found.high, found.low))
        yield Shape(rectangle(low * WIDTH, y + BAR_TOP + 4, (high - low) * WIDTH, 4), SAVING)
    for rate, color in ((bar.model, HOST_PAINT), (bar.loader, LOADER_TIME)):
        if rate and rate <= top:
            yield Shape(rectangle(rate / top * WIDTH - TICK / 2, y + BAR_TOP - 2, TICK, BAR_HEIGHT + 4), color)


def _legend(bars: list[_Bar], top: float) -> Iterator[LegendEntry]:
    for (title, name), color in zip(_RATES, (DEVICE_PAINTS[0], HOST_PAINT, LOADER_TIME), strict=True):
        rates = [rate for bar in bars if (rate := getattr(bar, name))]
        if name == "rate" or rates:
            above = f"beyond the chart: up to {max(rates):,.0f}" if name != "rate" and max(rates) > top else ""
            yield LegendEntry(color, title, above)
