"""Parses rendered pages for tests."""

from collections import Counter
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS


class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes.update(name for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def markdown_page(markdown: str) -> Page:
    """Markdown rendered like on a forge, with tables and with raw HTML, so that the test sees all HTML."""
    return Page(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown))


def spaced(report: Report) -> str:
    """The text of the page of a report, a space between any two elements."""
    return " ".join(Page(FORMATS["html"].render(report).decode().replace("<", " <")).text.split())
