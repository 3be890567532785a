"""No file of an output folder holds a secret, a home directory or a control character, whoever put it there."""

import gzip
import json
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.children import Done, added, run
from tests.shared import CHECKOUT
from traceadvisor.experiments.journal import Journal, Note, read
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.text.cleaning import clean, withholding
from traceadvisor.text.secrets import secret_words

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments", "traceadvisor/text")

MARK = "zqx"
"""Part of each planted secret, and of the name of the home directory."""

TOKEN = f"hf_{MARK}ABCDEFGHIJ0123456789abcdefghijk"
ARGUMENTS = (
    *("--password", f"{MARK}pass1"),
    *("--api-key", f"{MARK}word"),
    *(f"--db=postgres://bob:{MARK}/pw@host/db", f"--url=https://hub/x?token={TOKEN}"),
    *("--data", "\x1b[31mred\x1b[0m"),
    *("--note", f"['--api-key', '{MARK}listed']"),
)
PRINTED = f"printed {TOKEN}"
"""Stays in ``output.log``: what a script prints is its own."""

TRAIN = f"""
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

API_KEY = ""
HOME = os.path.expanduser("~")
SECRETS = (
    f"GET https://bob:{MARK}pw@hub/x?token={TOKEN} with {MARK}word and {MARK}pass1 in {{HOME}}/data \\x1b[31mred, "
    f"password%3D{MARK}pc {{{{'username': 'bob', 'key': '{MARK}kaggle'}}}} env {{os.environ['WANDB_API_KEY']}}"
)
print({PRINTED!r}, file=sys.stderr, flush=True)

class Data(TensorDataset):
    def __getitem__(self, place):
        if API_KEY.endswith("fails"):
            raise OSError(SECRETS)
        return super().__getitem__(place)

class Schedule(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        if self.last_epoch > 40:
            raise ValueError(SECRETS)
        return [0.01]

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = Schedule(optimizer)
data = Data(torch.randn(64, 4), torch.randn(64, 1))
open("file-{TOKEN}\\x1b[31m.txt", "w").close()
for epoch in range(int(os.environ.get("EPOCHS", "3"))):
    for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
        loss = (model(inputs) - targets).square().mean()
        with torch.profiler.record_function(f"load {{HOME}}/data"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    torch.save(model.state_dict(), "model-{TOKEN}.pt")
raise OSError(SECRETS)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home directory of a user, with a script in it."""
    home = tmp_path / "home" / f"{MARK}bob"
    work = home / "work"
    work.mkdir(parents=True)
    (work / f"train-{TOKEN}.py").write_text(TRAIN)
    return home


def _run(home: Path, *words: str, **environment: str) -> Done:
    secrets = {"HOME": str(home), "WANDB_API_KEY": f"{MARK}0env1234", "HF_TOKEN": TOKEN}
    work = home / "work"
    return run(sys.executable, "-m", "traceadvisor", *words, cwd=work, env=added(**secrets, **environment), limit_s=300)


def _script(home: Path) -> tuple[str, ...]:
    return ("--", str(home / "work" / f"train-{TOKEN}.py"), *ARGUMENTS)


def _texts(path: Path) -> Iterator[bytes]:
    """The content of a file, and what is packed in it."""
    content = path.read_bytes()
    yield content
    if content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content)
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL):
        try:
            yield zlib.decompressobj().decompress(stream)
        except zlib.error:
            continue


def _leaks(folder: Path, ignored: tuple[str, ...]) -> list[str]:
    """Places of planted texts, and of control characters, in the names and contents of files."""
    found = []
    files = [path for path in folder.rglob("*") if not {*path.relative_to(folder).parts} & {*ignored}]
    assert any(path.is_file() for path in files)
    forms = (MARK.encode(), b"\x1b", b"\\u001b", b"&#27;", b"[31m")
    for path in files:
        if MARK in str(path.relative_to(folder)):
            found.append(f"name of {path}")
        for content in _texts(path) if path.is_file() else ():
            for form in forms[:1] if path.suffix == ".pdf" else forms:
                places = [match.start() for match in re.finditer(re.escape(form), content)]
                found += [f"{path.name}: {content[max(place - 100, 0) : place + 60]!r}" for place in places]
    return found


def _assert_sealed(folder: Path, done: Done) -> None:
    assert folder.is_dir(), done.stderr
    assert _leaks(folder, ("output.log", "saved-by-the-script")) == []
    assert MARK not in done.stdout
    assert MARK not in done.stderr
    logs = list(folder.rglob("output.log"))
    assert any(PRINTED in log.read_text(errors="replace") for log in logs)  # the last process may be ended at once
    for log in logs:
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


@NIGHTLY
def test_a_sweep_in_one_process_keeps_secrets_to_itself(home: Path) -> None:
    keys = f"set:__main__.API_KEY={MARK}one,{MARK}fails,{home}/x"
    options = ("--set", keys, "--minutes", "0.6", "-o", "out", "--format", "html,md,pdf")
    done = _run(home, "sweep", *options, *_script(home), EPOCHS="4000")
    _assert_sealed(home / "work" / "out", done)
    result = read_experiment(home / "work" / "out")
    arms = {arm.name: arm for section in result.sections for arm in section.arms}
    assert set(arms) == {
        "__main__.API_KEY=[redacted]",
        "__main__.API_KEY=[redacted]-2",
        "__main__.API_KEY=[redacted]-3",
    }
    assert "OSError: GET https://[redacted]@hub" in str(arms["__main__.API_KEY=[redacted]-2"].problem)
    assert arms["__main__.API_KEY=[redacted]"].measured


@NIGHTLY
def test_a_sweep_in_several_processes_keeps_secrets_to_itself(home: Path) -> None:
    options = ("--processes", "--set", f"env:HF_TOKEN={MARK}one,{MARK}two", "--minutes", "0.5", "-o", "out")
    done = _run(home, "sweep", *options, *_script(home), EPOCHS="4000")
    _assert_sealed(home / "work" / "out", done)
    journal = (home / "work" / "out" / "journal.jsonl").read_text()
    assert "HF_TOKEN=[redacted]" in journal


@NIGHTLY
def test_a_script_that_fails_at_once_keeps_secrets_to_itself(home: Path) -> None:
    done = _run(home, "sweep", "--workers", "0,1", "--minutes", "0.5", *_script(home), EPOCHS="0")
    (folder,) = (home / "work" / "runs").iterdir()
    _assert_sealed(folder, done)
    assert "The script failed: OSError: GET https://[redacted]@hub" in str(read_experiment(folder).problem)


@NIGHTLY
def test_capture_report_and_try_keep_secrets_to_themselves(home: Path) -> None:
    work = home / "work"
    captured = _run(home, "capture", "-o", "captured", *_script(home))
    traces = tuple(path.name for path in (work / "captured").glob("*.pt.trace.json.gz"))
    assert len(traces) == 1, captured.stderr
    assert _leaks(work / "captured", traces) == []
    manifest = json.loads((work / "captured" / "manifest.json").read_text())
    assert manifest["endings"][0]["message"].startswith("OSError: GET https://[redacted]@hub")
    names = "html,md,json,pdf,sarif,gitlab"
    reported = _run(home, "report", "captured", "-o", "report", "--format", names)
    assert reported.returncode == 0, reported.stderr
    assert _leaks(work / "report", ()) == []
    assert MARK not in reported.stdout + reported.stderr
    sample = CHECKOUT / "sample_traces" / "loader-bound"
    assert _run(home, "report", str(sample), "-o", "proposal", "--format", "json").returncode == 0
    proposal = json.loads((work / "proposal" / "report.json").read_text())
    assert proposal["findings"]
    for row in proposal["findings"]:
        finding = row["finding"]
        finding["fix"]["change"] = f"DataLoader(..., num_workers=1)  # {TOKEN} in {home}"
        finding["fix"]["settings"] = {"num_workers": 1}
        finding["rule"]["title"] = f"Hidden in {home} --password {MARK}"
    (work / "other-report.json").write_text(json.dumps(proposal))
    words = ("try", "other-report.json", "--minutes", "0.5", "-o", "tried")
    _assert_sealed(work / "tried", _run(home, *words, *_script(home), EPOCHS="4000"))
    assert read_experiment(work / "tried").ledger


def test_a_journal_holds_clean_texts_in_keys_and_values(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(Note(f"--password {MARK} \x1b[31m and \udcff"))
    assert (
        read(tmp_path / "journal.jsonl")
        == journal.rows
        == [Note("--password [redacted]  and \N{REPLACEMENT CHARACTER}")]
    )


def test_a_secret_of_the_command_line_is_redacted_wherever_it_is_repeated() -> None:
    words = (
        "train.py",
        "--password",
        "hunter22",
        "--db=postgres://bob:swordfish@host",
        "--token",
        "abc",
        "--epochs",
        "3",
    )
    assert secret_words(words, {}) == {"hunter22", "bob:swordfish", "abc"}
    with withholding(
        secret_words(words, {"HF_TOKEN": "abcdefg1", "TOKEN_KIND": "default", "SECRETS": "/run/secrets1"})
    ):
        assert (
            clean("login with hunter22 and abcdefg1 failed: default")
            == "login with [redacted] and [redacted] failed: default"
        )
        assert clean("abc /run/secrets1") == "abc /run/secrets1"
    assert clean("hunter22") == "hunter22"
