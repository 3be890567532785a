"""Changed functions alternate in a running process."""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.experiments.building import Training, measured, plan_in
from traceadvisor.experiments.inside.edited import loaded_elsewhere
from traceadvisor.experiments.journal import AnyRow, FirstLosses, KeptApart, Round
from traceadvisor.experiments.patching.judged import losses_of
from traceadvisor.experiments.plan import Change
from traceadvisor.model.patch import Apart, LossMatch

ARM = "patch=my.patch"
SOURCE = """
import time

def wait():
    time.sleep(0.02)

def factor():
    return 1.0

def rows():
    while True:
        time.sleep(0.004)
        yield 1

def loop(train):
    time.sleep(0.001)
    train()

def unused():
    return 1

class Rows:
    def read(self):
        time.sleep(0.001)
        return 1.0
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of the script."""
    path = tmp_path / "parts_of_a_script.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    yield found
    del sys.modules[path.stem]


def edited(folder: Path, old: str, new: str, train: Callable[[], None], others: Sequence[str] = ()) -> list[AnyRow]:
    """The rows of a training while an edit of the module, and of other files, alternates."""
    (folder / "new.py").write_text(SOURCE.replace(old, new))
    assert (folder / "new.py").read_text() != SOURCE
    code = {str(folder / "parts_of_a_script.py"): str(folder / "new.py")}
    for name in others:
        (folder / "copy").mkdir(exist_ok=True)
        (folder / "copy" / name).write_text("REACHED = 2\n")
        code[str(folder / name)] = str(folder / "copy" / name)
    change = Change(ARM, {"patch": "my.patch"})
    return measured(plan_in(folder / "out", changes=(change,), code=code), train)


def ratios(rows: list[AnyRow]) -> list[float]:
    """The step with the edit over that without, by round."""
    return [one.seconds[ARM] / one.seconds["A"] for one in rows if isinstance(one, Round)]


def apart(rows: list[AnyRow]) -> list[tuple[Apart, str]]:
    """Why an edit did not alternate."""
    return [(row.reason, row.at) for row in rows if isinstance(row, KeptApart)]


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_function_alternates_wherever_it_is_referred_to(tmp_path: Path, module: ModuleType) -> None:
    training, wait = Training(), module.wait  # a reference of its own, as after `from parts import wait`

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            wait()
            training.step(number, inputs, targets)

    rows = edited(tmp_path, "time.sleep(0.02)\n\ndef factor", "time.sleep(0.001)\n\ndef factor", train)
    found = ratios(rows)
    assert len(found) == 5
    assert sorted(found)[2] < 0.8
    assert losses_of(rows)["loss"] is LossMatch.IDENTICAL
    assert apart(rows) == []
    begin_s = time.perf_counter()
    module.wait()
    assert time.perf_counter() - begin_s > 0.015, "the script's own code is back"


def test_an_edit_that_changes_the_loss_is_seen(tmp_path: Path, module: ModuleType) -> None:
    training = Training()

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            training.step(number, inputs, targets * module.factor())

    assert (
        losses_of(edited(tmp_path, "return 1.0\n\ndef rows", "return 30.0\n\ndef rows", train))["loss"]
        is LossMatch.DIFFERS
    )


class _Slow(Dataset[Any]):
    def __init__(self, module: ModuleType) -> None:
        self.rows = module.Rows()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, _: int) -> Any:
        return torch.full((4,), self.rows.read()), torch.ones(1)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("workers", [0, 1])
def test_code_of_a_dataset_alternates_in_loader_workers_too(tmp_path: Path, module: ModuleType, workers: int) -> None:
    training = Training()
    training.loader = DataLoader(_Slow(module), batch_size=8, num_workers=workers)
    rows = edited(tmp_path, "time.sleep(0.001)\n        return 1.0", "return 1.0", training.epoch)
    assert sorted(ratios(rows))[2] < 0.8
    assert losses_of(rows)["loss"] is LossMatch.IDENTICAL


@pytest.mark.nightly("traceadvisor/experiments")
def test_data_that_differ_are_seen_in_the_loss(tmp_path: Path, module: ModuleType) -> None:
    training = Training()
    training.loader = DataLoader(_Slow(module), batch_size=8, num_workers=1)
    rows = edited(tmp_path, "time.sleep(0.001)\n        return 1.0", "return 30.0", training.epoch)
    assert losses_of(rows)["loss"] is LossMatch.DIFFERS


def test_a_function_that_holds_the_loop_is_kept_apart(tmp_path: Path, module: ModuleType) -> None:
    training = Training()
    rows = edited(tmp_path, "time.sleep(0.001)\n    train()", "train()", lambda: module.loop(training.epoch))
    assert apart(rows) == [(Apart.RUNNING, "loop")]
    assert ratios(rows) == []


def test_a_generator_that_runs_already_is_kept_apart(tmp_path: Path, module: ModuleType) -> None:
    training, waiting = Training(), module.rows()

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            next(waiting)
            training.step(number, inputs, targets)

    rows = edited(tmp_path, "time.sleep(0.004)\n        yield", "yield", train)
    assert apart(rows) == [(Apart.RUNNING, "rows")]


def test_a_function_that_no_step_calls_is_kept_apart(tmp_path: Path, module: ModuleType) -> None:
    assert module.unused() == 1
    rows = edited(tmp_path, "return 1\n\nclass", "return 2\n\nclass", Training().epoch)
    assert apart(rows) == [(Apart.NOT_CALLED, "unused")]
    assert not any(isinstance(row, FirstLosses) for row in rows)


def test_code_that_the_process_does_not_have_is_kept_apart(tmp_path: Path, module: ModuleType) -> None:
    module.wait.__code__ = (lambda: None).__code__  # as a decorator or another file of the name would do
    rows = edited(tmp_path, "time.sleep(0.02)\n\ndef factor", "pass\n\ndef factor", Training().epoch)
    assert apart(rows) == [(Apart.NOT_LOADED, "wait")]


SLEEP = "time.sleep(0.02)\n\ndef factor"


def test_files_that_the_run_does_not_use_do_not_matter(tmp_path: Path, module: ModuleType) -> None:
    for name in ("test_parts.py", "notes.md"):
        (tmp_path / name).write_text("REACHED = 1\n")
    training = Training()

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            module.wait()
            training.step(number, inputs, targets)

    rows = edited(tmp_path, SLEEP, "pass\n\ndef factor", train, ["test_parts.py", "notes.md", "new_part.py"])
    assert apart(rows) == []
    assert ratios(rows)


@pytest.mark.parametrize("name", ["notes.yaml", "new_part.py"])
def test_a_file_that_the_run_reads_or_may_import_keeps_an_edit_apart(
    tmp_path: Path, module: ModuleType, name: str
) -> None:
    assert module.wait
    training = Training()
    if name == "notes.yaml":
        (tmp_path / name).write_text("as it is\n")

    def train() -> None:
        if name == "notes.yaml":
            (tmp_path / name).read_text()
        training.epoch()

    rows = edited(tmp_path, SLEEP, "import new_part\n\ndef factor", train, [name])
    assert apart(rows) == [(Apart.OTHER_FILE, name)]


class _Late(Dataset[Any]):
    """Imports a module of the edit where it makes a sample."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __len__(self) -> int:
        return 64

    def __getitem__(self, _: int) -> Any:
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        assert spec
        assert spec.loader
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return torch.ones(4), torch.ones(1)


def test_a_file_that_only_loader_workers_import_keeps_an_edit_apart(tmp_path: Path, module: ModuleType) -> None:
    """The functions of the module would alternate, those of the other file would stay as they are."""
    (tmp_path / "augment.py").write_text("REACHED = 1\n")
    training = Training()
    training.loader = DataLoader(_Late(tmp_path / "augment.py"), batch_size=8, num_workers=1)

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            module.wait()
            training.step(number, inputs, targets)

    rows = edited(tmp_path, SLEEP, "pass\n\ndef factor", train, ["augment.py", "test_parts.py"])
    assert apart(rows) == [(Apart.SPAWNED, "augment.py")]
    assert ratios(rows) == []


def test_an_edit_of_files_that_are_not_loaded_is_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "parts_of_a_script.py").write_text(SOURCE)
    rows = edited(tmp_path, SLEEP, "pass\n\ndef factor", Training().epoch)
    assert apart(rows) == [(Apart.NOT_LOADED, "parts_of_a_script.py")]


def test_a_removed_file_that_is_imported_late_keeps_an_edit_apart(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, training = tmp_path / "late_part.py", Training()
    late.write_text("REACHED = 1\n")
    (tmp_path / "new.py").write_text(SOURCE.replace(SLEEP, "pass\n\ndef factor"))
    code = {str(tmp_path / "parts_of_a_script.py"): str(tmp_path / "new.py"), str(late): str(tmp_path / "removed.py")}

    def train() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            module.wait()
            training.step(number, inputs, targets)
            if number == 40:
                found = ModuleType("late_part")
                found.__file__ = str(late)
                monkeypatch.setitem(sys.modules, "late_part", found)

    rows = measured(plan_in(tmp_path / "out", changes=(Change(ARM, {"patch": "my.patch"}),), code=code), train)
    assert apart(rows) == [(Apart.OTHER_FILE, "late_part.py")]


def test_compiled_code_is_kept_apart(tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.wait
    monkeypatch.setitem(torch._dynamo.utils.counters["frames"], "total", 1)
    rows = edited(tmp_path, "time.sleep(0.02)\n\ndef factor", "pass\n\ndef factor", Training().epoch)
    assert apart(rows) == [(Apart.COMPILED, "wait")]


def test_a_changed_file_must_come_from_the_copy_and_none_from_its_own_place(module: ModuleType, tmp_path: Path) -> None:
    assert module.__file__
    here = str(tmp_path / "parts_of_a_script.py")
    assert loaded_elsewhere([here], "/the/copy") == here, "it was loaded from its own place"
    assert loaded_elsewhere(["/parts_of_a_script.py", "/test_unused.py"], str(tmp_path)) is None, "one file is enough"
    assert loaded_elsewhere(["/other.py", "/notes.yaml"], str(tmp_path)) == "/other.py", "it was not loaded"
    assert loaded_elsewhere(["/notes.yaml"], str(tmp_path)) is None, "only modules can tell"
