"""The tables of a page of documentation."""

import re

Row = dict[str, str]


def section(page: str, heading: str) -> str:
    """The text below the heading that begins like this, up to the next one."""
    (text,) = re.findall(rf"^##+ {re.escape(heading)}[^\n]*\n(.*?)(?=^##+ |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return str(text)


def rows(text: str) -> list[Row]:
    """The only table of a text, by the titles of its columns."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
