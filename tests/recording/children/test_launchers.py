"""Any command that starts the training: launchers, shells, child processes of a script."""

import os
import signal
import sys
import zipfile
from pathlib import Path
from textwrap import indent

import pytest

from tests.children import DEVNULL, PIPE, Done, added, run, started
from tests.recording.running import CAPTURE, PYTHON, capture, manifest, noticed, settings, steps, traces
from traceadvisor.bundle.layout import Ending
from traceadvisor.model.location import Role
from traceadvisor.recording.children.plan import HOOK

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")

TRAIN = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, targets in DataLoader(TensorDataset(torch.randn(120, 8), torch.randn(120, 1)), batch_size=4):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(sys.argv[1:], loss.item())
if "--endless" in sys.argv:
    print("ready", flush=True)
    time.sleep(60)
if "--fail" in sys.argv:
    raise ValueError("as it was")
"""

RANKS = """
import sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def train(rank=None, address=None):
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 8), torch.randn(60, 1))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in DataLoader(data, batch_size=2):
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    del model, optimizer  # DDP may hang when it outlives its process group
    dist.destroy_process_group()

if __name__ == "__main__":
    if len(sys.argv) > 1:
        mp.start_processes(train, args=(f"file://{sys.argv[2]}",), nprocs=2, start_method=sys.argv[1])
    else:
        train()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ranks.py").write_text(RANKS)
    return tmp_path


def bundles(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


def two_ranks(folder: Path, done: Done) -> None:
    """Both ranks of one job are in one bundle."""
    assert done.returncode == 0, done.stderr
    (bundle,) = bundles(folder)
    assert manifest(bundle).world_size == 2
    assert [(one.rank, one.ending, one.steps) for one in manifest(bundle).endings] == [
        (0, Ending.COMPLETED, 30),
        (1, Ending.COMPLETED, 30),
    ]
    first, second = ([step.state for step in steps(bundle, rank)] for rank in (0, 1))
    assert first == second, "both ranks record the same steps"
    assert len(traces(bundle)) == 2
    assert [path.name for path in bundle.glob("telemetry.*")] == [
        path.name for path in bundle.glob("telemetry.*.jsonl")
    ]
    assert len(list(bundle.glob("telemetry.*"))) == 1
    assert done.stderr.count("traceadvisor: report ready: ") == 1
    assert done.stderr.count("traceadvisor: ") == 2
    assert "recorded 8 of 30 steps of rank 0 in runs" in done.stderr


@NIGHTLY
def test_a_command_gives_what_it_gives_without_a_capture(folder: Path) -> None:
    command = (*PYTHON, "-u", "train.py", "one two", "--fail")
    plain = run(*command, cwd=folder)
    captured = capture("-o", "bundle", "--", *command, cwd=folder)
    assert (captured.stdout, captured.returncode) == (plain.stdout, 1)
    assert noticed(captured.stderr) == plain.stderr
    assert "traceadvisor: recorded 8 of 30 steps in bundle." in captured.stderr
    written = manifest(folder / "bundle")
    assert written.command == command
    assert written.endings[0].message == "ValueError: as it was"
    assert len(steps(folder / "bundle")) == 30
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@NIGHTLY
def test_a_shell_script_that_trains_twice_makes_two_bundles_and_leaves_a_foreign_one_alone(folder: Path) -> None:
    (folder / "run.sh").write_text(
        f"set -e\n{sys.executable} train.py a\n{sys.executable} -c pass\n{sys.executable} train.py b\n"
    )
    (folder / "bundle-2").mkdir()
    (folder / "bundle-2" / "manifest.json").write_text('{"name": "my web app"}')
    done = capture("-o", "bundle", "bash", "run.sh", cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("bundle", "bundle-3"):
        assert f"recorded 8 of 30 steps in {name}." in done.stderr
        assert len(steps(folder / name)) == 30
    assert [path.name for path in (folder / "bundle-2").iterdir()] == ["manifest.json"]
    assert not (folder / "bundle-4").exists()


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("form", ["folder", pytest.param("archive", marks=NIGHTLY)])
def test_a_folder_with_a_main_module_runs_as_python_runs_it(folder: Path, form: str) -> None:
    source = "import sys, helper\nprint(sys.path[0], sys.argv, __name__, __package__, __file__)\n"
    (folder / "program").mkdir()
    (folder / "program" / "__main__.py").write_text(f"{source}if 'train' in sys.argv:\n{indent(TRAIN, '    ')}")
    (folder / "program" / "helper.py").touch()
    target = "program"
    if form == "archive":
        target = "program.pyz"
        with zipfile.ZipFile(folder / target, "w") as archive:
            archive.write(folder / "program" / "__main__.py", "__main__.py")
            archive.write(folder / "program" / "helper.py", "helper.py")
    plain = run(*PYTHON, target, "argument", cwd=folder)
    captured = capture("-o", "bundle", target, "argument", "train", cwd=folder)
    assert captured.stdout.splitlines()[0] == plain.stdout.strip().replace("'argument'", "'argument', 'train'")
    assert len(steps(folder / "bundle")) == 30


@pytest.mark.nightly("traceadvisor/recording")
def test_what_cannot_be_run_is_named(folder: Path) -> None:
    (folder / "empty").mkdir()
    for target, message in (
        ("no-such-command", "Cannot run no-such-command: no such file or command."),
        ("missing.py", "Cannot run missing.py: No such file or directory."),
        ("empty", "Cannot run empty: it has no __main__.py."),
    ):
        done = capture(target, cwd=folder)
        assert done.returncode == 2
        assert message in done.stderr
    assert not (folder / "runs").exists()


@NIGHTLY
@pytest.mark.parametrize(
    ("source", "told"),
    [("import torch; torch.optim.SGD([torch.ones(1)], lr=1.0)", 3), ("raise SystemExit(4)", 4)],
    ids=["an optimizer that never steps", "another exit code"],
)
def test_a_command_without_training_says_so_and_leaves_nothing(folder: Path, source: str, told: int) -> None:
    done = capture("--", *PYTHON, "-c", source, cwd=folder)
    assert done.returncode == told
    assert "no Python process of the command stepped an optimizer of torch" in done.stderr
    assert not (folder / "runs").exists()


def test_the_users_own_sitecustomize_runs(folder: Path) -> None:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("print('own', __name__, __file__)\n")
    env = added(PYTHONPATH=str(folder / "site"))
    command = (*PYTHON, "-c", "import os, sys; print(sys.path, sys.modules['sitecustomize'].__file__)")
    plain = run(*command, cwd=folder, env=env)
    captured = run(*CAPTURE, "--", *command, cwd=folder, env=env)
    assert plain.stdout.startswith("own sitecustomize")
    own, *others = plain.stdout.splitlines()
    both = sorted([own, own, *others])  # in the program that captures and in the captured one, in either order
    assert sorted(captured.stdout.splitlines()) == both


@NIGHTLY
def test_a_python_that_cannot_import_the_capture_runs_unharmed_and_is_named(folder: Path) -> None:
    (folder / "site" / "traceadvisor").mkdir(parents=True)
    (folder / "site" / "traceadvisor" / "__init__.py").write_text("raise ImportError('an older version')")
    command = ("env", f"PYTHONPATH={HOOK}:{folder / 'site'}", *PYTHON, "train.py")
    done = capture("--", *command, cwd=folder)
    assert done.stdout.startswith("[]")
    assert done.returncode == 3
    assert f"a process was not captured: {sys.executable}: an older version." in done.stderr


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("form", [(), pytest.param(("--", *PYTHON), marks=NIGHTLY)], ids=["script", "command"])
def test_a_look_at_torch_before_its_import_loses_nothing(folder: Path, form: tuple[str, ...]) -> None:
    (folder / "look.py").write_text(f"import importlib.util\nimportlib.util.find_spec('torch')\n{TRAIN}")
    assert "recorded 8 of 30 steps" in capture(*form, "look.py", cwd=folder).stderr


def test_a_model_and_a_loader_that_are_made_before_the_optimizer_are_known(folder: Path) -> None:
    made = "DataLoader(TensorDataset(torch.randn(120, 8), torch.randn(120, 1)), batch_size=4)"
    script = TRAIN.replace(made, "loader").replace("optimizer =", f"loader = {made}\noptimizer =")
    (folder / "train.py").write_text(script)
    capture("--", *PYTHON, "train.py", cwd=folder)
    (bundle,) = bundles(folder)
    found = {
        one.role: script.splitlines()[one.place.line - 1] for one in settings(bundle).constructed if one.place.line
    }
    assert {role: line.partition(" =")[0] for role, line in found.items()} == {
        Role.LOADER: "loader",
        Role.MODEL: "model",
        Role.OPTIMIZER: "optimizer",
    }


@NIGHTLY
def test_a_long_command_leaves_room_for_the_scripts_own_children(folder: Path) -> None:
    (folder / "long.py").write_text("import subprocess; subprocess.run(['true'], check=True); print('done')")
    done = capture("-o", "bundle", "long.py", *("shard" * 20 for _ in range(4000)), cwd=folder)
    assert done.stdout == "done\n"


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=NIGHTLY) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_to_the_command_reaches_the_training_and_the_recording_stays(folder: Path, number: int) -> None:
    command = (*CAPTURE, "-o", "bundle", "--", *PYTHON, "-u", "train.py", "--endless")
    with started(*command, cwd=folder, stdout=PIPE, stderr=PIPE, new_session=True) as process:
        assert process.stdout
        assert process.stderr
        while b"ready" not in process.stdout.readline():
            pass
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        code, said = process.wait(timeout=60), process.stderr.read().decode()
    assert code in ((1, -number) if number == signal.SIGINT else (128 + number,)), (
        "Python exits with 1 if torch trained"
    )
    assert "in bundle." in said
    assert len(steps(folder / "bundle")) in (29, 30)
    assert len(traces(folder / "bundle")) == 1


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.slow
def test_sigint_to_the_capture_alone_ends_the_command(folder: Path) -> None:
    """A terminal sends it to the whole group; a program that runs the capture does not."""
    command = (*CAPTURE, "-o", "bundle", "--", *PYTHON, "-u", "train.py", "--endless")
    with started(*command, cwd=folder, stdout=PIPE, stderr=PIPE, new_session=True) as process:
        assert process.stdout
        while b"ready" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) in (1, -signal.SIGINT)
    assert manifest(folder / "bundle").endings[0].ending is Ending.INTERRUPTED


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("threads", [0, 1])
def test_a_signal_before_the_command_runs_reaches_it(threads: int) -> None:
    source = (
        "import os, signal, subprocess, sys, threading, time\n"
        "from traceadvisor.recording.command import SignalsForwarded\n"
        f"for _ in range({threads}): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "with SignalsForwarded() as signals:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    child = subprocess.Popen(['sleep', '60'], preexec_fn=signals.restore)\n"
        "    print(signals.wait(child))\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
    )
    done = run(*PYTHON, "-c", source, check=True)
    assert done.stdout == f"{-signal.SIGTERM}\nTrue\n"


def test_an_interrupt_that_the_command_has_already_is_not_sent_again(folder: Path) -> None:
    """The command counts interrupts, and ends by itself after the first."""
    source = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "print('seen', len(seen), flush=True)\n"
    )
    command = (*CAPTURE, "--", *PYTHON, "-c", source)
    with started(*command, cwd=folder, stdout=PIPE, stderr=DEVNULL, new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == b"seen 1\n"
        assert process.wait(timeout=60) == 3, "no training"


@NIGHTLY
def test_a_command_that_handles_an_interrupt_has_all_the_time_that_it_needs(folder: Path) -> None:
    """A program sends the interrupt to the whole group, once."""
    source = (
        "import sys, time\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1.5)\n"
        "    sys.exit(1)\n"
    )
    command = (*CAPTURE, "--", *PYTHON, "-c", source)
    with started(*command, cwd=folder, stdout=PIPE, stderr=DEVNULL, new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 1


@NIGHTLY
def test_a_script_that_sigterm_ends_gets_one_line(folder: Path) -> None:
    command = (*CAPTURE, "-o", "bundle", "train.py", "--endless")
    with started(*command, cwd=folder, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout
        assert process.stderr
        while b"ready" not in process.stdout.readline():
            pass
        process.terminate()
        said = process.stderr.read().decode().splitlines()
        process.wait(timeout=60)
    assert len([line for line in said if "SIGTERM" in line]) == 1, said


@NIGHTLY
def test_the_exit_code_of_the_command_is_that_of_its_training_and_a_second_capture_is_refused(folder: Path) -> None:
    (folder / "exits.py").write_text(f"{TRAIN}\nsys.exit(5)")
    command = ("-o", "bundle", "--", *PYTHON, "exits.py")
    assert capture(*command, cwd=folder).returncode == 5
    (ending,) = manifest(folder / "bundle").endings
    assert (ending.ending, ending.exit_code) == (Ending.EXIT, 5)
    again = capture(*command, cwd=folder)
    assert again.returncode == 2
    assert "bundle already holds a capture" in again.stderr
    assert len(traces(folder / "bundle")) == 1


@NIGHTLY
def test_a_forked_child_that_ends_changes_nothing_in_the_bundle(folder: Path) -> None:
    """It inherits what the training process does at its end, and sys.exit(0) completes the training."""
    fork = "import atexit, os\nif not os.fork(): atexit._run_exitfuncs(), os._exit(9)\nos.wait()\nsys.exit(0)\n"
    (folder / "forks.py").write_text(TRAIN + fork)
    assert capture("-o", "bundle", "--", *PYTHON, "forks.py", cwd=folder).returncode == 0
    (ending,) = manifest(folder / "bundle").endings
    assert (ending.ending, ending.steps) == (Ending.COMPLETED, 30)


@pytest.mark.nightly("traceadvisor/recording")
def test_a_restarted_job_makes_a_bundle_of_its_own(folder: Path) -> None:
    """The same folder and the same job: the launcher counts its attempts."""
    for attempt in range(2):
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": str(attempt)}
        done = capture("-o", "bundle", "train.py", cwd=folder, env=added(**ranks))
        assert done.returncode == 0, done.stderr
    assert len(steps(folder / "bundle")) == len(steps(folder / "bundle-restart1")) == 30
    assert manifest(folder / "bundle").job != manifest(folder / "bundle-restart1").job


@pytest.mark.nightly("traceadvisor/recording")
def test_a_rank_that_trains_again_in_one_job_does_not_overwrite_its_first_training(folder: Path) -> None:
    """Such as two scripts one after the other, each under the same launcher."""
    env = added(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0")
    for part in "ab":  # both have one parent, which is the launcher
        done = capture("-o", "bundle", "train.py", part, cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
    assert [manifest(folder / name).command[1] for name in ("bundle", "bundle-2")] == ["a", "b"]


@pytest.mark.slow
def test_torchrun_is_captured(folder: Path) -> None:
    two_ranks(
        folder, run(*CAPTURE, "--", *PYTHON, "-m", *TORCHRUN, "ranks.py", cwd=folder, env=added(OMP_NUM_THREADS="1"))
    )


@NIGHTLY
def test_torchrun_as_a_module_is_captured(folder: Path) -> None:
    two_ranks(folder, run(*CAPTURE, "-m", *TORCHRUN, "ranks.py", cwd=folder, env=added(OMP_NUM_THREADS="1")))


@NIGHTLY
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_a_script_starts_are_captured(folder: Path, method: str) -> None:
    arguments = ("ranks.py", method, str(folder / "meeting"))
    two_ranks(folder, run(*CAPTURE, *arguments, cwd=folder, env=added(OMP_NUM_THREADS="1")))
