"""The JSON file of an experiment, written and read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.model.experiment import SCHEMA, ExperimentResult
from traceadvisor.text.secrets import without_secret_arguments

FILE = "experiment.json"


def render(result: ExperimentResult) -> bytes:
    """Encode a result; arguments of the command that look like secrets are replaced."""
    return msgspec.json.format(msgspec.json.encode(redacted(result)), indent=2) + b"\n"


def redacted(result: ExperimentResult) -> ExperimentResult:
    """The result without secrets."""
    return replace(result, command=without_secret_arguments(result.command))


def read_experiment(path: Path) -> ExperimentResult:
    """Read a result.

    Raises:
        InputError: there is no such file, or it is no result of this version.
    """
    file = path / FILE if path.is_dir() else path
    try:
        found = msgspec.json.decode(file.read_bytes(), type=ExperimentResult)
    except OSError as error:
        raise InputError(
            file, error.strerror or str(error), expected="the result of a sweep", remedy="Run traceadvisor sweep."
        ) from error
    except ValueError as error:
        raise InputError(file, str(error), expected=SCHEMA, remedy="Measure again with this version.") from error
    if found.schema != SCHEMA:
        raise InputError(file, f"schema {found.schema!r}", expected=SCHEMA, remedy="Measure again with this version.")
    return found
