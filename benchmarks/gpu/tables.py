"""Results of the kit as tables of benchmarks/validation/details.md, computed from the committed JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]

NOTHING_YET = "No results of a GPU yet. [The kit](../gpu/README.md) makes them.\n"

REDUCED = "**A reduced run of the kit without a GPU. These are no GPU results; they show that the kit works.**"

_COLUMNS = (
    "training",
    "change",
    "step",
    "measured",
    "A/A band",
    "verdict",
    "predicted",
    "by",
    "within the range",
    "error",
)
_OVERHEAD_COLUMNS = ("training", "capture", "plain step", "longer step", "A/A band", "verdict")
_UNDISTURBED_COLUMNS = ("training", "recording", "plain step", "recorded step", "difference")
_CHECK_COLUMNS = ("part", "check", "result")
_MEMORY_COLUMNS = ("training", "batch", "measured", "predicted")


def read(folder: Path) -> list[Document]:
    """All results in a folder, in order of name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def text(documents: Sequence[Document]) -> str:
    """What stands between the marks of the page."""
    if not documents:
        return NOTHING_YET
    return "\n".join(line for reduced in (False, True) for line in _section(documents, reduced=reduced)) + "\n"


def _section(documents: Sequence[Document], *, reduced: bool) -> Iterator[str]:
    chosen = [document for document in documents if _is_reduced(document) == reduced]
    if not chosen:
        return
    if reduced:
        yield from (REDUCED, "")
    for machine in dict.fromkeys(map(_machine, chosen)):
        same = [document for document in chosen if _machine(document) == machine]
        yield from (machine, "")
        rows = [row for document in same for experiment in document.get("experiments", ()) for row in _rows(experiment)]
        if rows:
            yield from (*_table(_COLUMNS, rows), "")
        memory = [_memory_row(row) for document in same for row in document.get("memory", ()) if row["measured_bytes"]]
        if memory:
            yield from (*_table(_MEMORY_COLUMNS, memory), "")
        yield from _capture_tables(same)
        checks = [_check_row(document["part"], row) for document in same for row in document.get("checks", ())]
        if checks:
            yield from (*_table(_CHECK_COLUMNS, checks), "")
        for document in same:
            if document["status"] != "complete":
                yield from (f"Part {document['part']} did not come to its end: {document['error']}.", "")


def _is_reduced(document: Document) -> bool:
    return bool(document["reduced"]) or document["device"] is None


def _machine(document: Document) -> str:
    device = "no GPU" if _is_reduced(document) else document["device"]
    cuda = "" if _is_reduced(document) else f", CUDA {document['cuda']}, driver {document['driver'] or 'not known'}"
    return (
        f"{device}; {document['cores']} cores of {document['processor']}; Python {document['python']}, "
        f"torch {document['torch']}{cuda}."
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {' | '.join(row)} |" for row in rows)]


def _rows(experiment: Document) -> Iterator[tuple[str, ...]]:
    for row in experiment["arms"].values():
        measured = row["comparison"]
        if measured is None:
            continue
        predicted = row["predicted"]
        is_conclusive = measured["verdict"] != "inconclusive" and not row["void"]
        yield (
            f"{experiment['workload']} ({experiment['name']})",
            row["change"],
            f"{experiment['step_s'] * 1000:.1f} ms",
            f"{measured['ratio']:.3f} ({measured['low']:.3f} to {measured['high']:.3f})",
            f"{measured['null_low']:.3f} to {measured['null_high']:.3f}",
            f"void: {row['void']}" if row["void"] else measured["verdict"],
            _predicted(predicted),
            _by(predicted),
            _within(measured["ratio"], predicted) if is_conclusive else "-",
            _error(measured["ratio"], predicted) if is_conclusive else "-",
        )


def _predicted(predicted: Document | None) -> str:
    if predicted is None:
        return "no report"
    ends = f"{predicted['low']:.3f} to {predicted['high']:.3f}" if predicted["low"] is not None else ""
    if predicted["expected"] is None:
        return ends or "nothing"
    return f"{predicted['expected']:.3f}{f' ({ends})' if ends else ''}"


def _by(predicted: Document | None) -> str:
    if predicted is None:
        return "-"
    return " ".join(word for word in (predicted["rule"], predicted["status"], predicted["method"]) if word)


def _within(ratio: float, predicted: Document | None) -> str:
    if predicted is None or predicted["low"] is None:
        return "-"
    return "yes" if predicted["low"] <= ratio <= predicted["high"] else "**no**"


def _error(ratio: float, predicted: Document | None) -> str:
    """How much longer the predicted step is than the measured one."""
    if predicted is None or predicted["expected"] is None:
        return "-"
    return f"{predicted['expected'] / ratio - 1:+.0%}"


def _memory_row(row: Document) -> tuple[str, ...]:
    measured, predicted = row["measured_bytes"], row.get("predicted_bytes")
    batch = f"{row['factor'] * row['batch']}"
    return (
        row["workload"],
        batch if row["factor"] == 1 else f"{batch}, predicted from {row['batch']}",
        f"{measured / 2**20:.0f} MiB",
        f"{predicted / 2**20:.0f} MiB ({predicted / measured - 1:+.1%})" if predicted else "not recorded",
    )


def _check_row(part: str, row: dict[str, str]) -> tuple[str, ...]:
    """A check and its outcome; of one that failed also what was expected and found, in which nothing ends a cell."""
    found = " ".join(row["found"].split()).replace("|", "\\|")
    failed = f"**FAIL**: {found}. Expected: {row['expected']}"
    return (part, row["name"], failed if row["outcome"] == "FAIL" else row["outcome"])


def _capture_tables(documents: Sequence[Document]) -> Iterator[str]:
    """What captures cost, and what they kept of their promises."""
    costs = [row for document in documents for row in _overhead_rows(document.get("capture_overhead", {}))]
    if costs:
        yield from (*_table(_OVERHEAD_COLUMNS, costs), "")
    recorded = [_undisturbed_row(row) for document in documents for row in document.get("undisturbed", ())]
    if recorded:
        yield from (*_table(_UNDISTURBED_COLUMNS, recorded), "")
    for document in documents:
        yield from _promises(document)


def _overhead_rows(trainings: Document) -> Iterator[tuple[str, ...]]:
    """What each form of a capture adds to a step."""
    for training in trainings.values():
        for arm, measured in training["arms"].items():
            yield (
                training["workload"],
                arm,
                f"{training['step_s'] * 1000:.1f} ms",
                f"{measured['ratio'] - 1:+.1%} ({measured['low'] - 1:+.1%} to {measured['high'] - 1:+.1%})",
                f"{measured['null_low'] - 1:+.1%} to {measured['null_high'] - 1:+.1%}",
                measured["verdict"],
            )


def _undisturbed_row(row: Document) -> tuple[str, ...]:
    plain, recorded = row["plain_ns"], row["recorded_ns"]
    times = (f"{plain / 1e6:.2f} ms", f"{recorded / 1e6:.2f} ms", f"{recorded / plain - 1:+.1%}")
    return (row["workload"], row["form"], *times)


def _promises(document: Document) -> Iterator[str]:
    """Sentences on ends, launchers and kills."""
    if stopped := document.get("stop_after_window"):
        ending, steps = ", ".join(stopped["endings"]), ", ".join(map(str, stopped["steps"]))
        yield f"`--stop-after-window`: {ending} after {steps} steps; {stopped['processes_left']} processes left."
        yield ""
    for name, row in document.get("launched", {}).items():
        ending, steps = ", ".join(row["endings"]), ", ".join(map(str, row["steps"]))
        yield f"torchrun, {name}: {ending} after {steps} steps; {row['recordings']} recordings."
        yield ""
    if rows := document.get("kills"):
        readable = sum(row["readable"] for row in rows)
        yield f"SIGKILL after the recording: {readable} of {len(rows)} bundles are readable."
        yield ""
