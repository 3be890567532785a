"""Settings of a project: ``[tool.traceadvisor]`` in its ``pyproject.toml``.

Settings are data and never evaluated as code. The file is searched only in the working directory and above, and never
in the folders of the recordings. So a recording from someone else cannot contain settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, inspect

from traceadvisor.errors import ConfigError
from traceadvisor.frozen import frozen
from traceadvisor.model.cost import Price
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.system.remote import is_remote
from traceadvisor.text.ranges import between
from traceadvisor.text.toml import decoded_toml

TABLE = "tool.traceadvisor"
FILE_NAME = "pyproject.toml"
LARGEST_BYTES = 4 << 20
"""Largest settings file."""

_NO_LIMIT = 1e18
"""Larger limits only exclude infinity, so error messages leave them out."""

Threshold = bool | int | float | str
Names = tuple[str, ...]


@frozen(kw_only=True)
class Settings:
    """The settings of a project; every field has a default.

    Raises:
        ConfigError: a value has the wrong type or is out of range.
    """

    select: Names = ()
    """Rules to run, by id (`DATA001`), name (`dataloader-wait`) or group (`DATA`). Empty: all rules."""

    ignore: Names = ()
    """Rules to skip, named in the same way. Takes precedence over `select`."""

    fail_on: Names = ()
    """Conditions for `traceadvisor report` to exit with 1: a severity (`high`, `medium`, `low`), a rule id, `degraded`
    (damaged input) or `failed-check` (a check that did not end). The option `--fail-on` replaces it."""

    plugins: bool = True
    """Whether to load rules from plugins; see [how to write a rule](writing-a-rule.md)."""

    gpu_price_per_hour: Annotated[float, Meta(gt=0, lt=1e9)] | None = None
    """Price of one GPU per hour. Adds the cost per million samples and the money that each fix saves to reports."""

    currency: Annotated[str, Meta(min_length=1, max_length=8)] = "USD"
    """Currency of all amounts of money."""

    rules: Mapping[str, Mapping[str, Threshold]] = field(default_factory=dict)
    """Thresholds of rules, by rule id or name; `traceadvisor rules explain ID` lists them."""

    limits: Limits = LIMITS
    """Limits on the input, see [below](#limits)."""

    file: Path | None = None
    """The settings file; not a key."""

    def __post_init__(self) -> None:
        for name, wanted in _TYPES.items():
            if wanted is not Limits:
                object.__setattr__(self, name, checked(getattr(self, name), wanted, self.origin, (name,)))

    @property
    def price(self) -> Price | None:
        """The price of a GPU; None if not set."""
        return None if self.gpu_price_per_hour is None else Price(self.gpu_price_per_hour, self.currency)

    @property
    def origin(self) -> Path | str:
        """The settings file, for error messages."""
        return self.file or "settings"


def checked(value: object, wanted: Any, origin: Path | str, keys: Iterable[str]) -> Any:
    """Convert a value to its type: an integer may become a float, a list a tuple.

    Raises:
        ConfigError: the value has the wrong type or is out of range.
    """
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        key = ".".join((TABLE, *keys))
        raise ConfigError(origin, f"{key} is {_shown(value)}", expected=type_words(wanted)) from error


def find_settings(start: Path, reviewed: Iterable[Path] = ()) -> Settings:
    """Read the nearest ``pyproject.toml`` with settings, in a folder or above it; defaults if there is none.

    ``start``: the folder where the search begins. ``reviewed``: untrusted recordings or their folders; settings files
    in these folders are ignored.

    Raises:
        ConfigError: a ``pyproject.toml`` cannot be read, or its settings are invalid.
    """
    others = set(_beside(start, reviewed))
    for folder in (start, *start.parents):
        path = folder / FILE_NAME
        if folder not in others and _is_file(path) and (table := _table(path)) is not None:
            return _settings(table, path)
    return Settings()


def passed_over(start: Path, reviewed: Iterable[Path]) -> Path | None:
    """A settings file that :func:`find_settings` ignored because of its location; None if there is none."""
    files = (folder / FILE_NAME for folder in _beside(start, reviewed))
    return next((path for path in files if _is_file(path) and TABLE.encode() in _beginning(path)), None)


def _beginning(path: Path) -> bytes:
    """The bytes of a file, up to the size of the largest settings file and one more."""
    with path.open("rb") as file:
        return file.read(LARGEST_BYTES + 1)


def _beside(start: Path, reviewed: Iterable[Path]) -> Iterator[Path]:
    """The folders from ``start`` upward that belong to the recordings."""
    others = [(path if path.is_dir() else path.parent).resolve() for path in reviewed if not is_remote(path)]
    for folder in (start, *start.parents):
        if any(folder.resolve().is_relative_to(other) for other in others):
            yield folder


def read_settings(path: Path) -> Settings:
    """Read the settings of one file.

    Raises:
        ConfigError: the file cannot be read, or has no valid settings.
    """
    table = _table(path)
    if table is None:
        raise ConfigError(path, "has no settings", expected=f"a table [{TABLE}]")
    return _settings(table, path)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to a misspelled one, ignoring case; None if none is similar."""
    spelled = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), spelled, n=1)
    return spelled[found[0]] if found else None


def type_words(wanted: Any) -> str:
    """The allowed values of a type, in words that follow "Expected"."""
    return _words(inspect.type_info(wanted))


def _is_file(path: Path) -> bool:
    """Whether the path is a file; False without permission to check."""
    try:
        return path.is_file()
    except OSError:
        return False


def _table(path: Path) -> object | None:
    """The table ``[tool.traceadvisor]`` of a file; None without one."""
    try:
        text = _beginning(path)
        if len(text) > LARGEST_BYTES:
            raise ConfigError(path, "is too large for settings", expected=f"at most {LARGEST_BYTES >> 20} MiB")
        content = decoded_toml(text)
    except OSError as error:
        raise ConfigError(path, f"cannot be read ({error.strerror or error})", expected="a TOML file") from error
    except ValueError as error:
        raise ConfigError(path, f"is not valid TOML ({error})", expected="a TOML file") from error
    tool = content.get("tool")
    return tool.get("traceadvisor") if isinstance(tool, dict) else None


def _settings(table: object, path: Path) -> Settings:
    values = _known(table, _TYPES, path)
    if "limits" in values:
        table = _known(values["limits"], [each.name for each in fields(Limits)], path, "limits")
        limits = {key: checked(value, _LIMIT, path, ("limits", key)) for key, value in table.items()}
        values |= {"limits": Limits(**limits)}
    return Settings(**values, file=path)


def _known(table: object, known: Iterable[str], path: Path, *keys: str) -> dict[str, Any]:
    """The table, if all of its keys are known."""
    name = ".".join((TABLE, *keys))
    if not isinstance(table, dict):
        raise ConfigError(path, f"{name} is {_shown(table)}", expected="a table")
    for key in table:
        if key not in known:
            raise ConfigError(
                path, f"unknown key {name}.{key}", expected=f"one of {', '.join(known)}", nearest=nearest(key, known)
            )
    return table


def _shown(value: object) -> str:
    """The value as TOML text, cut to 60 characters."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:59]}…"


def _words(info: inspect.Type) -> str:  # noqa: PLR0911  # one case per type
    match info:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return f"{'a whole number' if isinstance(info, inspect.IntType) else 'a number'}{_range(info)}"
        case inspect.StrType(min_length=least, max_length=longest):
            return "a string" if longest is None else f"a string of {between(str(least or 0), str(longest))} characters"
        case inspect.VarTupleType():
            return "a list of strings"
        case inspect.DataclassType():
            return "a table of whole numbers from 1"
        case inspect.DictType(value_type=inspect.DictType()):
            return "one table per rule, with names and values"
        case inspect.UnionType(types=types):
            return " or ".join(_words(each) for each in types if not isinstance(each, inspect.NoneType))
        case _:
            return str(info)


def _range(info: inspect.IntType | inspect.FloatType) -> str:
    to = "to" if info.ge is not None else "at most" if info.gt is None else "and at most"
    parts = (
        ("above", info.gt),
        ("from", info.ge),
        ("and below" if info.gt is not None else "below", info.lt),
        (to, info.le),
    )
    named = [f"{word} {limit:,.12g}" for word, limit in parts if limit is not None and limit < _NO_LIMIT]
    return f" {' '.join(named)}" if named else ""


_LIMIT = Annotated[int, Meta(ge=1)]

_TYPES = {
    name: wanted
    for name, wanted in get_type_hints(Settings, include_extras=True).items()
    if name in {each.name for each in fields(Settings)} - {"file"}
}
"""The keys of the table with their types."""
