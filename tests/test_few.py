import pytest

from tests.few import few


def test_a_nightly_case_keeps_its_arguments_and_its_name() -> None:
    first, *others = few([0, 1, (2, 3), pytest.param(4, id="four")], "tests/few.py")
    assert first == 0
    assert [(case.values, case.id) for case in others] == [((1,), None), ((2, 3), None), ((4,), "four")]  # type: ignore[attr-defined]
