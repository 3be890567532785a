"""The settings that an experiment can change while a script trains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.text.cleaning import clean, clipped
from traceadvisor.text.secrets import REDACTED

Value: TypeAlias = SettingValue


@frozen
class Knob:
    """A setting that can be switched at run time."""

    name: str
    kind: type[bool] | type[int] | type[str]
    line: str
    """The code for a user to write, with ``{value}``."""

    is_of_loader: bool = False
    """Whether it makes another ``DataLoader``, with worker processes of its own; others switch between two steps."""


BATCH_SIZE, WORKERS, CACHED = "batch_size", "num_workers", "cached"
PATCH = "patch"
"""Changed code, by the name of the patch."""

OF_THIS_TOOL = frozenset({CACHED, PATCH})
"""Settings that no ``--set`` and no report names."""

NATIVE_THREADS = "native_threads"
"""Threads of native libraries, such as BLAS, in each loader worker."""

_KNOBS = (
    Knob(WORKERS, int, "DataLoader(..., num_workers={value})", is_of_loader=True),
    Knob("prefetch_factor", int, "DataLoader(..., prefetch_factor={value})", is_of_loader=True),
    Knob("pin_memory", bool, "DataLoader(..., pin_memory={value})", is_of_loader=True),
    Knob("persistent_workers", bool, "DataLoader(..., persistent_workers={value})", is_of_loader=True),
    Knob("in_order", bool, "DataLoader(..., in_order={value})", is_of_loader=True),
    Knob(NATIVE_THREADS, int, 'os.environ["OPENBLAS_NUM_THREADS"] = "{value}"', is_of_loader=True),
    Knob(BATCH_SIZE, int, "DataLoader(..., batch_size={value})", is_of_loader=True),
    Knob(CACHED, bool, "", is_of_loader=True),
    Knob(PATCH, str, "git apply {value}", is_of_loader=True),
    Knob("amp", str, 'with torch.autocast("{device}", dtype=torch.{value}): ...'),
    Knob(
        "tf32",
        bool,
        'torch.set_float32_matmul_precision("high" if {value} else "highest"); '
        "torch.backends.cudnn.allow_tf32 = {value}",
    ),
    Knob("cudnn_benchmark", bool, "torch.backends.cudnn.benchmark = {value}"),
    Knob("fused", bool, "{optimizer}(..., fused={value})"),
    Knob("foreach", bool, "{optimizer}(..., foreach={value})"),
    Knob("set_to_none", bool, "optimizer.zero_grad(set_to_none={value})"),
    Knob("channels_last", bool, "model.to(memory_format=torch.channels_last)"),
    Knob("non_blocking", bool, "batch.to(device, non_blocking={value})"),
    Knob("compile", bool, "model = torch.compile(model)"),
)

KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in _KNOBS})
OF_LOADER = frozenset(knob.name for knob in _KNOBS if knob.is_of_loader)

DTYPES = ("bfloat16", "float16")
"""Values of ``amp``."""

ENVIRONMENT = "env:"
"""Prefix of settings that are environment variables, as in ``env:OMP_NUM_THREADS``."""

VARIABLE = "set:"
"""Prefix of settings that assign to a variable of a module, as in ``set:__main__.CHUNK``."""

LONGEST_NAME = 200


@frozen
class Settings:
    """Differences from the script's own settings; empty without any."""

    values: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Settings:
        """Settings from names and values."""
        return cls(tuple(sorted(values.items())))

    def __getitem__(self, name: str) -> Value | None:
        """The value of a setting; None if it is the script's own."""
        return dict(self.values).get(name)

    def __bool__(self) -> bool:
        return bool(self.values)

    def count(self, name: str) -> int | None:
        """The value of a setting that is a whole number."""
        value = self[name]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def having(self, changes: Settings) -> Settings:
        """These settings with others on top."""
        return Settings.of(dict(self.values) | dict(changes.values))

    def of_loader(self) -> Settings:
        """The part that the loader has."""
        return Settings(tuple(item for item in self.values if item[0] in OF_LOADER))

    def without(self, *names: str) -> Settings:
        """These settings without some."""
        return Settings(tuple(item for item in self.values if item[0] not in names))

    def words(self) -> str:
        """As a user reads and writes them: ``batch_size=64, num_workers=2``."""
        return clean(", ".join(_words(name, value) for name, value in self.values)) or "as it is"

    def document(self) -> dict[str, Value]:
        """As it stands in a JSON file."""
        return dict(self.values)


def value_shown(name: str, value: Value) -> Value:
    """A value as files and messages show it: without secrets, home directories and control characters."""
    before, sign, _ = (said := _words(name, value)).partition("=")
    shown = clean(said)
    if shown == said:
        return value
    return shown.removeprefix(before + sign) if shown.startswith(before + sign) else REDACTED


def line(name: str, value: Value, *, device: str, optimizer: str) -> str:
    """A line of code that has the setting."""
    if name.startswith(ENVIRONMENT):
        return f"export {name.removeprefix(ENVIRONMENT)}={value}"
    if name.startswith(VARIABLE):
        return f"{name.removeprefix(VARIABLE).removeprefix('__main__.')} = {value!r}"
    scaler = "  # and scale the loss with torch.amp.GradScaler" if value == "float16" else ""
    return KNOBS[name].line.format(value=value, device=device, optimizer=f"torch.optim.{optimizer}") + scaler


def is_valid(name: str, value: object) -> bool:
    """Whether a knob takes the value."""
    if type(value) is not KNOBS[name].kind:
        return False
    match value:
        case bool():
            return True
        case int():
            return value >= (0 if name == WORKERS else 1)
        case _:
            return value in DTYPES


def parsed(text: str) -> tuple[str, tuple[Value, ...]]:
    """Name and values from a text such as ``num_workers=0,2,4`` or ``set:__main__.CHUNK=1,2``.

    Raises:
        UsageError: the name is unknown, or a value has the wrong type.
    """
    name, sign, values = text.partition("=")
    name = name.strip()
    words = [word.strip() for word in values.split(",") if word.strip()]
    if not sign or not words:
        raise UsageError(f"{text!r} is no setting. Write name=value, or name=value,value.")
    if name.startswith(VARIABLE):
        if "." not in name.removeprefix(VARIABLE):
            raise UsageError(f"{name!r} names no variable of a module. Write {VARIABLE}module.VARIABLE=value.")
        return _plain(name), tuple(_literal(word) for word in words)
    if name.startswith(ENVIRONMENT):
        return _plain(name), tuple(words)
    if name not in KNOBS or name in OF_THIS_TOOL:
        known = ", ".join(known for known in KNOBS if known not in OF_THIS_TOOL)
        raise UsageError(f"There is no setting {name!r}. Known settings: {known}, {VARIABLE}module.VARIABLE.")
    return name, tuple(_value(KNOBS[name], word) for word in words)


def _plain(name: str) -> str:
    if not re.fullmatch(r"(?:env:\w+|set:[\w.]+)", name) or len(name) > LONGEST_NAME:
        raise UsageError(f"{clipped(clean(name), LONGEST_NAME)!r} is no name of a variable.")
    return name


def _value(knob: Knob, word: str) -> Value:
    value = _literal(word)
    if knob.kind is str:
        if word not in DTYPES:
            raise UsageError(f"{knob.name}={word}: the value is bfloat16 or float16.")
        return word
    if knob.kind is bool:
        if not isinstance(value, bool) and value not in (0, 1):
            raise UsageError(f"{knob.name}={word}: the value is true or false.")
        return bool(value)
    if not is_valid(knob.name, value):
        raise UsageError(f"{knob.name}={word}: the value is a whole number.")
    return value


def _literal(word: str) -> Value:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _words(name: str, value: Value) -> str:
    if name == CACHED:
        return "one cached batch"
    return f"{name.removeprefix(VARIABLE).removeprefix(ENVIRONMENT)}={value}"
