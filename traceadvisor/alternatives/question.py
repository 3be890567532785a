"""Checks what the user asks, and finds the GPUs that are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path

from traceadvisor.alternatives.answer import Asked
from traceadvisor.alternatives.gpus import Gpu, find_gpu, read_device_file
from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.text.ranges import between

LARGEST = "max"
"""Stands for the largest batch that fits."""

MOST = 1 << 30
"""Largest number of samples, ranks, workers or cores."""


@frozen
class Question:
    """The question, and facts on the recordings that the user states."""

    asked: Asked
    recorded_gpu: Gpu | None
    recorded_batches: tuple[int, ...]


def question(  # noqa: PLR0913  # one parameter per option
    *,
    gpus: Iterable[str],
    batches: Iterable[int | str],
    workers: int | None,
    cpu_cores: int | None,
    cpu_speed: float | tuple[float, float] | None,
    ranks: Iterable[int],
    prices: Mapping[str, float],
    device_file: Path | None,
    recorded_gpu: str | None,
    recorded_batches: Iterable[int],
) -> Question:
    """Return the checked question; the parameters are those of :func:`traceadvisor.whatif`.

    Raises:
        InputError: the file of GPUs cannot be read.
        UsageError: a GPU is unknown, or a number makes no sense.
    """
    own = read_device_file(device_file) if device_file else ()
    named = {name: find_gpu(name, own) for name in gpus}
    wanted = tuple({gpu.name: gpu for gpu in named.values()}.values())
    of_price = {name: named.get(name) or find_gpu(name, own) for name in prices}
    _check_priced(of_price, wanted)
    priced = {gpu.name: _price(name, prices[name]) for name, gpu in of_price.items()}
    speed = None if cpu_speed is None else _speed(cpu_speed)
    asked = Asked(
        wanted,
        tuple(dict.fromkeys(None if one == LARGEST else _count("batch", one) for one in batches)),
        None if workers is None else _count("number of workers", workers, 0),
        None if cpu_cores is None else _count("number of cores", cpu_cores),
        tuple(dict.fromkeys(_count("number of ranks", one) for one in ranks)),
        priced,
        speed,
    )
    known = tuple(_count("recorded batch", one) for one in recorded_batches)
    return Question(asked, find_gpu(recorded_gpu, own) if recorded_gpu else None, known)


def _count(what: str, value: int | str, least: int = 1) -> int:
    try:
        number = int(value)
    except (OverflowError, TypeError, ValueError):
        number = -1
    is_whole = isinstance(value, str) or number == value
    if not is_whole or not least <= number <= MOST:
        ends = between(f"{least}", f"{MOST:,}")
        raise UsageError(f"{value!r} is no {what}. Expected a whole number from {ends}.")
    return number


def _check_priced(of_price: Mapping[str, Gpu], wanted: Iterable[Gpu]) -> None:
    """Raise UsageError for a GPU without a price, if there is one for the same GPU with another memory."""
    priced = {gpu.name for gpu in of_price.values()}
    for gpu in (one for one in wanted if one.name not in priced):
        if name := next((name for name, one in of_price.items() if one.row == gpu.row), None):
            raise UsageError(
                f"The price of {name!r} is for the {of_price[name].name}. Give one for the {gpu.name}, too."
            )


def _price(name: str, price: float) -> float:
    if not (isfinite(price) and 0 < price < 1e9):
        raise UsageError(f"{price} is no price of {name}. Expected an amount above 0.")
    return price


def _speed(given: float | tuple[float, float]) -> tuple[float, float]:
    low, high = given if isinstance(given, tuple) else (given, given)
    if not 0.01 <= low <= high <= 100:
        raise UsageError(
            f"{low:g}-{high:g} is no speed of a CPU. Expected such as 0.8 or 0.8-1.2: times the recorded one."
        )
    return low, high
