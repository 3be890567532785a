import html
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.text.log_commands import (
    html_without_log_commands,
    json_without_log_commands,
    without_log_commands,
)

COMMANDS = (
    "##vso[task.setvariable variable=PATH]/evil",
    "##vso[task.complete result=Failed]",
    "##[error]broken",
    "###[error]broken",
    "##[group]x",
    "##teamcity[testFailed name='x']",
    "::set-output name=x::y",
    "::error file=a.py::broken",
    "  ::add-mask::e",
    "::stop-commands::token",
    "section_start:1700000000:name",
    "section_end:1700000000:name",
    "travis_fold:start:x",
    "--- header",
    "+++ open",
    "^^^ +++",
    "\x1b[1m::error::x",
)

LIVE = re.compile(
    r"##(?:vso|teamcity)?\[|^(?:\s|\x1b\[[0-9;]*m)*::|section_(?:start|end):|travis_fold:|^(?:---|\+\+\+|\^\^\^) ", re.M
)
"""What a CI system looks for, as its documentation has it."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_printed_as_text(command: str) -> None:
    assert LIVE.search(command)
    shown = without_log_commands(command)
    assert not LIVE.search(shown)
    assert shown.replace(" ", "") == command.replace(" ", "")


@pytest.mark.parametrize(
    "text", ["aten::mm takes 3 ms", "a ## b [c]", "x ::y", "# heading [1]", "a -- b", "section_a:"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert without_log_commands(text) == text


def test_the_rest_of_a_line_is_no_beginning_of_one() -> None:
    assert without_log_commands("::mm", mid_line=True) == "::mm"
    assert without_log_commands("a\n::mm", mid_line=True) == "a\n: :mm"


@given(
    st.lists(st.sampled_from(["#", "##", "[", "vso", ":", "::", "-", "+", "\n", " ", "section_start", "a", "\x1b[1m"]))
)
def test_no_mixture_of_parts_is_a_command(parts: list[str]) -> None:
    shown = without_log_commands("".join(parts))
    assert not LIVE.search(shown)
    assert without_log_commands(shown) == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_json_keeps_its_content(command: str) -> None:
    written = json_without_log_commands(json.dumps({"name": command}, ensure_ascii=False))
    assert json.loads(written) == {"name": command}
    assert not LIVE.search(written)


@pytest.mark.parametrize("command", COMMANDS)
def test_html_keeps_its_content(command: str) -> None:
    written = html_without_log_commands(html.escape(command))
    assert html.unescape(written) == command
    assert not LIVE.search(written)
