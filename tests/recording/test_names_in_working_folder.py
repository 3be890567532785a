"""Modules in the working directory are the script's: no import of ours takes one that a plain run would not import."""

import sys
from pathlib import Path

import pytest

from tests.children import Done, added, run

NIGHTLY = pytest.mark.nightly("traceadvisor/recording", "traceadvisor/experiments")

FOREIGN = (
    "click",
    "isal",
    "markupsafe",
    "msgspec",
    "numpy",
    "pandas",
    "psutil",
    "pynvml",
    "rich",
    "traceadvisor",
)
HIDDEN = (*sorted(sys.stdlib_module_names - set(sys.builtin_module_names)), *FOREIGN)
"""Names of modules that lie in the folder of the script, too."""

DELEGATING = """
import sys, _frozen_importlib, _frozen_importlib_external
with open({log!r}, "a") as log:
    log.write({name!r} + chr(10))
places = [place for place in sys.path if place not in ("", {folder!r})]
spec = _frozen_importlib_external.PathFinder.find_spec({name!r}, places)
if spec is None:
    raise ModuleNotFoundError("No module named " + {name!r}, name={name!r})
sys.modules[{name!r}] = _frozen_importlib.module_from_spec(spec)
spec.loader.exec_module(sys.modules[{name!r}])
"""
"""A module that notes its import, and gives the place to the one that it hides."""

TRAIN = """
import sys, os, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

assert os.path.samefile(sys.path[0], os.path.dirname(os.path.abspath(__file__))), sys.path
assert sys.argv[1:] == ["--epochs", "3"], sys.argv
import beside
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
for epoch in range(int(os.environ.get("EPOCHS", "3"))):
    for inputs, targets in DataLoader(data, batch_size=8, num_workers=int(os.environ.get("WORKERS", "1"))):
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("trained")
"""

SCRIPT = ("train.py", "--epochs", "3")
COMMAND = str(Path(sys.executable).parent / "traceadvisor")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return _work(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of the folder that a plain run imports."""
    done, found = _imported(_work(tmp_path_factory.mktemp("plain")), sys.executable, *SCRIPT)
    assert done.stdout == "trained\n", done.stderr
    assert "random" in found
    return found


def _work(folder: Path) -> Path:
    """A folder with a script, and a module beside it for each name."""
    work = folder / "work"
    work.mkdir()
    for name in HIDDEN:
        source = DELEGATING.format(folder=str(work), log=str(folder / "imported"), name=name)
        path = work / (f"{name}/__init__.py" if name == "traceadvisor" else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    (work / "beside.py").touch()
    (work / "train.py").write_text(TRAIN)
    return work


def _imported(work: Path, *command: str, **variables: str) -> tuple[Done, set[str]]:
    log = work.parent / "imported"
    log.unlink(missing_ok=True)
    done = run(*command, cwd=work, env=added(**variables), limit_s=240)
    return done, set(log.read_text().split()) if log.exists() else set()


@NIGHTLY
@pytest.mark.parametrize(
    "words",
    [
        (COMMAND, "capture", "-o", "out", "--", *SCRIPT),
        pytest.param((COMMAND, "capture", "-o", "out", "-m", "train", *SCRIPT[1:]), marks=NIGHTLY),
        pytest.param((COMMAND, "capture", "-o", "out", "--", sys.executable, *SCRIPT), marks=NIGHTLY),
        (sys.executable, "-P", "-m", "traceadvisor", "capture", "-o", "out", "--", sys.executable, *SCRIPT),
    ],
    ids=["script", "module", "command", "safe"],
)
def test_a_capture_imports_nothing_of_the_folder_that_a_plain_run_does_not(
    work: Path, plain: set[str], words: tuple[str, ...]
) -> None:
    done, found = _imported(work, *words)
    assert "trained" in done.stdout, done.stderr
    assert (work / "out" / "manifest.json").exists(), done.stderr
    assert found - plain == set()


@NIGHTLY
@pytest.mark.parametrize(
    "words", [("--", *SCRIPT), pytest.param(("-m", "train", *SCRIPT[1:]), marks=NIGHTLY)], ids=["script", "module"]
)
def test_a_sweep_imports_nothing_of_the_folder_that_a_plain_run_does_not(
    work: Path, plain: set[str], words: tuple[str, ...]
) -> None:
    options = ("--set", "foreach=true", "--minutes", "1", "-o", "out")
    done, found = _imported(work, COMMAND, "sweep", *options, *words, EPOCHS="4000", WORKERS="0")
    assert "Nothing was measured" not in done.stdout, done.stdout + (work / "out" / "output.log").read_text()
    assert done.returncode == 0, done.stderr
    assert found - plain == set()
