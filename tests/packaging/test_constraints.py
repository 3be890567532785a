"""The constraints: what pip needs to find versions at once."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.shared import CHECKOUT

SHARED = {"aiobotocore", "boto3", "botocore"}
"""s3fs and moto need the same botocore, of which aiobotocore and boto3 take a few versions each."""


def _pinned() -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in (CHECKOUT / "constraints.txt").read_text().splitlines())
    pairs = (line.partition("==") for line in lines if line)
    return {canonicalize_name(name): number for name, _, number in pairs}


def _needs(name: str, number: str) -> Iterator[Requirement]:
    """What a version needs without extras; nothing if it is not the installed one."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        return
    if installed == number:
        found = (Requirement(text) for text in requires(name) or ())
        yield from (one for one in found if one.marker is None or one.marker.evaluate({"extra": ""}))


def test_what_only_a_few_versions_fit_is_pinned() -> None:
    assert _pinned().keys() >= SHARED


def test_the_pinned_versions_fit_one_another() -> None:
    pinned = _pinned()
    wrong = [
        f"{name} {number} needs {one}"
        for name, number in pinned.items()
        for one in _needs(name, number)
        if (other := pinned.get(canonicalize_name(one.name))) and not one.specifier.contains(other, prereleases=True)
    ]
    assert not wrong
