"""Settings of Sphinx for the documentation site."""

from __future__ import annotations

from pathlib import Path

import traceadvisor

project = "TraceAdvisor"
author = "The TraceAdvisor maintainers"
version = release = traceadvisor.__version__
html_title = f"TraceAdvisor {version}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # pages of rules begin with the sections that matter
autodoc_preserve_defaults = True
autodoc_typehints = "signature"

html_theme = "furo"
html_static_path = [str(Path(__file__).with_name("static"))]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_show_sourcelink = False
html_show_search_summary = False  # a page that is opened from a file may not read the others
