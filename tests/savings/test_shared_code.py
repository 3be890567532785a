"""What other fixes surely leave of a finding, by the code in which samples show its time."""

from dataclasses import replace

import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library, user
from tests.build_report import loader_finding
from traceadvisor.model.location import Location
from traceadvisor.savings.shared_code import share_beside

COMPUTE, LOG = (MAIN, user("train", 20), user("compute", 65)), (MAIN, user("train", 20), user("log", 81))
BACKWARD = (MAIN, user("train", 24), library("backward", 300, "torch/autograd/__init__.py"))
SAMPLES = Samples().add(30, *COMPUTE).add(10, *LOG).add(60, *BACKWARD).build()


@pytest.mark.parametrize(
    ("above", "line", "share", "beside"),
    [
        (("compute", 65), ("log", 81), 0.1, 1.0),
        (("compute", 65), ("train", 20), 0.4, 0.25),
        (("compute", 65), ("train", 20), 0.3, 0.0),  # all of this may be in compute
        (("compute", 60), ("compute", 65), 0.3, 0.0),  # a fix may change the whole function
        (("train", 24), ("log", 81), 0.1, 1.0),  # but not all of the training
        (("train", 20), ("log", 81), 0.1, 0.0),
        (("compute", 65), ("elsewhere", 7), 0.1, None),
        (None, ("log", 81), 0.1, None),
    ],
)
def test_a_fix_leaves_what_samples_show_outside_of_its_functions(
    above: tuple[str, int] | None, line: tuple[str, int], share: float, beside: float | None
) -> None:
    first, second = (
        replace(loader_finding(), locations=(Location("train.py", at[1], at[0]),) if at else ()) for at in (above, line)
    )
    found = share_beside(SAMPLES, [first], second, share)
    assert found == (None if beside is None else pytest.approx(beside))
    assert share_beside(None, [first], second, share) is None
