"""Scripts of real frameworks: the steps in the bundle are the script's own, and nothing else changes."""

import sys
from pathlib import Path

import pytest

from tests.children import run
from tests.recording.frameworks.comparing import (
    Both,
    own_steps,
    run_both,
    same_outcome,
    same_steps,
    timed_as,
    whole_window,
)
from tests.recording.running import manifest, settings, steps, traces
from traceadvisor.judging.line_edits import IN_LIBRARIES
from traceadvisor.model.location import Role
from traceadvisor.model.run import StepState

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly("traceadvisor/recording", "tests/recording/frameworks")


def checked(both: Both) -> None:
    """The captured run gives what the plain one gives, and the bundle has the script's steps."""
    same_outcome(both)
    trained = same_steps(both)
    assert all(row.fetches for row in trained)
    whole_window(both)


def passed_over(both: Both) -> int:
    """Number of batches that were taken outside training steps."""
    return sum(row.fetches for row in steps(both.bundle) if row.state is StepState.OTHER)


def constructed(both: Both, file: str, through: str | None = None) -> dict[Role, str]:
    """The recorded lines that construct, of those objects that a library constructs, or none."""
    every = [one for one in settings(both.bundle).constructed if one.through == through]
    assert {one.place.file for one in every} == {file}
    return {one.role: (one.source or "").strip() for one in every}


@NIGHTLY
@pytest.mark.usefixtures("lightning")
@pytest.mark.parametrize(
    "variant", ["automatic", *(pytest.param(name, marks=NIGHTLY) for name in ("accumulating", "manual", "stream"))]
)
def test_lightning(variant: str, tmp_path: Path) -> None:
    """Validation at the start and in each epoch, a checkpoint every five steps."""
    both = run_both(tmp_path, "with_lightning.py", variant)
    checked(both)
    assert passed_over(both) >= 2 + 3 * 5
    loader = settings(both.bundle).loader
    assert loader
    assert (loader.batch_size, loader.worker_count) == (4, 2 if variant == "automatic" else 0)
    calls = constructed(both, "with_lightning.py")
    assert calls[Role.LOADER].startswith("train = DataLoader(")
    assert calls[Role.MODEL].startswith("module = Manual(clock)")
    assert "torch.optim." in calls[Role.OPTIMIZER]


@NIGHTLY
@pytest.mark.usefixtures("lightning")
def test_lightning_whose_advanced_profiler_runs_in_the_recorded_steps(tmp_path: Path) -> None:
    """On Python 3.12 it ends with an error where torch's profiler holds the id of profilers."""
    both = run_both(tmp_path, "with_lightning.py", "profiled")
    same_outcome(both)
    same_steps(both)
    assert len(traces(both.bundle)) == 1


@NIGHTLY
@pytest.mark.usefixtures("lightning")
def test_lightning_that_starts_its_second_rank_itself(tmp_path: Path) -> None:
    both = run_both(tmp_path, "with_lightning.py", "ddp")
    same_outcome(both, ordered=False)
    whole_window(both, ranks=2)
    for rank in range(2):
        same_steps(both, rank)


@NIGHTLY
@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("variant", ["workers", pytest.param("resuming", marks=NIGHTLY)])
def test_trainer_of_hugging_face(variant: str, tmp_path: Path) -> None:
    """Accumulates over two batches, evaluates every nine steps, saves every seven, and logs each."""
    both = run_both(tmp_path, "with_trainer.py", variant)
    checked(both)
    loader = settings(both.bundle).loader
    assert loader
    assert (loader.batch_size, loader.worker_count) == (2, 2 if variant == "workers" else 0)
    assert [row.fetches for row in same_steps(both)][:2] == [2, 2]
    calls = constructed(both, "with_trainer.py", through="transformers")
    assert calls[Role.LOADER] == calls[Role.OPTIMIZER] == "trainer.train(resume_from_checkpoint=resume)"
    assert constructed(both, "with_trainer.py")[Role.MODEL].startswith("model, clock = GPT2LMHeadModel(config)")


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging")
@pytest.mark.usefixtures("transformers")
def test_the_trainer_of_hugging_face_takes_the_settings_that_a_report_names() -> None:
    done = run(sys.executable, "-c", "import transformers as t; print(*t.TrainingArguments.__dataclass_fields__)")
    takes, names = IN_LIBRARIES["transformers"]
    assert takes == "TrainingArguments"
    assert set(names.values()) <= set(done.stdout.split())


@NIGHTLY
@pytest.mark.usefixtures("accelerate")
@pytest.mark.parametrize(
    "variant", ["plain", *(pytest.param(name, marks=NIGHTLY) for name in ("accumulating", "skipping"))]
)
def test_accelerate(variant: str, tmp_path: Path) -> None:
    both = run_both(tmp_path, "with_accelerate.py", variant)
    checked(both)
    trained = same_steps(both)
    calls = constructed(both, "with_accelerate.py")
    assert calls[Role.LOADER].startswith("loader: DataLoader[Any] = DataLoader(data")
    assert calls[Role.OPTIMIZER].startswith("optimizer = torch.optim.AdamW(")
    assert calls[Role.MODEL] == "model = nn.Linear(8, 8)"
    batches = {"plain": 3 * 17, "accumulating": 6 * 17, "skipping": 13 + 2 * 17}[variant]
    assert sum(row.fetches for row in trained) == batches, "one batch ahead of the loop does not count twice"
    assert sum(bool(row.loader_start_ns) for row in trained) == (6 if variant == "accumulating" else 3)
    loader = settings(both.bundle).loader
    assert loader
    assert (loader.batch_size, loader.worker_count) == (4, 2 if variant == "plain" else 0)


@NIGHTLY
@pytest.mark.usefixtures("webdataset")
@pytest.mark.parametrize(
    "variant", ["loader", *(pytest.param(name, marks=NIGHTLY) for name in ("rebatching", "direct", "endless"))]
)
def test_webdataset(variant: str, tmp_path: Path) -> None:
    """Workers that make batches, a loop that makes four of each, and a pipeline without a loader."""
    both = run_both(tmp_path, "with_webdataset.py", variant)
    checked(both)
    loader = settings(both.bundle).loader
    assert loader
    assert loader.worker_count == (2 if variant in {"loader", "rebatching"} else None)


@NIGHTLY
@pytest.mark.usefixtures("hydra")
def test_hydra_that_changes_the_working_directory(tmp_path: Path) -> None:
    both = run_both(tmp_path, "with_hydra.py", "training.batches=20", "hydra.run.dir=outputs", "hydra.job.chdir=true")
    checked(both)


@NIGHTLY
@pytest.mark.parametrize(
    "variant", ["loader", *(pytest.param(name, marks=NIGHTLY) for name in ("workers", "functional"))]
)
def test_parameters_that_the_script_updates_itself(variant: str, tmp_path: Path) -> None:
    both = run_both(tmp_path, "by_hand.py", variant)
    checked(both)
    assert passed_over(both) == (3 if variant == "workers" else 2) * 5


@NIGHTLY
@pytest.mark.usefixtures("fastai")
@pytest.mark.parametrize("variant", ["plain", "workers", "accumulating"])
def test_fastai(variant: str, tmp_path: Path) -> None:
    """Its optimizers and loaders are no classes of torch."""
    both = run_both(tmp_path, "with_fastai.py", variant)
    checked(both)
    assert passed_over(both) == 20 * (2 if variant == "plain" else 3)


@NIGHTLY
@pytest.mark.usefixtures("ignite")
def test_ignite(tmp_path: Path) -> None:
    both = run_both(tmp_path, "with_ignite.py")
    checked(both)
    assert passed_over(both) == 2 * 5


@NIGHTLY
@pytest.mark.usefixtures("skorch")
def test_skorch(tmp_path: Path) -> None:
    checked(run_both(tmp_path, "with_skorch.py"))


@NIGHTLY
@pytest.mark.usefixtures("geometric")
def test_torch_geometric(tmp_path: Path) -> None:
    checked(run_both(tmp_path, "with_geometric.py"))


@NIGHTLY
@pytest.mark.usefixtures("stable_baselines")
def test_stable_baselines(tmp_path: Path) -> None:
    """No loader feeds it: nothing shows where the first step begins, so it has no time, but counts."""
    both = run_both(tmp_path, "with_stable_baselines.py")
    same_outcome(both)
    timed_as(own_steps(both.folder)[1:], steps(both.bundle))
    assert manifest(both.bundle).endings[0].steps == 30
    whole_window(both)
