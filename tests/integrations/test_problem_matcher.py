"""The problem matcher of docs/with-other-tools.md, on what `report --format github` prints."""

import json
import re

import pytest

from tests.shared import CHECKOUT, SAMPLES
from traceadvisor import api
from traceadvisor.rendering.formats import FORMATS

_PAGE = (CHECKOUT / "docs" / "with-other-tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["left-on", "loader-bound"])
def test_the_matcher_finds_every_problem_with_its_line(name: str) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL)
    (task,) = json.loads(block)["tasks"]
    assert task["command"] == "traceadvisor report --format github"
    pattern = task["problemMatcher"]["pattern"]
    sample = next(one for one in SAMPLES if one.name == name)
    lines = FORMATS["github"].render(api.load(sample, processes=1)).decode().splitlines()
    found = [match for line in lines if (match := re.fullmatch(pattern["regexp"], line))]
    assert len(found) == len(lines) - 1  # without the line for debug logs
    assert found
    for match in found:
        assert match[pattern["severity"]] in {"error", "warning", "notice"}
        assert match[pattern["file"]].endswith(".py")
        assert int(match[pattern["line"]]) >= 1
        assert re.match(r"[A-Z0-9]+\d{3} ", match[pattern["code"]])
        assert match[pattern["message"]].endswith(".")
