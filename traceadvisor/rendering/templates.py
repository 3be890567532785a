"""Where the templates lie, and how they are read.

Templates as bytecode: compiled once, and kept where Python keeps that of the modules beside them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
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
        bytecode_cache=CompiledTemplates(template_folder(), "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class CompiledTemplates(BytecodeCache):
    """As for modules: nothing is kept where nothing may be written, and what is out of date is made anew."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Of the templates of a folder, compiled for one kind of output."""
        self._folder, self._kind = folder, kind

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """What is kept of a template, where it was compiled from this text by this version with these settings."""
        settings = (environment.autoescape, environment.trim_blocks, environment.lstrip_blocks, *environment.filters)
        return super().get_bucket(environment, name, filename, f"{source}{__version__}{settings}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with what is kept of a template, if that is of its present text."""
        with suppress(OSError), self._file(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled."""
        if sys.dont_write_bytecode:
            return
        file = self._file(bucket)
        part = file.with_suffix(f".{os.urandom(4).hex()}.part")
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as content:
                    bucket.write_bytecode(content)
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)

    def _file(self, bucket: Bucket) -> Path:
        return Path(cache_from_source(str(self._folder / f"{self._kind}-{bucket.key}.j2")))
