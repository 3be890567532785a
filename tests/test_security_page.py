"""Each promise of docs/security.md names the tests that hold it, and they exist."""

import json
import re

import pytest

from tests.fuzz.__main__ import BEGIN, COUNTS, END, page_table
from tests.fuzz.__main__ import PAGE as ATTACKS
from tests.shared import CHECKOUT

PAGE = (CHECKOUT / "docs" / "security.md").read_text()
PROMISED = re.sub(r"\nNot promised:.*?(?=\n## |\Z)", "", PAGE.partition("\n## Tests")[0], flags=re.DOTALL)
PROMISES = re.findall(r"^- (.*?)(?=\n- |\n\n|\n## |\Z)", PROMISED, re.MULTILINE | re.DOTALL)


def test_the_page_makes_promises() -> None:
    assert len(PROMISES) > 25


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[:40])
def test_a_promise_names_tests_that_exist(promise: str) -> None:
    named = re.findall(r"`(tests/[^`]+)`", promise.partition("Held by")[2])
    assert named
    for path, _, function in (one.partition("::") for one in named):
        content = (CHECKOUT / path).read_text()
        assert f"def {function}(" in content if function else "def test_" in content


def test_the_page_counts_the_fuzzed_inputs_of_all_runs() -> None:
    assert f"{BEGIN}\n{page_table(json.loads(COUNTS.read_text()))}\n{END}" in ATTACKS.read_text()
