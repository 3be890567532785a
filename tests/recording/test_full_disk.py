"""A disk that is full while the script trains."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.children import run
from tests.recording.running import PYTHON, capture, manifest, steps
from traceadvisor.api import load
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording.growing_file import GrowingFile

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

TRAIN = """
import resource, sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(batches):
    for (batch,) in DataLoader(TensorDataset(torch.ones(batches, 4))):
        model(batch).sum().backward()
        optimizer.step()

train(30)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
train(300)
print("full", flush=True)
print("full", file=sys.stderr, flush=True)
import time; time.sleep(1.2)  # two attempts to write
print("slept", file=sys.stderr, flush=True)
if "--freed" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print("trained")
"""


def trained(found: Sequence[TimedStep]) -> int:
    """Number of training steps: the time between epochs is a row, too."""
    return sum(step.state is not StepState.OTHER for step in found)


@NIGHTLY
@pytest.mark.parametrize(
    ("form", "is_freed"),
    [
        ((), False),
        (("--", *PYTHON), True),
        pytest.param((), True, marks=pytest.mark.slow),
        pytest.param(("--", *PYTHON), False, marks=NIGHTLY),
    ],
    ids=["full-script", "freed-command", "freed-script", "full-command"],
)
def test_a_full_disk_costs_data_and_not_the_training(tmp_path: Path, form: tuple[str, ...], is_freed: bool) -> None:  # noqa: FBT001
    (tmp_path / "train.py").write_text(TRAIN)
    arguments = ("--freed",) if is_freed else ()
    done = capture("-o", "bundle", *form, "train.py", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "full\ntrained\n")
    assert "Traceback" not in done.stderr
    during, _, after = done.stderr.partition("slept\n")
    assert during.count("traceadvisor: a part of the capture cannot be written: bundle: File too large.") == 1
    assert after.count("traceadvisor: a part of the capture could not be written: bundle: File too large.") == 1

    found = steps(tmp_path / "bundle")
    assert [step.index for step in found] == list(range(len(found))), "whole rows, none twice"
    report = load(tmp_path / "bundle")
    if is_freed:
        assert trained(found) in (329, 330)
        assert "not-written" in {row.note.code for row in report.health_notes}
    else:
        assert trained(found) < 329
        assert manifest(tmp_path / "bundle").endings == ()


@pytest.mark.nightly("traceadvisor/recording")
def test_a_recording_that_cannot_be_written_leaves_the_step_times(tmp_path: Path) -> None:
    source = TRAIN.replace("train(30)", "train(5)").replace("(1000, hard)", "(50_000, hard)")
    listed = "import glob, os; print('left', sum(map(os.path.getsize, glob.glob('bundle/unfinished.*.*.*.*'))))"
    (tmp_path / "train.py").write_text(f"{source}\n{listed}")
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "left 0"
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith("traceadvisor: recorded 0 of 30")
    assert "a recording could not be written; the disk may be full. The training goes on." in done.stderr
    assert trained(steps(tmp_path / "bundle")) in (304, 305)
    assert len(load(tmp_path / "bundle").recordings) == 1


def test_what_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    source = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from traceadvisor.recording.growing_file import GrowingFile\n"
        "file = GrowingFile(Path(sys.argv[1]))\nfile.append(b'first\\n')\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\nresource.setrlimit(resource.RLIMIT_FSIZE, (9, hard))\n"
        "try: file.append(b'second\\n')\nexcept OSError: print(Path(sys.argv[1]).read_text(), end='')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\nfile.append(b'third\\n')\nfile.close()\n"
    )
    done = run(*PYTHON, "-c", source, tmp_path / "file", check=True)
    assert done.stdout == "first\n"
    assert (tmp_path / "file").read_text() == "first\nthird\n"


def test_a_growing_file_may_be_renamed(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "a")
    file.append(b"1\n")
    (tmp_path / "a").rename(tmp_path / "b")
    file.append(b"2\n")
    file.close()
    file.close()
    assert (tmp_path / "b").read_text() == "1\n2\n"
    with pytest.raises(ValueError, match="closed"):
        file.append(b"3\n")
