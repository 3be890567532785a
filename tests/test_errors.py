import pickle

import pytest

from traceadvisor.errors import ConfigError, InputError, OutputError, TraceAdvisorError, UsageError


@pytest.mark.parametrize(
    "error",
    [
        InputError("a.json", "is empty", expected="a recording", remedy="Record again."),
        OutputError("a.html", "is in the way", remedy="Move it."),
        ConfigError("pyproject.toml", "there is 'nmae'", expected="one of: name", nearest="name"),
        UsageError("No path given."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling(error: TraceAdvisorError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301  # its own
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb", r"a\u202eb"),
        ("a\udcffb", r"a\udcffb"),
        ("\u2028", r"\u2028"),
        ("größe 漢字 😀", "größe 漢字 😀"),
    ],
)
def test_a_message_escapes_control_characters(name: str, shown: str) -> None:
    error = InputError(f"{name}.json", "is empty", expected="a recording", remedy="Record again.")
    assert str(error) == f"{shown}.json: is empty. Expected a recording. Record again."


def test_a_message_holds_no_secret_and_no_home_directory() -> None:
    token = f"ghp_{'aB3' * 12}"
    error = InputError(
        f"/home/ada/{token}.json", f"invalid value '{token}'", expected="a word", remedy="See /home/ada/x."
    )
    assert str(error) == "~/[redacted].json: invalid value '[redacted]'. Expected a word. See ~/x."
