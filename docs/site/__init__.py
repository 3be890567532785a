"""The documentation site: the pages of this folder, generated reference pages and a gallery, built by Sphinx.

``make site`` runs ``python -m docs.site``. The Markdown files stay as GitHub shows them; what the site adds to them is
added while they are laid out for Sphinx.
"""

from __future__ import annotations
