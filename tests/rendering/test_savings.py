from __future__ import annotations

import pytest

from traceadvisor.model.findings import Estimate, Method
from traceadvisor.rendering.finding_view import saving_words, share_words

MS = 1_000_000


@pytest.mark.parametrize(
    ("saving", "time", "share"),
    [
        (Estimate(1 * MS, 2 * MS, 3 * MS, Method.REPLAY), "about 2.00 ms per step", "20.0% of the step"),
        (
            Estimate.bound(4 * MS, "nobody asked"),
            "between nothing and 4.00 ms per step",
            "at most 40.0% of the step",
        ),
        (Estimate(0, 0, 0, Method.MODEL), "memory or trouble", "no time"),
        (Estimate.bound(0, "nobody asked"), "memory or trouble", "no time"),
    ],
)
def test_a_saving_is_told_as_surely_as_it_is_known(saving: Estimate, time: str, share: str) -> None:
    assert saving_words(saving) == time
    assert share_words(saving, saving.expected_ns / (10 * MS)) == share
