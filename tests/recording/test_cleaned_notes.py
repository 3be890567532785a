"""Texts of scripts and libraries reach the manifest and the terminal without secrets or escape sequences."""

from pathlib import Path

import pytest

from tests.recording.running import capture, manifest
from traceadvisor.bundle.layout import Ending
from traceadvisor.recording import doctor
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.session import LONGEST_MESSAGE, CaptureSession
from traceadvisor.recording.telemetry.sampler import TelemetrySampler
from traceadvisor.system.check import Check

HOSTILE = "\x1b[31m\x00login hf_abcdefghijklmnopqrstuvwxyzABCDEF in /home/ada/src"
CLEANED = "login [redacted] in ~/src"


def session(folder: Path) -> CaptureSession:
    launch = Launch(rank=0, world_size=1, local_rank=0, started_ns=1, host="host", restart=0)
    return CaptureSession(CaptureOptions(folder=folder), launch, ("train.py",), folder)


def test_the_last_error_of_a_script_is_cleaned(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"raise ValueError({HOSTILE!r})")
    done = capture("-o", "bundle", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "hf_abcdef" in done.stderr, "the script's own output stays as it is"
    assert manifest(tmp_path / "bundle").endings[0].message == f"ValueError: {CLEANED}"


def test_a_secret_at_the_cut_of_a_long_error_is_redacted_whole(tmp_path: Path) -> None:
    shown = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    one = session(tmp_path / "bundle")
    one.finish(Ending.EXCEPTION, 1, "x" * (LONGEST_MESSAGE - 20) + " " + shown + " " + "y" * 5000)
    message = manifest(tmp_path / "bundle").endings[0].message
    assert message is not None
    assert len(message) == LONGEST_MESSAGE
    assert "ghp" not in message


def test_notes_that_quote_errors_are_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TelemetrySampler) -> None:
        self._path.touch()
        self.error = RuntimeError(HOSTILE)

    monkeypatch.setattr(TelemetrySampler, "start", fail)
    one = session(tmp_path / "bundle")
    one.start()
    captured = one.finish(Ending.COMPLETED, 0)
    message = f"Sampling the machine ended early: {CLEANED}"
    assert message in [note.message for note in captured.notes]
    assert message in [note.message for note in manifest(tmp_path / "bundle").notes]


def test_a_failure_to_write_is_cleaned(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    captured = session(tmp_path / "file" / "\x1b[31mbundle").finish(Ending.COMPLETED, 0)
    assert captured.problem is not None
    assert captured.problem.isprintable()


def test_doctor_cleans_what_libraries_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> Check:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(doctor, "_psutil", refuse)
    found = {check.subject: check.found for check in doctor.capture_checks(tmp_path)}
    assert found["psutil"] == f"cannot be used: RuntimeError: {CLEANED}"


SECRET_ARGUMENTS = (
    "--db-password",
    "pw",
    "--hub-token=abcdef123456",
    "--data",
    "s3://key:word@bucket",
    "--epochs",
    "3",
)


def test_secrets_on_the_command_line_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; print(sys.argv[1:])")
    done = capture("-o", "bundle", "script.py", *SECRET_ARGUMENTS, cwd=tmp_path)
    written = manifest(tmp_path / "bundle")
    assert str(list(SECRET_ARGUMENTS)) in done.stdout, "the script gets its arguments"
    assert written.command == (
        "script.py",
        "--db-password",
        "[redacted]",
        "--hub-token=[redacted]",
        "--data",
        "s3://[redacted]@bucket",
        "--epochs",
        "3",
    )
    (note,) = (note for note in written.notes if note.code == "arguments-redacted")
    assert note.message.startswith("3 of the command's arguments looked like secrets")
    assert not note.degrades


@pytest.mark.nightly("traceadvisor/recording")
def test_the_user_can_keep_all_arguments(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("pass")
    capture("-o", "bundle", "--keep-arguments", "script.py", *SECRET_ARGUMENTS, cwd=tmp_path)
    assert manifest(tmp_path / "bundle").command == ("script.py", *SECRET_ARGUMENTS)
