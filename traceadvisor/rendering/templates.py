"""Where the templates are, and the environment that renders HTML from them."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from traceadvisor import __version__

PACKAGE = Path(__file__).resolve().parent.parent


def template_folder() -> Path:
    """The templates of an installed package, else of the checkout it was installed from."""
    installed = PACKAGE / "_templates"
    return installed if installed.is_dir() else PACKAGE.parent / "templates"


@cache
def html_environment() -> Environment:
    """For HTML, its style sheet and its pictures: everything is escaped, whatever the template's name ends in."""
    return Environment(
        loader=FileSystemLoader(template_folder()),
        bytecode_cache=compiled_templates(template_folder(), "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def compiled_templates(folder: Path, kind: str) -> BytecodeCache | None:
    """A cache for the templates of a folder, compiled for one kind of output, where Python keeps its own bytecode.

    None where Python may not write bytecode, or where another user could put some in: it would be run.
    """
    kept = Path(cache_from_source(str(folder / "x.j2"))).parent
    if sys.dont_write_bytecode or not _is_private(kept):
        return None
    return CompiledTemplates(str(kept), f"{kind}-%s.{sys.implementation.cache_tag}.j2c")


def _is_private(folder: Path) -> bool:
    """Whether the folder, made if it is missing, belongs to this user, who alone may write to it."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    by_others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & by_others


class CompiledTemplates(FileSystemBytecodeCache):
    """Compiles again when the version or a setting of the environment changes; does without where the disk is full."""

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """What is kept of a template, where it was compiled from this text by this version with these settings."""
        settings = (environment.autoescape, environment.trim_blocks, environment.lstrip_blocks, *environment.filters)
        return super().get_bucket(environment, name, filename, f"{source}{__version__}{settings}")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled, where there is room."""
        with suppress(OSError):
            super().dump_bytecode(bucket)
