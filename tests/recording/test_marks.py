"""``traceadvisor.step()`` marks steps for the capture that a process is in."""

from pathlib import Path

import pytest

from tests.recording.running import PYTHON, capture, steps, traces
from traceadvisor.model.run import StepState
from traceadvisor.recording.marking import _Marks

INFER = """
import torch, traceadvisor
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64).eval()
with torch.no_grad():
    for number in range(40):
        model(torch.ones(8, 64))
        traceadvisor.step()
print("done")
"""


@pytest.mark.parametrize("command", [("infer.py",), (*PYTHON, "infer.py")], ids=["a script", "a child process"])
def test_inference_without_a_loader_is_recorded_where_the_script_marks_its_steps(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "infer.py").write_text(INFER)
    done = capture("-o", "bundle", "--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    found = steps(tmp_path / "bundle")
    assert 38 <= len(found) <= 40  # the first marks the start
    assert sum(one.state is StepState.RECORDED for one in found) == 8
    assert len(traces(tmp_path / "bundle")) == 1


def test_a_loop_that_marks_nothing_says_how_to(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(INFER.replace("        traceadvisor.step()\n", ""))
    done = capture("--", *PYTHON, "infer.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "call traceadvisor.step() at the end of each iteration" in done.stderr


def test_without_a_capture_a_mark_has_no_effect() -> None:
    marks = _Marks()
    marks.mark()
    assert marks.heard_by == []


def test_the_latest_capture_hears_a_mark_and_a_process_that_a_command_started_begins_with_one() -> None:
    marks, heard = _Marks(), []

    def begin() -> None:
        marks.heard_by.append(lambda: heard.append("outer"))

    marks.heard_by.append(lambda: heard.append("first"))
    marks.begin = begin
    marks.mark()
    marks.heard_by.pop()
    marks.mark()
    marks.heard_by.append(lambda: heard.append("inner"))
    marks.mark()
    marks.heard_by.pop()
    marks.mark()
    assert heard == ["first", "outer", "inner", "outer"]
