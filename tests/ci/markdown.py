"""What a comment becomes when real readers of Markdown render it, and what in it could do harm."""

import ctypes
import random
import re
from collections.abc import Sequence
from ctypes.util import find_library
from functools import cache
from html.parser import HTMLParser

from markdown_it import MarkdownIt

_WITH_HTML = 1 << 17
_EXTENSIONS = (b"table", b"strikethrough", b"autolink", b"tasklist")


@cache
def _cmark() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Debian's cmark-gfm as libraries: a process for each text would take most of the time."""
    core, extensions = (ctypes.CDLL(find_library(name)) for name in ("cmark-gfm", "cmark-gfm-extensions"))
    for name, given, result in (
        ("cmark_parser_new", (ctypes.c_int,), ctypes.c_void_p),
        ("cmark_parser_free", (ctypes.c_void_p,), None),
        ("cmark_find_syntax_extension", (ctypes.c_char_p,), ctypes.c_void_p),
        ("cmark_parser_attach_syntax_extension", (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int),
        ("cmark_parser_feed", (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t), None),
        ("cmark_parser_finish", (ctypes.c_void_p,), ctypes.c_void_p),
        ("cmark_parser_get_syntax_extensions", (ctypes.c_void_p,), ctypes.c_void_p),
        ("cmark_render_html", (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p),
        ("cmark_node_free", (ctypes.c_void_p,), None),
    ):
        function = getattr(core, name)
        function.argtypes, function.restype = given, result
    extensions.cmark_gfm_core_extensions_ensure_registered()
    return core, ctypes.CDLL(None)


def by_cmark(text: str) -> str:
    """HTML as GitHub's own reader makes it, with its autolinks and footnotes, and with raw HTML."""
    core, c = _cmark()
    options = _WITH_HTML | 1 << 13  # footnotes
    parser = core.cmark_parser_new(options)
    for name in _EXTENSIONS:
        assert core.cmark_parser_attach_syntax_extension(parser, core.cmark_find_syntax_extension(name))
    data = text.encode()
    core.cmark_parser_feed(parser, data, len(data))
    document = core.cmark_parser_finish(parser)
    html = core.cmark_render_html(document, options, core.cmark_parser_get_syntax_extensions(parser))
    rendered = ctypes.string_at(html).decode()
    c.free(ctypes.c_void_p(html))
    core.cmark_node_free(document)
    core.cmark_parser_free(parser)
    return rendered


_MARKDOWN_IT = MarkdownIt("gfm-like", {"linkify": False, "html": True})


def by_markdown_it(text: str) -> str:
    """HTML as most other readers make it."""
    return str(_MARKDOWN_IT.render(text))


_ELEMENTS = (
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li"),
    *("em", "strong", "del", "s", "code", "pre", "blockquote", "hr", "br", "details", "summary", "sub"),
)
_ATTRIBUTES = {"th": {"align", "style"}, "td": {"align", "style"}, "ol": {"start"}}
_FOUND_IN_TEXT = re.compile(
    r"@[a-z0-9_-]|#[0-9]|\bGH-[0-9]|\bCVE-[0-9]|\bGHSA-|://|\bwww\.|(?<![a-z0-9])[0-9a-f]{7,40}(?![a-z0-9])"
    r"|[a-z0-9]@[a-z0-9.-]*[a-z]",
    re.IGNORECASE,
)


class _Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.harm: list[str] = []
        self._text, self._code = "", 0
        self.feed(html)
        self.close()
        self._end_text()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end_text()
        self._code += tag in {"code", "pre"}
        if (tag, attrs) == ("code", [("class", "language-diff")]):  # of other languages, a forge makes pictures
            return
        if tag not in _ELEMENTS or not {name for name, _ in attrs} <= _ATTRIBUTES.get(tag, set()):
            self.harm.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self._end_text()
        self._code -= tag in {"code", "pre"}

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        if not re.fullmatch(r" traceadvisor\.[a-z-]+/\d+ ", data):
            self.harm.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.harm.append(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self.harm.append(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self.harm.append(f"<?{data}>")

    def _end_text(self) -> None:
        if not self._code and (found := _FOUND_IN_TEXT.search(self._text)):
            self.harm.append(found[0])
        self._text = ""


def harm(html: str) -> list[str]:
    """Elements, attributes and comments that a report does not have, and text that a forge would link."""
    return _Page(html).harm


PIECES = (
    *("\n", "\n\n", "\n\n```\n", "\n```\n", "\n````\n", "```\t\n", "``` \n", "    ", "\t", " ", "  \n", "\xa0"),
    *("\x0c", "\r", "\x00", "\x85", "\u3000", "\u2028", "\u200b", "\n\xa0\n", "> ", "- ", "1. ", "* ", "`"),
    *("``", "```", "~~~", "~~", "$", "$$", "\\", "\\\\", "\\\\\\", "*", "**", "_", "__", "|"),
    *("\n| a |\n| --- |\n| ", "\n---\n", "\n===\n", "#", "### ", "&", ";", ":", "&#64;", "&#35;", "&#60;"),
    *("&#62;", "&#8203;", "&#38;", "&#91;", "&#10;", "&#13;", "&#0;", "&#8238;", "&lt;", "&#x3c;", "@team"),
    *("@\u200bteam", "@.b.cd", "a@b.cd", "#1", "GH-1", "_GH-1_", "CVE-2026-1", "deadbee", "_deadbee_"),
    *("www.e.org", "www\\.e.org", "https://e.org", "http\\://e.org", "https&#58;//e.org", "ftp://e"),
    *("mailto:a@b.cd", "//e.org", "/close", "[x](//e.org)", "![x](//e.org)", "\\[x](//e.org)"),
    *("\\[x\\](//e.org)", "[x]", "[x]: //e.org", "[^1]", "[^1]: y", "- [ ] ", "<br>", "\\<br>", "\\\\<br>"),
    *("<sub>", "</sub>", "<details>", "</details>", "<summary>", "</summary>", "<sub", "<details "),
    *("<a href=//e.org>", "\\<a href=//e.org>", "<de<br>tails>", "<img src=//e.org>", "<https://e.org>", "<!--"),
    *("-->", "<!-- a -->", "<?", "<!A", "<![CDATA[", "<script>", "<pre>", "<", ">", "\\>", "\\<", "x", "text"),
    *("0", "\n> [!NOTE]\n", "> [!WARNING]"),
)


def fuzzed(chance: random.Random, comments: Sequence[str], marker: str) -> str:
    """A comment of pieces that mean something to a reader, alone or planted into a real comment."""
    pieces = chance.choices(PIECES, k=chance.choice((1, 2, 3, 4, 6, 10)))
    if chance.random() < 0.5:
        return f"{marker}\n{''.join(pieces)}"
    text = chance.choice(comments)
    for piece in pieces[:4]:
        place = chance.randrange(len(marker) + 1, len(text))
        text = text[:place] + piece + text[place + chance.choice((0, 0, 1, 3)) :]
    return text
