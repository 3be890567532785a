"""A report with any values in any of its fields: no text is forgotten, and all is read back as it was written."""

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import jsonschema
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceadvisor.model.arrays import Int64
from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.json_hints import MaybeNan
from traceadvisor.model.report import SCHEMA, Report
from traceadvisor.model.spans import SpanSet
from traceadvisor.results import experiment_json, report_json
from traceadvisor.results.json_encoding import decoded, members, shape
from traceadvisor.results.json_schemas import schema

CANARY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
TEXT = f"a\x1b[31m {CANARY}"
VALUES: dict[Any, Any] = {str: TEXT, bool: True, float: 0.0, MaybeNan: 0.0, Path: Path(TEXT)}
VALUES |= {SpanSet: SpanSet.of((0, 1)), Int64: np.zeros(2, np.int64)}
"""Times are 0, so that all sums are right."""


def _value(hint: Any, chance: Random, name: str = "") -> Any:
    """A value of a type; texts hold a secret."""
    if hint in VALUES:
        return VALUES[hint]
    if hint is int:
        return int(name == "step_count")
    if is_dataclass(hint):
        return _object(hint, chance)
    return _of_several(hint, chance) if get_args(hint) else chance.choice(list(hint))


def _of_several(hint: Any, chance: Random) -> Any:
    """A value of a union, or a collection."""
    origin, (first, *others) = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        chosen = chance.choice((first, *others))
        return None if chosen is NoneType else _value(chosen, chance)
    if issubclass(origin, Mapping):
        return {_value(first, chance): _value(others[0], chance)}
    hints = [first] * chance.randint(1, 2) if others == [...] else (first, *others)
    return origin(_value(one, chance) for one in hints)


def _object(kind: Any, chance: Random) -> Any:
    """An object of a class; another one where the class refuses it."""
    while True:
        given_ = {name: _value(hint, chance, name) for name, (hint, _) in members(kind).items()}
        try:
            return kind(**{**shape(kind)._absent, **given_})
        except ValueError:
            continue


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_no_text_of_a_report_is_forgotten_and_all_is_read_back(seed: int) -> None:
    content = report_json.render(_object(Report, Random(seed)))
    assert CANARY.encode() not in content
    assert b"\\u001b" not in content
    assert report_json.render(decoded(Report, json.loads(content))) == content


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_no_text_of_an_experiment_is_forgotten_and_all_is_read_back(seed: int) -> None:
    content = experiment_json.render(_object(ExperimentResult, Random(seed)))
    assert CANARY.encode() not in content
    assert experiment_json.render(decoded(ExperimentResult, json.loads(content))) == content


def test_any_report_follows_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema(Report, SCHEMA))
    for seed in range(3):
        validator.validate(json.loads(report_json.render(_object(Report, Random(seed)))))
