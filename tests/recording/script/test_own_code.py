from __future__ import annotations

import warnings

import pytest

from traceadvisor.recording.script.own_code import OWN_FILE, unseen


def _of_torch() -> None:
    warnings.warn("this is slow", stacklevel=2)


@unseen
def _hooked() -> None:
    _of_torch()


def test_a_warning_about_the_caller_names_the_line_of_the_script() -> None:
    with pytest.warns(UserWarning, match="this is slow") as caught:
        _hooked()
    assert _hooked.__code__.co_filename == OWN_FILE
    assert [one.filename for one in caught] == [__file__]
