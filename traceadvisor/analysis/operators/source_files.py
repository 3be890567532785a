"""Python frames as text, and which files are library code."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from traceadvisor.model.location import Location, PlaceKind

FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.+)$")
"""``file.py(line): function``."""

LINE = re.compile(r"\d{1,9}", re.ASCII)
"""The line in ``file.py:line``."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PART = re.compile(r"[/\\]+")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")
_INSTALLED = re.compile(r"site-packages[/\\]|dist-packages[/\\]|[/\\]lib[/\\]python\d|[/\\]torchinductor_\w+[/\\]")
_OF_CAPTURES = re.compile(r"(^|[/\\])traceadvisor[/\\]recording[/\\]|^<traceadvisor[^>]{0,40}>$")
_NO_FILE = re.compile(r"<|\.\.\.|.*\.pyx$")

_PACKAGES = _words("""
torch torchgen functorch torchvision torchaudio torchdata torchtext torchmetrics torchrec torchao torchtune
torchtitan torch_xla torch_geometric torch_scatter torch_sparse triton xformers flash_attn apex transformer_engine
deepspeed megatron colossalai fairscale horovod accelerate bitsandbytes peft trl transformers diffusers tokenizers
sentence_transformers safetensors huggingface_hub optimum lightning lightning_fabric lightning_utilities
pytorch_lightning litdata ignite fastai fastcore fastprogress timm open_clip monai kornia albumentations albucore
imgaug imageio ffcv webdataset mmcv mmengine mmdet mmseg mmpretrain detectron2 fvcore iopath
segmentation_models_pytorch ultralytics e3nn dgl gpytorch botorch pyro einops jaxtyping beartype tensordict torchrl
nvidia cupy tensorrt torch_tensorrt onnx onnxruntime
numpy scipy pandas polars pyarrow sklearn joblib numba llvmlite jax jaxlib flax optax tensorflow keras PIL cv2
skimage matplotlib seaborn librosa soundfile audioread resampy h5py zarr numcodecs lmdb fsspec s3fs gcsfs boto3
botocore s3transfer smart_open av decord nibabel SimpleITK pydicom rasterio shapely networkx sympy mpmath nltk spacy
sentencepiece tiktoken
wandb tensorboard tensorboardX mlflow comet_ml neptune clearml aim sentry_sdk hydra omegaconf ray dask optuna gym
gymnasium stable_baselines3 tqdm rich click typer fire absl yaml requests urllib3 httpx httpcore aiohttp anyio
psutil pynvml cloudpickle dill multiprocess packaging filelock regex jinja2 pydantic msgspec attr attrs wrapt
decorator google grpc IPython ipykernel traitlets tornado zmq debugpy pytest _pytest pluggy setuptools pkg_resources
pip line_profiler memory_profiler traceadvisor
""")
"""Folders that count as libraries if a path was shortened: profilers remove the installation's path, so only
``torch/nn/modules/module.py`` is left."""

_MODULES = frozenset({"six", "typing_extensions", "threadpoolctl", "pylab", "torch"})
"""Libraries of one file."""

_DATASETS = re.compile(
    r"datasets/(arrow_\w+|dataset_dict|fingerprint|iterable_dataset|table)\.py|datasets/(features|formatting)/"
)
"""Files of the library ``datasets``; most folders of that name are the user's."""

_STANDARD_PACKAGES = _words("""
asyncio collections concurrent ctypes curses dbm distutils email encodings html http importlib json logging
multiprocessing pathlib re sqlite3 string sysconfig tkinter tomllib unittest urllib wsgiref xml xmlrpc zoneinfo
""")

_UNUSED_STANDARD_MODULES = _words("""
bdb cgi chunk cmd code codeop compileall configparser filecmp fileinput graphlib profile resource sched shelve
symtable this trace turtle wave
""")
"""Modules that torch does not import: a file of that name in the working folder is the user's. A file named like a
module that torch needs would be imported instead of it, and torch would fail."""


def at_line(location: Location, called: str) -> Location:
    """Return a place with the line of a call in it, such as ``train.py:12``; unchanged if that is in another file."""
    line = line_in(location.file, called)
    return location if line is None else replace(location, line=line, kind=PlaceKind.EXACT)


def line_in(file: str | None, called: str) -> int | None:
    """Return the line of a call such as ``train.py:12``; None if it is in another file, or makes no sense."""
    named, _, line = called.rpartition(":")
    return int(line) or None if named == file and LINE.fullmatch(line) else None


def is_library(file: str, own_code: frozenset[str] | None = None) -> bool:
    """Whether a file is library code.

    ``file``: a path from a stack; profilers may remove the folder of ``sys.path`` in front. ``own_code``: first path
    parts of the user's modules, as a capture recorded them; None without a capture, then only names decide.
    """
    if _NO_FILE.match(file) or _INSTALLED.search(file) or is_of_capture(file):
        return True
    if _ABSOLUTE.match(file):
        return False
    parts = [part for part in _PART.split(file) if part != "."] or [file]
    if own_code is not None and ".." not in parts:
        return parts[0] not in own_code
    return _is_library_by_name(parts)


_OWN_NO_TIME = re.compile(
    r"torch/(_ops|autograd/profiler)\.py$|(.*[/\\]lib[/\\]python\d[\d.]*[/\\])?(selectors|threading|queue|subprocess"
    r"|(multiprocessing|concurrent[/\\]futures)[/\\]\w+)\.py$"
)
"""Files of torch that call operators for others, or mark them, and of Python that wait for other threads and processes:
a reader looks for none of their time."""


def owns_time(file: str | None) -> bool:
    """Whether a reader may look for time in a file, and not only in what it calls, or in who waits through it."""
    return file is None or not (_OWN_NO_TIME.match(file) or is_of_capture(file))


def is_of_capture(file: str) -> bool:
    """Whether a file is of the package that records: it runs between the script and what it calls, and owns no time."""
    return _OF_CAPTURES.search(file) is not None


def _is_library_by_name(parts: list[str]) -> bool:
    top, *rest = parts
    if rest:
        return top in _PACKAGES | _STANDARD_PACKAGES or _DATASETS.match("/".join(parts)) is not None
    module = top.removesuffix(".py")
    return module in _MODULES or module in sys.stdlib_module_names - _UNUSED_STANDARD_MODULES
