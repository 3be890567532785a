import sys
from collections.abc import Callable
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from traceadvisor.experiments.inside.step_limits import lift_limits


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a module in the place of a library's."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])

    def put(name: str, **members: Any) -> None:
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    return put


class _Strategy(Enum):
    NO = "no"
    STEPS = "steps"


def test_the_trainer_of_transformers_has_no_last_step_and_saves_no_checkpoint(library: Callable[..., None]) -> None:
    class Trainer:
        args = SimpleNamespace(save_strategy=_Strategy.STEPS, max_steps=10)

        def train(self) -> object:
            return self.args

    library("transformers.trainer", Trainer=Trainer)
    lift_limits()
    args: Any = Trainer().train()
    assert args.save_strategy is _Strategy.NO
    assert args.max_steps > 10**6


def test_the_trainer_of_lightning_has_no_last_epoch_and_no_checkpoint_callback(library: Callable[..., None]) -> None:
    class Trainer:
        checkpoint_callbacks = ("checkpoints",)

        def __init__(self) -> None:
            self.callbacks = ["progress", "checkpoints"]
            self.fit_loop = SimpleNamespace(max_epochs=3, epoch_loop=SimpleNamespace(max_steps=10))

        def fit(self) -> list[str]:
            return self.callbacks

    library("lightning.pytorch.trainer.trainer", Trainer=Trainer)
    lift_limits()
    trainer = Trainer()
    assert trainer.fit() == ["progress"]
    assert trainer.fit_loop.max_epochs == trainer.fit_loop.epoch_loop.max_steps == -1


def test_accelerate_saves_no_state(library: Callable[..., None]) -> None:
    class Accelerator:
        def save_state(self, output_dir: str | None = None) -> str | None:
            raise AssertionError("saved")

    library("accelerate.accelerator", Accelerator=Accelerator)
    lift_limits()
    assert Accelerator().save_state("state") == "state"


def test_a_trainer_of_another_version_trains_as_it_does_by_itself(library: Callable[..., None]) -> None:
    class Trainer:
        def train(self) -> str:
            return "trained"

    library("transformers.trainer", Trainer=Trainer)
    lift_limits()
    assert Trainer().train() == "trained"
