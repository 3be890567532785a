"""Where the templates are, and the environment that renders HTML from them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Container
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from traceadvisor import __version__

PACKAGE = Path(__file__).resolve().parent.parent


def template_folder() -> Path:
    """The templates of an installed package, else of the checkout it was installed from."""
    installed = PACKAGE / "_templates"
    return installed if installed.is_dir() else PACKAGE.parent / "templates"


@cache
def html_environment() -> Environment:
    """Environment for HTML, style sheet and pictures: everything is escaped, whatever the template's name."""
    environment = Environment(
        loader=FileSystemLoader(template_folder()),
        bytecode_cache=compiled_templates(template_folder(), "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {one.__name__: one for one in (prose, capitalize_first, rule_links, unbroken)}
    return environment


_CODE = re.compile(r"`((?:[\w .,:=()\[\]*/+-]|&#3[49];|&[lg]t;){1,200})`")
"""Code in a sentence. Other characters could be those of a trace, and stay as they are."""


def prose(text: object) -> Markup:
    """The text, escaped, with code in backticks as an element."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(str(text)))))  # noqa: S704  # escaped before


_RULE_ID = re.compile(r"\b[A-Z][A-Z0-9]{1,30}[0-9]{3}\b")


def rule_links(text: object, explained: Container[str]) -> Markup:
    """The text, escaped, with links from the ids of rules to their explanation on the page.

    Args:
        text: the text; what is already escaped stays as it is.
        explained: the ids of rules with an explanation.
    """

    def link(found: re.Match[str]) -> str:
        return f'<a href="#rule-{found[0]}">{found[0]}</a>' if found[0] in explained else found[0]

    return Markup(_RULE_ID.sub(link, str(escape(text))))  # noqa: S704  # escaped before


_FIGURE = re.compile(r"\d[\d.,]{0,30} (?:ns|µs|ms|s|min)\b")


def unbroken(text: object) -> Markup:
    """The text, escaped, in which no line ends between a time and its unit."""
    return Markup(_FIGURE.sub(r'<span class="together">\g<0></span>', str(escape(text))))  # noqa: S704  # escaped before


def capitalize_first(text: str) -> str:
    """The text with a capital as its first letter; the rest as it is."""
    return f"{text[:1].upper()}{text[1:]}"


def compiled_templates(folder: Path, kind: str) -> BytecodeCache | None:
    """A cache of compiled templates for one kind of output, beside the templates like Python's own bytecode.

    None where Python may not write bytecode, or where another user may write to the folder: the code would be run.
    """
    kept = Path(cache_from_source(str(folder / "x.j2"))).parent
    if sys.dont_write_bytecode or not _is_private(kept):
        return None
    return CompiledTemplates(str(kept), f"{kind}-%s.{sys.implementation.cache_tag}.j2c")


def _is_private(folder: Path) -> bool:
    """Whether only this user owns and may write to the folder, which is made if it is missing."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    by_others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & by_others


class CompiledTemplates(FileSystemBytecodeCache):
    """Compiles again when the version or a setting of the environment changes. A full disk is not an error."""

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """Compiled code of a template, if it is from this text, version and settings."""
        settings = (environment.autoescape, environment.trim_blocks, environment.lstrip_blocks, *environment.filters)
        return super().get_bucket(environment, name, filename, f"{source}{__version__}{settings}")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write compiled code if possible."""
        with suppress(OSError):
            super().dump_bytecode(bucket)
