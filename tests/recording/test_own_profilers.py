"""Profilers of Python code that a script starts give what they give without a capture."""

import gzip
import sys
from pathlib import Path

import pytest

from tests.children import run
from tests.recording.running import capture, manifest, noticed, settings, traces

SCHEDULE = ("--skip-first", "2", "--wait", "2", "--warmup", "2")
"""The recording begins at step 7."""

TRAIN = """
import cProfile, sys, threading, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
calls = 0

def work(function=None):
    pass

def mine(frame, event, _):
    global calls
    calls += event == "call" and frame.f_code is work.__code__

def counted(profile):
    profile.create_stats()
    return sum(row[0] for (_, _, name), row in profile.stats.items() if name == "work")

def train(steps):
    for batch in torch.utils.data.DataLoader(torch.ones(steps, 4)):
        model(batch).sum().backward()
        work()
        optimizer.step()

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
"""

CPROFILE = """
train({before})
profile = cProfile.Profile()
profile.enable()
train({within})
profile.disable()
train(40)
print(counted(profile), sys.getprofile())
"""

SETPROFILE = """
train({before})
found = sys.getprofile()
sys.setprofile(mine)
train({within})
print(calls, sys.getprofile() is mine)
sys.setprofile(found)
train(40)
print(calls, sys.getprofile())
"""

TOGGLED = """
profile = cProfile.Profile()
for batch in torch.utils.data.DataLoader(torch.ones(60, 4)):
    with profile:
        model(batch).sum().backward()
    profile.enable()
    work()
    profile.disable()
    optimizer.step()
print(counted(profile))
"""

THREAD = """
begin, end = threading.Event(), threading.Event()
def profiled():
    begin.wait()
    sys.setprofile(mine)
    work()
    end.wait()
    work()
    print(calls, sys.getprofile() is mine)
thread = threading.Thread(target=profiled)
thread.start()
train(10)
begin.set()
train(40)
end.set()
thread.join()
"""

BEFORE_IN_THREAD = THREAD.replace("train(10)\n", "").replace("begin.set()", "begin.set()\nthread.join(0.1)")

JOINED = """
def profiled():
    sys.setprofile(mine)
    work()
    print(calls)
train(10)
in_thread(profiled)
train(40)
"""

SCRIPTS = {
    "cprofile-before": (CPROFILE.format(before=0, within=30), "30 None\n"),
    "cprofile-in-warm-up": (CPROFILE.format(before=5, within=30), "30 None\n"),
    "cprofile-within": (CPROFILE.format(before=10, within=30), "30 None\n"),
    "cprofile-each-step": (TOGGLED, "60\n"),
    "function-before": (SETPROFILE.format(before=0, within=10), "10 True\n10 None\n"),
    "function-in-warm-up": (SETPROFILE.format(before=5, within=30), "30 True\n30 None\n"),
    "function-within": (SETPROFILE.format(before=10, within=30), "30 True\n30 None\n"),
    "thread-before": (BEFORE_IN_THREAD, "2 True\n"),
    "thread-within": (THREAD, "2 True\n"),
    "joined-thread-within": (JOINED, "1\n"),
}


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_profile_of_the_script_is_whole(name: str, tmp_path: Path) -> None:
    script, output = SCRIPTS[name]
    (tmp_path / "script.py").write_text(TRAIN + script)
    done = capture(*SCHEDULE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, noticed(done.stderr)) == (0, output, "")
    assert traces(tmp_path / "bundle")
    codes = {note.code for note in manifest(tmp_path / "bundle").notes}
    sets_function = "cprofile" not in name or sys.version_info < (3, 12)
    assert ("own-profile" in codes) == sets_function
    assert ("window-cut" in codes) == (sets_function and "within" in name)


LIBRARY = """
def calls(frame, event, argument):
    return calls
"""

WATCHED = {
    "cProfile": (
        "profile = cProfile.Profile()\nprofile.enable()\ntrain(30)\nprofile.disable()\ntrain(10)",
        "cProfile",
        0.75,
    ),
    "own function": ("sys.setprofile(mine)\ntrain(30)\nsys.setprofile(None)\ntrain(10)", "sys.setprofile", 0.75),
    "own tracer": ("sys.settrace(lambda *_: None)\ntrain(30)\nsys.settrace(None)\ntrain(10)", "sys.settrace", 0.75),
    "tracer of a library": ("import library\nsys.settrace(library.calls)\ntrain(40)", "library", 1.0),
    "beside the optimizer": (TOGGLED, "cProfile", 1.0),
    "none": ("train(40)", None, 0.0),
}


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("name", WATCHED)
def test_steps_whose_python_code_is_watched_are_counted(name: str, tmp_path: Path) -> None:
    script, tool, share = WATCHED[name]
    (tmp_path / "script.py").write_text(TRAIN + script)
    (tmp_path / "library.py").write_text(LIBRARY)
    done = capture(*SCHEDULE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert done.returncode == 0
    found = settings(tmp_path / "bundle")
    assert found.python_profiler == tool
    has_times_of_all_threads = tool == "cProfile" and sys.version_info >= (3, 12)
    assert ("takes the calls of all threads" in done.stderr) == has_times_of_all_threads
    # What begins while several steps are noted together is seen after them.
    assert found.python_profiler_share == pytest.approx(share, abs=0.1)
    assert bool(found.python_profiler_recorded) == (tool is not None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no sys.monitoring")
def test_a_script_finds_the_ids_of_tools_free_while_stacks_are_recorded(tmp_path: Path) -> None:
    """torch takes that of profilers on Python 3.12.0 to 3.12.4."""
    seen = "train(10)\nids = [sys.monitoring.get_tool(one) for one in range(3)]\ntrain(40)\n"
    ended = "ids += [sys.monitoring.get_tool(one) for one in range(6)]\nprint(set(ids))"
    (tmp_path / "script.py").write_text(TRAIN + seen + ended)
    done = capture(*SCHEDULE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "{None}\n")
    (trace,) = traces(tmp_path / "bundle")
    assert b'"python_function"' in gzip.decompress(trace.read_bytes())


LIGHTNING = """
import lightning, torch
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, profiler="advanced", **off)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(160, 4), batch_size=4))
print("steps", trainer.global_step)
"""


@pytest.mark.nightly("traceadvisor/recording/loop")
@pytest.mark.usefixtures("lightning")
def test_the_advanced_profiler_of_lightning_profiles_what_it_does_without_a_capture(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LIGHTNING)
    alone = run(sys.executable, "script.py", cwd=tmp_path)
    done = capture(*SCHEDULE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert (alone.returncode, done.returncode) == (0, 0), done.stderr
    assert "steps 40" in done.stdout
    assert traces(tmp_path / "bundle")
    both = [(one.stdout + one.stderr).splitlines() for one in (alone, done)]
    profiled = [sorted(line for line in lines if "Profile stats for" in line) for lines in both]
    assert profiled[0] == profiled[1] != []
