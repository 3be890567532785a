"""Settings of a project: ``[tool.traceadvisor]`` in its ``pyproject.toml``.

Settings are data: what stands in them is compared and counted with, never evaluated. They are looked for from the
working directory upward and nowhere else, and not in what is reported on, so that a recording by somebody else brings
none of its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, inspect

from traceadvisor.errors import ConfigError
from traceadvisor.model.cost import Price

TABLE = "tool.traceadvisor"
FILE_NAME = "pyproject.toml"

_NO_LIMIT = 1e18
"""A limit from here on only keeps out what is no number at all."""

Threshold = bool | int | float | str
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user may set; every field has a default.

    Raises:
        ConfigError: a value is not of its type or out of its range.
    """

    select: Names = ()
    """Rules to run, each by id (`DATA001`), by name (`dataloader-wait`) or by group (`DATA`); empty for all."""

    ignore: Names = ()
    """Rules not to run, named in the same ways; stronger than `select`."""

    fail_on: Names = ()
    """When `traceadvisor report` exits with 1, as for `--fail-on`, which stands in its place: a severity (`high`,
    `medium`, `low`), a rule's id, or `degraded`."""

    plugins: bool = True
    """Whether rules of other distributions are loaded; see [how to write one](writing-a-rule.md)."""

    gpu_price_per_hour: Annotated[float, Meta(gt=0, lt=1e9)] | None = None
    """Price of one GPU for an hour. With it reports say what a million samples cost and what each finding is worth."""

    currency: Annotated[str, Meta(min_length=1, max_length=8)] = "USD"
    """Written beside amounts of money."""

    rules: Mapping[str, Mapping[str, Threshold]] = field(default_factory=dict)
    """Thresholds of single rules, by a rule's id or name; `traceadvisor rules explain ID` lists them."""

    file: Path | None = None
    """Where the settings were read from; not a key."""

    def __post_init__(self) -> None:
        for name, wanted in _TYPES.items():
            object.__setattr__(self, name, checked(getattr(self, name), wanted, self.origin, (name,)))

    @property
    def price(self) -> Price | None:
        """Of a GPU, where one is set."""
        return None if self.gpu_price_per_hour is None else Price(self.gpu_price_per_hour, self.currency)

    @property
    def origin(self) -> Path | str:
        """What messages about these settings begin with."""
        return self.file or "settings"


def checked(value: object, wanted: Any, origin: Path | str, keys: Iterable[str]) -> Any:
    """A value as its type has it: a whole number may stand for a fraction, a list for a tuple.

    Raises:
        ConfigError: it is not of the type, or out of its range.
    """
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        key = ".".join((TABLE, *keys))
        raise ConfigError(origin, f"{key} is {_shown(value)}", expected=type_words(wanted)) from error


def find_settings(start: Path, reviewed: Iterable[Path] = ()) -> Settings:
    """The settings in the nearest ``pyproject.toml`` that has some, in a folder or above it; else the defaults.

    Args:
        start: the folder.
        reviewed: recordings, perhaps somebody else's, and folders of them: none is taken from beside them or within.

    Raises:
        ConfigError: a ``pyproject.toml`` on the way cannot be read, or its settings are wrong.
    """
    others = set(_beside(start, reviewed))
    for folder in (start, *start.parents):
        path = folder / FILE_NAME
        if folder not in others and _is_file(path) and (table := _table(path)) is not None:
            return _settings(table, path)
    return Settings()


def passed_over(start: Path, reviewed: Iterable[Path]) -> Path | None:
    """A file of settings that :func:`find_settings` does not read for where it lies; None where there is none."""
    files = (folder / FILE_NAME for folder in _beside(start, reviewed))
    return next((path for path in files if _is_file(path) and TABLE.encode() in path.read_bytes()), None)


def _beside(start: Path, reviewed: Iterable[Path]) -> Iterator[Path]:
    """Those of a folder and the folders above it that belong to what is reported on."""
    others = [(path if path.is_dir() else path.parent).resolve() for path in reviewed]
    for folder in (start, *start.parents):
        if any(folder.resolve().is_relative_to(other) for other in others):
            yield folder


def read_settings(path: Path) -> Settings:
    """The settings of one file.

    Raises:
        ConfigError: the file cannot be read, has no settings, or they are wrong.
    """
    table = _table(path)
    if table is None:
        raise ConfigError(path, "has no settings", expected=f"a table [{TABLE}]")
    return _settings(table, path)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelled one is most like, whatever its case; None where none is."""
    spelled = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), spelled, n=1)
    return spelled[found[0]] if found else None


def type_words(wanted: Any) -> str:
    """What a type asks for, in words that follow "Expected"."""
    return _words(inspect.type_info(wanted))


def _is_file(path: Path) -> bool:
    """False also where the folder may not be looked into."""
    try:
        return path.is_file()
    except OSError:
        return False


def _table(path: Path) -> object | None:
    """``[tool.traceadvisor]`` of a file; None where it has none."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(path, f"cannot be read ({error.strerror or error})", expected="a TOML file") from error
    except (ValueError, RecursionError) as error:  # a decoding error is a ValueError
        raise ConfigError(path, f"is not valid TOML ({error})", expected="a TOML file") from error
    tool = content.get("tool")
    return tool.get("traceadvisor") if isinstance(tool, dict) else None


def _settings(table: object, path: Path) -> Settings:
    if not isinstance(table, dict):
        raise ConfigError(path, f"{TABLE} is {_shown(table)}", expected="a table")
    for key in table:
        if key not in _TYPES:
            raise ConfigError(
                path,
                f"unknown key {TABLE}.{key}",
                expected=f"one of {', '.join(_TYPES)}",
                nearest=nearest(key, _TYPES),
            )
    return Settings(**table, file=path)


def _shown(value: object) -> str:
    """The value as TOML would write it, cut where it is long."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:59]}…"


def _words(info: inspect.Type) -> str:  # noqa: PLR0911  # one case per type
    match info:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return f"{'a whole number' if isinstance(info, inspect.IntType) else 'a number'}{_range(info)}"
        case inspect.StrType(min_length=least, max_length=longest):
            return "a text" if longest is None else f"a text of {least or 0} to {longest} characters"
        case inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType(value_type=inspect.DictType()):
            return "a table per rule, each of names and values"
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


_TYPES = {
    name: wanted
    for name, wanted in get_type_hints(Settings, include_extras=True).items()
    if name in {each.name for each in fields(Settings)} - {"file"}
}
"""The keys of the table and what each holds."""
