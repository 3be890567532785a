import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build_report import hostile, three_recordings
from tests.few import few
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from traceadvisor.model.report import Report
from traceadvisor.model.run import TimedStep
from traceadvisor.results.redaction import redacted
from traceadvisor.text.cleaning import clean, clipped, clipped_inside

HEX = "0123456789abcdef"
MIXED = "abcdefghijABCDEFGHIJ0123456789_klmno"

SECRETS = (
    f"gldt-{MIXED}",
    f"whsec_{MIXED[:30]}",
    f"shpat_{HEX}{HEX}",
    f"SK{HEX}{HEX}",
    f"123456789:{MIXED[:35]}",
    f"pcsk_{MIXED}",
    f"AGE-SECRET-KEY-1{'ABCDEFGHJ0123456789K' * 2}",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv",
    "glpat-abcdefghij0123456789",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "sk-proj-abcdefghijklmnop0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
)
"""Of vendors whom ``test_secret_corpus.py`` does not have."""


@pytest.mark.parametrize("secret", SECRETS)
def test_a_token_is_not_shown(secret: str) -> None:
    assert clean(f"call({secret}) done") == "call([redacted]) done"


@pytest.mark.parametrize("escape", [r"\u202e", r"\x1b", r"\n"])
def test_a_token_behind_an_escape_is_not_shown(escape: str) -> None:
    assert clean(f"{escape}{SECRETS[0]}") == f"{escape}[redacted]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://hooks.slack.com/services/T000/B000/abcdefghijklmnopqrstuvwx", "https://[redacted]"),
        (
            "https://a.blob.core.windows.net/c?sv=1&sig=abc%2Bdef%2F0123%3D",
            "https://a.blob.core.windows.net/c?sv=1&sig=[redacted]",
        ),
        ("AccountKey=abc+def/0123==;Suffix=x", "AccountKey=[redacted];Suffix=x"),
        ("https://abcdef@host/x", "https://[redacted]@host/x"),
        ("redis://:pw@host:6379", "redis://[redacted]@host:6379"),
        ("ada:p@ss@host", "ada:[redacted]@host"),
        ("train.py --password pw --epochs 3", "train.py --password [redacted] --epochs 3"),
        ("train.py --hub-token abcdef12 -v", "train.py --hub-token [redacted] -v"),
        ("MYSQL_PWD=correct", "MYSQL_PWD=[redacted]"),
        ("DB_PASS=a!b", "DB_PASS=[redacted]"),
        ("password=p@ss,w0rd;1!", "password=[redacted]"),
        ("password='two words, quoted'", "password='[redacted]'"),
        ("Authorization: token abcdef12", "Authorization: token [redacted]"),
        ("Cookie: session=abcdef; theme=dark", "Cookie: [redacted]"),
        ("X-Api-Key: abcdef12", "X-Api-Key: [redacted]"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----", "[redacted]"),
        ("WANDB_API_KEY=0123abc9", "WANDB_API_KEY=[redacted]"),
        ("password: hunter2hunter2", "password: [redacted]"),
        ('{"client_secret": "abcdef12"}', '{"client_secret": "[redacted]"}'),
        ("Authorization: Bearer abcdefghijklmnop1234", "Authorization: Bearer [redacted]"),
        ("https://ada:lovelace@host/x", "https://[redacted]@host/x"),
        (f"X={'0123456789abcdef' * 2}", "X=[redacted]"),
        ("S=abcdefGHIJKL0123456789abcdefGHIJKL012345+/==", "S=[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_a_secret_is_recognised_by_its_context(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "num_workers=4",
        "cutlass_80_tensorop_s1688gemm_128x64_16x6_nt_align4",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "checkpoint=/mnt/Data/run42/checkpoints/2026-11-20/Last",
        "train.py(41): main",
        "train.py:41@main",
        "first pass: forward",
        "bypass=True passed=12",
        "def login(password: str = None)",
        "git+ssh://git@host/repository",
        "python:3.11@sha256:0123456789abcdef",
        "[basic training loop with augmentation]",
        "void attend<token>::run(int)",
        "http://host:8080/a@b",
        "größe 漢字",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://e\x07link\x1b]8;;\x07", "link"),
        ("\x9b2Jx", "x"),
        ("a\x00\x07b", "ab"),
        ("a\u202eb\u2066c\u200bd\ufeff", "abcd"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("\ud800", "\ufffd"),
    ],
)
def test_invisible_characters_are_stripped(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/src/train.py", "~/src/train.py"),
        ("/Users/ada/train.py:3", "~/train.py:3"),
        ("/root/x", "~/x"),
        ("/var/home/ada/x", "~/x"),
        ("/export/home/ada/x", "~/x"),
        ("/Users/Ada King Lovelace/x", "~/x"),
        (r"C:\Users\Ada Lovelace\x", r"~\x"),
        ("/home/ada failed in /tmp/x", "~ failed in /tmp/x"),
        (r"C:\Users\ada\x", r"~\x"),
        ("/rootless/home.py", "/rootless/home.py"),
    ],
)
def test_a_home_directory_is_a_tilde(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(alphabet=st.characters(codec=None)))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


FRAGMENTS = (
    "password", "token", "pwd", "=", ":", " ", "--", "@", "/", "://", "a", "hunter2", '"', "'", ",", ";", "?sig",
    "cookie", "Bearer", "Authorization", "[redacted]", "/home/", "ghp_0123456789abcdefghij", "\n",
)  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_cleaning_parts_of_secrets_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_can_be_written_as_utf_8(text: str) -> None:
    assert clean(text).encode().decode() == clean(text)


LONG = (
    "a=",
    "a",
    "token",
    "eyJ-",
    "-a",
    "://a:",
    "\x1b]",
    "/home/",
    "A1a_",
    "a:b@",
    "password=",
    "--key ",
    "cookie: a=",
)


@pytest.mark.parametrize("pattern", few((*LONG, "sig=", "a b/"), "traceadvisor/text"))
@pytest.mark.parametrize("length", [200_000, pytest.param(1_000_000, marks=pytest.mark.nightly("traceadvisor/text"))])
def test_long_hostile_text_is_cleaned_in_time(pattern: str, length: int) -> None:
    text = pattern * (length // len(pattern))
    started = time.process_time()

    clean(text)

    assert time.process_time() - started < length / 100_000


@pytest.mark.parametrize("build", [three_recordings, captured, captured_on_host, captured_ranks])
def test_no_string_of_a_report_is_forgotten(build: Callable[[], Report]) -> None:
    report = redacted(hostile(build()))

    assert "\x1b" not in repr(report)
    assert "ghp_" not in repr(report)


def test_paths_stay_paths() -> None:
    assert redacted(three_recordings()).recordings[2].path == Path("~/log/gpt2-ddp/rank0.pt.trace.json.gz")


def test_long_text_is_cut_at_its_end_or_in_its_middle() -> None:
    assert clipped("abcdefghij", 6) == "abcde…"
    assert clipped_inside("abcdefghij", 6) == "ab…hij"
    assert clipped("abc", 6) == clipped_inside("abc", 6) == "abc"


def test_a_timed_step_holds_no_text_to_be_redacted() -> None:
    assert {field.type for field in fields(TimedStep)} == {"int", "int | None", "StepState"}


def command(*words: str) -> tuple[str, ...]:
    """A command line as it is shown."""
    report = captured()
    run = report.recordings[0].captured
    assert run is not None
    recording = replace(report.recordings[0], captured=replace(run, command=words))
    shown = redacted(replace(report, recordings=(recording,))).recordings[0].captured
    assert shown is not None
    return shown.command


def test_a_password_that_is_an_argument_of_its_own_is_not_shown_even_if_short() -> None:
    assert command("train.py", "--db-password", "1!") == ("train.py", "--db-password", "[redacted]")


@pytest.mark.parametrize("option", ["--api-key", "--token", "--hf_token", "-password", "--aws-secret", "--API_KEY"])
def test_a_secret_that_is_an_argument_of_its_own_is_not_shown(option: str) -> None:
    assert command("train.py", option, "correct-horse", "--epochs", "1") == (
        "train.py",
        option,
        "[redacted]",
        "--epochs",
        "1",
    )


@pytest.mark.parametrize(
    "words", [("--max-tokens", "40960000"), ("--tokenizer", "bert-base"), ("--token", "--verbose")]
)
def test_other_arguments_stay_as_they_are(words: tuple[str, str]) -> None:
    assert command(*words) == words
