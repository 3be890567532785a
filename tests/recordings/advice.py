"""Scores the advice of reports against what an expert says of the same recordings.

``advice.toml`` holds the labels. They are written from the recordings alone, before a rule is changed for them.
``python -m tests.recordings.advice`` prints the score of every labelled recording. With ``--write`` it writes the score
into ``benchmarks/validation/details.md`` and the reasons into ``benchmarks/advice-by-recording.md``.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import assert_never

import msgspec

from tests.recordings.generated.trainings import written
from tests.shared import CHECKOUT, SHARED_TRACES
from traceadvisor import load

LABELS = Path(__file__).with_name("advice.toml")

PAGE = CHECKOUT / "benchmarks" / "validation" / "details.md"
REASONS = CHECKOUT / "benchmarks" / "advice-by-recording.md"

FIRST = 3
"""Findings of a report that are judged: those that a reader acts on."""


class Verdict(Enum):
    """What an expert says of a piece of advice."""

    RIGHT = "right"
    ACCEPTABLE = "acceptable"
    """True, and worth less than other advice on the same recording."""

    WRONG = "wrong"
    """A false cause, a remedy that does not reach the time it claims, or one that does not exist here."""

    UNLABELLED = "unlabelled"
    MISSING = "missing"


class Origin(Enum):
    """Where a recording comes from."""

    REAL = "real"
    """A training that was not made for this purpose."""

    PLANTED = "planted"
    """A capture of a small training of ours with one planted fault, or none: ``benchmarks/planted``."""

    GENERATED = "generated"
    """A simulated training on hardware that is not at hand: ``tests/recordings/generated``."""


class Opinion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One expert opinion on one piece of advice."""

    advice: str
    """A rule's id, or a name in words where no rule gives this advice yet."""

    verdict: Verdict
    why: str


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an expert says of one recording."""

    path: str
    """Relative to ``shared/traces``, a folder of ``sample_traces/``, or ``planted/`` or ``generated/`` and a name."""

    written_on: bool
    """Whether rules were written with this recording at hand; such recordings are counted apart."""

    summary: str
    """What the recording shows, in a sentence."""

    opinions: tuple[Opinion, ...]
    must: tuple[str, ...] = ()
    """Advice of which a report has to give at least one among its first findings; empty where none is due."""

    origin: Origin = Origin.REAL


@dataclass(frozen=True, slots=True)
class Score:
    """The first findings of one recording, judged."""

    label: Label
    given: tuple[tuple[str, Verdict], ...]
    """Rule ids in the order of the report."""

    @property
    def is_missed(self) -> bool:
        """Whether none of the advice that is due is given."""
        return bool(self.label.must) and not {rule for rule, _ in self.given} & set(self.label.must)

    @property
    def first(self) -> Verdict | None:
        """The verdict on the first finding; MISSING if advice is due and none is given, None if neither."""
        return self.given[0][1] if self.given else Verdict.MISSING if self.label.must else None

    def count(self, verdict: Verdict) -> int:
        """Number of first findings with this verdict."""
        return sum(each is verdict for _, each in self.given)


def labels() -> tuple[Label, ...]:
    """The committed labels.

    Raises:
        msgspec.ValidationError: the file holds something else.
    """
    return msgspec.toml.decode(LABELS.read_bytes(), type=dict[str, tuple[Label, ...]])["recording"]


def folder_of(label: Label) -> Path:
    """Where the recording lies; a generated one is written first."""
    match label.origin:
        case Origin.REAL:
            return (CHECKOUT if label.path.startswith("sample_traces/") else SHARED_TRACES) / label.path
        case Origin.PLANTED:
            return LABELS.parent / label.path
        case Origin.GENERATED:
            return written(label.path.removeprefix("generated/"))
        case _:
            assert_never(label.origin)


def score(label: Label) -> Score:
    """Judge the first findings of a fresh report on the recording."""
    verdicts = {opinion.advice: opinion.verdict for opinion in label.opinions}
    rules = [row.finding.rule.id for row in load(folder_of(label), processes=1).findings][:FIRST]
    return Score(label, tuple((rule, verdicts.get(rule, Verdict.UNLABELLED)) for rule in rules))


def table(scores: Iterable[Score]) -> Iterator[str]:
    """Lines of Markdown: a row for each recording, then the sums of each group."""
    scores = tuple(scores)
    yield "| recording | first findings | due, not given |"
    yield "|---|---|---|"
    for one in scores:
        given = ", ".join(f"{rule} {verdict.value}" for rule, verdict in one.given) or "none"
        yield f"| {one.label.path} | {given} | {' or '.join(one.label.must) if one.is_missed else '-'} |"
    yield ""
    yield from counts(scores)


def counts(scores: Iterable[Score]) -> Iterator[str]:
    """Lines of Markdown: the sums of each group, and how often the first finding is right."""
    scores = tuple(scores)
    yield "| recordings | count | right | acceptable | wrong | missed |"
    yield "|---|---|---|---|---|---|"
    for name, group in groups(scores).items():
        verdicts = (Verdict.RIGHT, Verdict.ACCEPTABLE, Verdict.WRONG)
        sums = " | ".join(str(sum(one.count(verdict) for one in group)) for verdict in verdicts)
        yield f"| {name} | {len(group)} | {sums} | {sum(one.is_missed for one in group)} |"
    yield ""
    judged = Counter(one.first for group in groups(scores).values() for one in group if one.first)
    parts = ", ".join(f"{verdict.value} on {judged[verdict]}" for verdict in Verdict if judged[verdict])
    yield f"The first finding, on {judged.total()} recordings with one or where one is due: {parts}."


def groups(scores: Iterable[Score]) -> Mapping[str, tuple[Score, ...]]:
    """Real recordings that rules were written on, the other real ones, captures of planted faults, generated ones."""
    found: dict[str, list[Score]] = {name: [] for name in GROUPS}
    for one in scores:
        found[group_of(one.label)].append(one)
    return {name: tuple(group) for name, group in found.items()}


GROUPS = ("rules were written on", "others", "planted captures", "generated")


def group_of(label: Label) -> str:
    """The name of the label's group."""
    match label.origin:
        case Origin.REAL:
            return GROUPS[0] if label.written_on else GROUPS[1]
        case Origin.PLANTED:
            return GROUPS[2]
        case Origin.GENERATED:
            return GROUPS[3]
        case _:
            assert_never(label.origin)


def reasons_page(scores: Iterable[Score]) -> Iterator[str]:
    """Lines of Markdown: the recordings with right findings only by name, the others with the expert's reasons."""
    yield "# Advice by recording"
    yield ""
    yield "**Do this now:** look up a recording like yours; rows show only advice that is not fully right."
    yield ""
    yield "The first three findings of each labelled recording, and why they are not all right."
    yield "[Precision of advice](validation/details.md#precision-of-advice) counts them,"
    yield "[the labels](../tests/recordings/advice.toml) also say why findings are right, and `make advice WRITE=1`"
    yield "writes this page."
    for name, group in groups(scores).items():
        right = [one for one in group if not one.is_missed and one.count(Verdict.RIGHT) == len(one.given)]
        others = [one for one in group if one not in right]
        yield from ("", f"## {name[0].upper()}{name[1:]}")
        if right:
            given = (f"`{_short(one)}` {', '.join(rule for rule, _ in one.given) or '-'}" for one in right)
            yield from ("", f"All right (-: none, and none is due): {'; '.join(given)}.")
        if others:
            yield from ("", "| recording | first findings, and why they are not right |", "|---|---|")
            yield from (f"| {_short(one)} | {'<br>'.join(_reasons(one))} |" for one in others)


def _short(one: Score) -> str:
    """The path of a recording without what all of its group share."""
    return one.label.path.removesuffix(".pt.trace.json.gz").removeprefix(f"{one.label.origin.value}/")


def _reasons(one: Score) -> Iterator[str]:
    """Each first finding, with the expert's reason if it is not right, and the advice that is missing."""
    why = {opinion.advice: opinion.why for opinion in one.label.opinions}
    for rule, verdict in one.given:
        reason = "" if verdict is Verdict.RIGHT else f": {why.get(rule, 'not judged yet')}"
        yield f"{rule} {_bold_if_wrong(verdict)}{reason}"
    if one.is_missed:
        yield f"**missed** {' or '.join(one.label.must)}: {why[one.label.must[0]]}"


def _bold_if_wrong(verdict: Verdict) -> str:
    return f"**{verdict.value}**" if verdict is Verdict.WRONG else verdict.value


def with_block(name: str, block: str, page: Path = PAGE) -> str:
    """The text of a page with a new block between the marks of a name.

    Raises:
        ValueError: the page does not have exactly one pair of these marks.
    """
    replaced, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{block}\n{found[2]}",
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"{count} blocks of {name!r}")
    return replaced


def pages(scores: Iterable[Score]) -> dict[Path, str]:
    """The pages with the scores and with their reasons."""
    scores = tuple(scores)
    return {
        PAGE: with_block("advice", "\n".join(counts(scores)) + "\n"),
        REASONS: "\n".join(reasons_page(scores)) + "\n",
    }


if __name__ == "__main__":
    judged = tuple(map(score, labels()))
    print("\n".join(table(judged)))  # noqa: T201
    if "--write" in sys.argv[1:]:
        for path, text in pages(judged).items():
            path.write_text(text, encoding="utf-8")
