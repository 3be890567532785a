"""Applies the thresholds of the settings to a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Annotated, Any, get_type_hints

from msgspec import Meta

from traceadvisor.config import TABLE, Settings, Threshold, checked, nearest
from traceadvisor.errors import ConfigError
from traceadvisor.rules.base import Rule


def with_thresholds(rule: Rule, values: Mapping[str, Threshold], settings: Settings, name: str) -> Rule:
    """The rule with changed thresholds."""
    types = threshold_types(rule)
    for key in values:
        if key not in types:
            expected = f"one of {', '.join(types)}" if types else "no thresholds for this rule"
            raise unknown(settings, f"{TABLE}.rules.{name} has {key!r}", expected, key, types)
    typed = {key: checked(value, types[key], settings.origin, ("rules", name, key)) for key, value in values.items()}
    changed: Rule = replace(rule, **typed)  # type: ignore[type-var]  # every rule is a dataclass, but Rule itself is not
    return changed


def threshold_types(rule: Rule) -> dict[str, Any]:
    """The thresholds of a rule and the allowed values of each.

    Thresholds named as shares are 0..1. Other numbers are at least 0 unless their annotation says otherwise.
    """
    names = [each.name for each in fields(rule) if each.default is not MISSING]  # type: ignore[arg-type]  # as above
    hints = get_type_hints(type(rule), include_extras=True)
    return {name: _ranged(name, hints[name]) for name in names}


def _ranged(name: str, hint: Any) -> Any:
    if hint not in (int, float):
        return hint
    if hint is float and name.endswith("_share"):
        return Annotated[float, Meta(ge=0, le=1)]
    return Annotated[hint, Meta(ge=0, lt=1e300 if hint is float else 2**62)]


def unknown(settings: Settings, found: str, expected: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown name in the settings, with the nearest known one."""
    return ConfigError(settings.origin, found, expected=expected, nearest=nearest(name, known))
