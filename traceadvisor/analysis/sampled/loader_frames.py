"""The part of the loader that a sampled stack is in, by the frames below ``__next__`` and ``__iter__``."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.model.loader_time import LoaderPart
from traceadvisor.model.location import Frame
from traceadvisor.model.samples import SampledFrame

LOADER = "torch/utils/data/dataloader.py"
_LOADING = "torch/utils/data/"
_FETCHER = "torch/utils/data/_utils/fetch.py"
_PINS = "torch/utils/data/_utils/pin_memory.py"
_SAMPLERS = frozenset({"_next_index"})
_STARTS = frozenset({"_shutdown_workers", "_mark_worker_as_unavailable"})
_TAKES = frozenset({"_try_get_data", "_get_data"})
_QUEUES = ("queue.py", "asyncio/", "concurrent/futures/")
_STARTING = ("multiprocessing/context.py", "multiprocessing/process.py", "multiprocessing/popen_")
_POLLS = frozenset({"poll", "_poll", "wait", "select", "acquire"})
_LOCKS = ("multiprocessing/synchronize.py", "filelock/", "fasteners/", "portalocker/", "multiprocessing/managers.py")
_LOCKED = frozenset({"acquire", "flock", "lockf", "__enter__"})
"""Functions written in C that wait for a lock, as the code names them."""


def part_of(frames: Sequence[SampledFrame]) -> LoaderPart:
    """Return the part of a stack of the training thread that gets a batch, or starts a loop; outermost frame first."""
    inside = [frame for frame in frames if frame.file == LOADER]
    functions = {frame.function for frame in inside}
    inner = frames[-1] if frames else SampledFrame("")
    takes = LoaderPart.WAITING if inner.function in _POLLS else LoaderPart.RECEIVING
    signs = (
        (LoaderPart.SAMPLER, bool(functions & _SAMPLERS)),
        (LoaderPart.START, bool(functions & _STARTS) or _has_file(frames, _STARTING)),
        (LoaderPart.MAKING, _has_file(frames, (_FETCHER,))),
        (LoaderPart.PINNING, _has_file(frames, (_PINS,))),
        (takes, bool(functions & _TAKES)),
        (LoaderPart.QUEUE, _has_file(frames, _QUEUES)),
        (LoaderPart.MAKING, not inside),  # a feed of the script that makes batches itself
        (LoaderPart.RECEIVING, "_try_put_index" in functions),
    )
    return next((part for part, is_shown in signs if is_shown), LoaderPart.OTHER)


def _has_file(frames: Sequence[SampledFrame], begins: tuple[str, ...]) -> bool:
    return any((frame.file or "").startswith(begins) for frame in frames)


def starts_loop(frames: Sequence[SampledFrame]) -> bool:
    """Return whether a stack is in the ``__iter__`` of a ``DataLoader``."""
    return any(frame.file == LOADER and frame.function == "__iter__" for frame in frames)


def gets_batch(frames: Sequence[SampledFrame]) -> bool:
    """Return whether the user's innermost line calls the loader, which runs no code of the user."""
    last = max((place for place, frame in enumerate(frames) if frame.is_user), default=-1)
    return _has_file(frames[last + 1 :], (_LOADING,))


def waits_for_lock(frames: Sequence[SampledFrame]) -> bool:
    """Return whether a stack that waits is in the call of a lock."""
    inner = frames[-1] if frames else SampledFrame("")
    below = frames[-3:]
    if any((frame.file or "").startswith(_LOCKS) for frame in below if not frame.is_user):
        return True
    if any(frame.file == "threading.py" and frame.function in _LOCKED for frame in below):
        return True
    return inner.file is None and inner.function in _LOCKED


CHANGING_FILES = (
    "torchvision/transforms/",
    "albumentations/",
    "kornia/",
    "imgaug/",
    "audiomentations/",
    "torch_audiomentations/",
    "scipy/ndimage/",
    "skimage/transform/",
    "skimage/filters/",
    "PIL/ImageFilter.py",
    "PIL/ImageEnhance.py",
    "PIL/ImageOps.py",
    "PIL/ImageChops.py",
)
"""Files of transformations, which may be random: done once, each epoch would see the same data."""

CHANGERS = frozenset(
    {"resize", "rotate", "transform", "filter", "thumbnail", "transpose", "GaussianBlur", "warpAffine"}
)
"""Functions of PIL and OpenCV that transform."""


def transforms(called: Frame | None) -> bool:
    """Whether a called function changes samples, perhaps at random."""
    return called is not None and ((called.file or "").startswith(CHANGING_FILES) or called.function in CHANGERS)


_DRAWS = frozenset({"getrandbits", "Random.getrandbits", "Random.random"})
"""Functions of Python's ``random`` written in C. Samples have these names without the class: ``random`` may be NumPy's,
which draws whole arrays."""


def draws_singly(called: Frame | None) -> bool:
    """Whether a called function is one of Python's ``random``, which draws number by number."""
    return called is not None and (called.file == "random.py" or (called.file is None and called.function in _DRAWS))
