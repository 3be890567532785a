from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from traceadvisor.judging.run_rule import conforms
from traceadvisor.model.findings import (
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Location,
    Method,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet

META = RuleMeta("ACME001", "slow-thing", "A slow thing")
FINDING = Finding(
    rule=META,
    claims=SpanSet.of((0, 1)),
    saving=Estimate(0, np.float64(1), 2, Method.BOUND, of_the_fix("nobody asked")),
    confidence=Confidence.LOW,
    effort=Effort.LINE,
    evidence=(Evidence("calls", int(np.int64(3)), Unit.COUNT), Evidence("kind", "a", Unit.TEXT)),
    fix=Fix("Change it"),
    locations=(Location("train.py", 1),),
    caveats=("It may be wrong.",),
)


def test_values_of_the_annotated_type_conform() -> None:
    assert conforms(FINDING, Finding)
    assert conforms(Clear("wait", 0.5, 1, Unit.SHARE), Finding | Clear | Skipped)


def test_sets_conform_member_by_member() -> None:
    assert conforms(frozenset({Input.STEPS}), frozenset[Input])
    assert not conforms(frozenset({"steps"}), frozenset[Input])


def test_numpy_numbers_are_numbers() -> None:
    evidence: Any = Evidence("calls", np.int64(3), Unit.COUNT)  # type: ignore[arg-type]  # what rules may compute
    assert conforms(replace(FINDING, evidence=(evidence,)), Finding)


_T = TypeVar("_T")
ARRAY = TypeAliasType("ARRAY", np.ndarray[Any, np.dtype[_T]], type_params=(_T,))  # as numpy's
NAMES = TypeAliasType("NAMES", tuple[str, ...])


def test_an_alias_stands_for_its_type() -> None:
    array: Any = ARRAY[np.int64]
    assert conforms(np.array([1]), array)
    assert not conforms([1], array)
    assert conforms(("a",), NAMES)
    assert not conforms((1,), NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"evidence": None},
        {"evidence": [Evidence("calls", 3, Unit.COUNT)]},
        {"evidence": (Evidence("calls", None, Unit.COUNT),)},  # type: ignore[arg-type]  # the point
        {"claims": ((0, 1),)},
        {"fix": "Change it"},
        {"rule": replace(META, name=None)},  # type: ignore[arg-type]  # the point
        {"locations": (Location("train.py", "1"),)},  # type: ignore[arg-type]  # the point
        {"confidence": "low"},
    ],
)
def test_one_wrong_part_does_not_conform(wrong: dict[str, Any]) -> None:
    assert not conforms(replace(FINDING, **wrong), Finding)


@pytest.mark.parametrize("value", [None, "found", 3, FINDING.fix])
def test_other_values_do_not_conform(value: object) -> None:
    assert not conforms(value, Finding | Clear | Skipped)
