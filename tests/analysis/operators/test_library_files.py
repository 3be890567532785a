"""Whose file it is, from what profilers leave of its path."""

import pytest

from traceadvisor.analysis.operators.source_files import is_library

AMBIGUOUS = ["datasets/coco.py", "queue.py", "profile.py", "logging/text.py", "wandb/log.py", "model.py"]
"""Of the user or of a library: names do not tell."""


@pytest.mark.parametrize(
    "file",
    [
        *(
            "torch/nn/modules/module.py",
            "torch.py",
            "timm/layers/norm.py",
            "torchmetrics/metric.py",
            "peft/tuners/lora.py",
        ),
        *("trl/trainer/sft_trainer.py", "diffusers/models/attention.py", "monai/data/dataset.py", "wandb/sdk/run.py"),
        *("sklearn/base.py", "albumentations/core/composition.py", "xformers/ops/fmha.py", "fsspec/spec.py"),
        *("torch_geometric/data/data.py", "mmengine/runner/loops.py", "ignite/engine/engine.py", "h5py/_hl/dataset.py"),
        *("datasets/arrow_dataset.py", "datasets/formatting/formatting.py", "click/core.py", "traceadvisor/cli/run.py"),
        *("threading.py", "queue.py", "contextlib.py", "json/decoder.py", "concurrent\\futures\\thread.py"),
        *("/opt/conda/lib/python3.10/queue.py", "/venv/lib/python3.12/site-packages/mylib/x.py", "<frozen os>"),
        *("<stdin>", "...", "numpy/random/mtrand.pyx", "/scratch/torchinductor_ada/ab/cab.py"),
    ],
)
def test_library_files_are_recognised_by_their_path(file: str) -> None:
    assert is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        *(
            "train.py",
            "datasets.py",
            "datasets/coco.py",
            "profile.py",
            "code/train.py",
            "platform/device.py",
            "utils.py",
        ),
        *(
            "./train.py",
            "../src/train.py",
            "..\\src\\train.py",
            "./datasets/coco.py",
            "src/queue.py",
            "models/torch.py",
        ),
        *("/home/ada/torch/train.py", "C:\\work\\json\\train.py", "/home/ada/queue.py", "."),
    ],
)
def test_a_users_file_is_one_that_no_library_has(file: str) -> None:
    assert not is_library(file)


def test_the_capture_decides_for_ambiguous_names() -> None:
    own = frozenset(file.split("/")[0] for file in AMBIGUOUS)
    assert not any(is_library(file, own) for file in AMBIGUOUS)
    assert all(is_library(file, frozenset({"train.py"})) for file in AMBIGUOUS)


def test_absolute_paths_are_judged_by_location_even_in_a_capture() -> None:
    own = frozenset({"train.py"})
    assert not is_library("/home/ada/mylib/layers.py", own)
    assert not is_library("../src/layers.py", own)
    assert is_library("/venv/lib/python3.12/site-packages/mylib/layers.py", own)
    assert is_library("<string>", own)
