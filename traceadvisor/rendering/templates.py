"""Where the templates lie, and how they are read."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from traceadvisor.rendering.compiled_templates import CompiledTemplates

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
