"""TOML of bounded cost."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_PARTS = 16
"""Parts of a key such as ``tool.name.key``: the parser's time and memory grow with their square."""

_PART = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*"
_LONG_KEY = re.compile(rf"(?:^|[{{,\[])[ \t]*(?:{_PART}\.[ \t]*){{{MOST_PARTS}}}", re.MULTILINE)


def decoded_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ValueError: it is no UTF-8 or no TOML, or nested too deeply.
    """
    text = content.decode()
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
