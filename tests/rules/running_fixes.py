"""Runs the ``change`` of a fix with the names that a training script has, on the CPU.

What a CPU build of torch cannot have is replaced before the code runs, and nothing else:

- ``torch.cuda.Stream``, ``torch.cuda.stream``, ``torch.cuda.current_stream``: the ones of ``torch.cpu``, which have the
  same arguments;
- ``torch.cuda.set_sync_debug_mode``: not run, since it asks for a GPU;
- ``init_process_group("nccl")``: Gloo with one rank, in a file of its own.

``torch.autocast("cuda")`` and ``GradScaler("cuda")`` run as they are: without a GPU they warn and turn themselves off.
Shell commands are not run. They are split as a shell does, and their options are looked up.
"""

import ast
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests import torch_flags
from traceadvisor.rules.torch_api import TABLE

REPLACED = {
    "torch.cuda.Stream(": "torch.cpu.Stream(",
    "torch.cuda.stream(": "torch.cpu.stream(",
    "torch.cuda.current_stream(": "torch.cpu.current_stream(",
    ".pin_memory()": "",
    'torch.cuda.set_sync_debug_mode("default")': "pass",
}

ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": r"[01]",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": r"[01]",
    "TORCH_DISTRIBUTED_DEBUG": r"OFF|INFO|DETAIL",
    "PYTORCH_CUDA_ALLOC_CONF": r"expandable_segments:(?:True|False)",
    "PYTORCH_ALLOC_CONF": r"expandable_segments:(?:True|False)",
    "OMP_NUM_THREADS": r"\d+",
}
"""Variables that torch and CUDA read, and values that they take:
https://docs.pytorch.org/docs/stable/cuda_environment_variables.html, .../notes/cuda.html and .../distributed.html."""


def run_change(change: str, *, only_names: bool = False) -> None:
    """Run each part of a change, or only check its names.

    Raises:
        AssertionError: a shell command or an option does not exist, or torch's table lacks a name.
        Exception: whatever the code raises.
    """
    python = "\n".join(line for line in change.splitlines() if not _is_shell(line))
    for line in change.splitlines():
        if _is_shell(line):
            check_command(line)
    if python.strip():
        check_names(python)
        if not only_names:
            run_python(python)


def _is_shell(line: str) -> bool:
    return re.match(r"(?:export|unset|nvidia-smi|torchrun|[A-Z_]+=\S+ \w)(?:\s|$)", line) is not None


def check_command(line: str) -> None:
    """Check a shell command by its words."""
    command, *words = shlex.split(line, comments=True)
    match command:
        case "export":
            for word in words:
                name, _, value = word.partition("=")
                assert re.fullmatch(ENVIRONMENT[name], value), line
        case "unset":
            assert words, line
            assert set(words) <= ENVIRONMENT.keys(), line
        case "nvidia-smi":  # https://docs.nvidia.com/deploy/nvidia-smi, "Device modification options"
            options = dict(zip(words[::2], words[1::2], strict=True))
            assert options.keys() <= {"-i", "-pl"}, line
            assert all(value.isdigit() for value in options.values()), line
        case "torchrun":
            from torch.distributed.run import get_args_parser  # noqa: PLC0415  # slow to import

            get_args_parser().parse_args(words)
        case _:
            raise AssertionError(f"no known command: {line}")


def check_names(code: str) -> None:
    """Check that nothing is left out, and that the table of torch versions has every name of torch that is used."""
    tree = ast.parse(code)
    assert not any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree)), "'...' is no code"
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    used = {ast.unparse(node) for node in attributes if id(node) not in inner}
    known = {each.name.partition("(")[0] for each in TABLE}
    missing = sorted(name for name in used if name.startswith("torch.") and "(" not in name and name not in known)
    assert not missing, f"the table of torch versions lacks {missing}"


class _Images(nn.Module):
    """A small network of the kinds of layers that fixes mention."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.last = nn.Linear(4, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.convolution(images).mean((2, 3)))
        return scores


def script_names() -> dict[str, Any]:
    """The names that a training script has, as fixes write them."""
    model, device = _Images(), torch.device("cpu")
    x, y = torch.randn(8, 3, 8, 8), torch.randint(5, (8,))
    dataset = TensorDataset(x, y)
    loader = DataLoader(dataset, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    loss = criterion(model(x), y)
    return {
        "torch": torch,
        "nn": nn,
        "DataLoader": DataLoader,
        "DistributedDataParallel": DistributedDataParallel,
        "model": model,
        "load_model": lambda: model,
        "block": model,
        "samples": [torch.ones(3), torch.ones(5)],
        "pad": 0,
        "blocks": [nn.Identity(), nn.Identity()],
        "device": device,
        "x": x,
        "y": y,
        "images": x,
        "batch": x,
        "batches": iter([x, x]),
        "dataset": dataset,
        "sampler": loader.sampler,
        "loader": loader,
        "batch_size": 4,
        "optimizer": optimizer,
        "lr": 0.1,
        "criterion": criterion,
        "loss": loss,
        "losses": [],
        "parts": [],
        "length": 4,
        "entry": torch.ones(2),
        "output": torch.ones(2, 3),
        "inputs": (inputs := torch.randn(3, requires_grad=True)),
        "outputs": inputs**2,
        "shape": (2, 3),
        "query": torch.randn(2, 2, 4, 8),
        "key": torch.randn(2, 2, 4, 8),
        "value": torch.randn(2, 2, 4, 8),
        "start": torch.zeros(2, 1, dtype=torch.long),
        "targets": torch.ones(2, 4, dtype=torch.long),
        "log_probabilities": torch.randn(2, 5, 4).log_softmax(1),
        "features": torch.rand(2, 4, 8),
        "head": nn.Linear(8, 5),
        "F": nn.functional,
        "embedding": nn.Embedding(5, 3),
        "rnn": nn.GRU(3, 4, batch_first=True),
        "hidden": torch.zeros(1, 2, 4),
        "in_channels": 3,
        "out_channels": 4,
        "kernel_size": 3,
        "local_rank": 0,
    }


def run_python(code: str, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run code on the CPU and return its names; settings of torch are put back."""
    for written, instead in REPLACED.items():
        code = code.replace(written, instead)
    given = {**script_names(), **(names or {})}
    restore = _settings()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "init_process_group" in code or "DistributedDataParallel" in code or "no_sync" in code:
                return _run_distributed(code, given)
            exec(compile(code, "<change>", "exec"), given)  # noqa: S102  # the point of these tests
    finally:
        restore()
    return given


def _run_distributed(code: str, given: dict[str, Any]) -> dict[str, Any]:
    """Run code in a process group of one rank on the CPU."""
    from torch import distributed  # noqa: PLC0415  # only where needed

    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f'"gloo", init_method="file://{folder}/group", rank=0, world_size=1'
        if "init_process_group" in code:
            code = re.sub(r'init_process_group\("(?:cpu:gloo,cuda:)?nccl"', f"init_process_group({rendezvous}", code)
        else:
            distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
            code = re.sub(r",? ?device_ids=\[\w+\]", "", code)  # CPU modules take none
            if "no_sync" in code:
                given["model"] = model = DistributedDataParallel(given["model"])
                given["loss"] = given["criterion"](model(given["x"]), given["y"])
        try:
            exec(compile(code, "<change>", "exec"), given)  # noqa: S102  # the point of these tests
        finally:
            if distributed.is_initialized():
                distributed.destroy_process_group()
    return given


def _settings() -> Callable[[], None]:
    """Return a function that restores the settings of torch, of garbage collection and of the environment."""
    import gc  # noqa: PLC0415  # only here

    threads, thresholds = torch.get_num_threads(), gc.get_threshold()
    anomaly, environment = torch.is_anomaly_enabled(), dict(os.environ)

    def restore() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_num_threads(threads)
            torch.autograd.set_detect_anomaly(anomaly)
        torch_flags.put_back()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        os.environ.clear()
        os.environ.update(environment)

    return restore
