"""The JSON file of an experiment, written and read, with a schema of its own. The keys are the names of the model."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.model.experiment import FILE, SCHEMA, ExperimentResult, MeasuredRatio
from traceadvisor.results.json_encoding import decoded, encoded
from traceadvisor.results.redaction import cleaned
from traceadvisor.results.report_json import MOST_BYTES

_NAME = re.compile(r"[\w:. -]{1,200}")
"""Names of settings and of rules."""


def render(result: ExperimentResult) -> bytes:
    """Encode a result, with its texts cleaned."""
    return encoded(cleaned(result), schema=SCHEMA)


def read_experiment(path: Path) -> ExperimentResult:
    """Read a result.

    Raises:
        InputError: there is no such file, or it is no result of this version.
    """
    file = path / FILE if path.is_dir() else path
    remedy = "Measure again with this version."
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe might never end
            raise InputError(file, "is not a regular file", expected=SCHEMA, remedy=remedy)
        if status.st_size > MOST_BYTES:
            raise InputError(file, f"has more than {MOST_BYTES} bytes", expected=SCHEMA, remedy=remedy)
        document = msgspec.json.decode(file.read_bytes())
        found = document.get("schema") if isinstance(document, dict) else None
        if found != SCHEMA:
            raise InputError(file, f"schema {str(found)[:100]!r}", expected=SCHEMA, remedy=remedy)
        result = decoded(ExperimentResult, document)
        _check(result)
    except OSError as error:
        raise InputError(
            file, error.strerror or str(error), expected="the result of a sweep", remedy="Run traceadvisor sweep."
        ) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(file, str(error)[:300], expected=SCHEMA, remedy=remedy) from error
    return result


def _check(result: ExperimentResult) -> None:
    """Raise ValueError for what no experiment writes, and no page can draw."""
    rates = [arm.samples_per_s for section in result.sections for arm in section.arms]
    axes = [section.axis for section in result.sections if section.axis]
    rates += [point.samples_per_s for axis in axes for point in (*axis.loop, *axis.model, *axis.loader)]
    ratios = [
        number for one in _ratios(result) for number in (one.ratio, one.low, one.high, one.null_low, one.null_high)
    ]
    if any(number is not None and number <= 0 for number in (*rates, *ratios, result.recommended_ratio)):
        raise ValueError("a rate or a ratio is not positive")
    settings: list[Mapping[str, object]] = [
        result.own_settings,
        result.recommended,
        result.unavailable,
        result.not_applicable,
    ]
    settings += [one.settings for section in result.sections for one in section.arms]
    settings += [section.base for section in result.sections] + [row.settings for row in result.ledger]
    if bad := [name for one in settings for name in one if not _NAME.fullmatch(name)]:
        raise ValueError(f"{bad[0][:100]!r} is no name of a setting")


def _ratios(result: ExperimentResult) -> Iterator[MeasuredRatio]:
    found = [arm.measured for section in result.sections for arm in section.arms]
    yield from (one for one in (*found, *(row.measured for row in result.ledger)) if one)
