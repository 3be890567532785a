"""Elements of pages: what is kept of texts that repeat never takes the place of another text."""

from collections.abc import Container
from dataclasses import replace

import pytest
from markupsafe import Markup

from tests.build_report import one_recording
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.document.blocks import Section
from traceadvisor.rendering.document.table import Cell, Column, Table
from traceadvisor.rendering.writers import html
from traceadvisor.rendering.writers.elements import LONGEST_KEPT, element, prose

BOLD = "<b>x</b>"
ELEMENT = Markup(BOLD)  # noqa: S704  # an element of ours


def test_a_text_that_equals_an_element_is_escaped_after_it() -> None:
    assert prose(ELEMENT) == BOLD
    assert prose(BOLD) == "&lt;b&gt;x&lt;/b&gt;"
    assert element("p", ELEMENT) == f"<p>{BOLD}</p>"
    assert element("p", BOLD) == "<p>&lt;b&gt;x&lt;/b&gt;</p>"


def test_an_element_stays_one_after_a_text_that_equals_it() -> None:
    assert element("p", BOLD, ELEMENT) == f"<p>&lt;b&gt;x&lt;/b&gt;{BOLD}</p>"


def test_a_text_too_long_to_be_kept_is_escaped_too() -> None:
    long = "<" * (LONGEST_KEPT + 1)

    assert element("p", long, title=long) == f'<p title="{"&lt;" * len(long)}">{"&lt;" * len(long)}</p>'
    assert prose(long) == "&lt;" * len(long)


def test_an_attribute_has_the_value_of_its_own_type() -> None:
    assert element("p", x=1) == '<p x="1"></p>'
    assert element("p", x="1") == '<p x="1"></p>'
    assert element("p", x=True) == '<p x="True"></p>'


def test_a_rule_is_a_link_only_on_the_page_that_explains_it() -> None:
    assert prose("See DATA001.", {"DATA001"}) == 'See <a href="#rule-DATA001">DATA001</a>.'
    assert prose("See DATA001.") == "See DATA001."
    assert prose("See DATA001.", {"DATA002"}) == "See DATA001."


def test_equal_cells_of_all_pages_are_written_once_for_each_kind_of_column(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = Column("What", numeric=False), Column("Time"), Column("Share")
    table = Table("Times", columns, ((Cell("never"),) * 3, (Cell("never"), Cell("never", value="1"), Cell("never"))))
    document = replace(report_document(one_recording()), sections=(Section("All", (table,), "all"),))
    written: list[str] = []

    def counted(text: str, explained: Container[str] = ()) -> Markup:
        written.append(text)
        return prose(text, explained)

    monkeypatch.setattr(html, "prose", counted)

    page = html.page(document)

    assert html.page(document) == page
    assert written.count("never") == 3
    assert page.count('<td class="n">never</td>') == 3
    assert page.count('<td class="t">never</td>') == 2
    assert page.count('<td class="n" data-v="1">never</td>') == 1


def test_an_equal_cell_of_another_page_is_escaped_and_has_the_links_of_its_own_page() -> None:
    def cells(*texts: str, explained: frozenset[str]) -> str:
        table = Table("Checks", (Column("Check", numeric=False),), tuple((Cell(text),) for text in texts))
        sections = (Section("All", (table,), "all"),)
        return html.page(replace(report_document(one_recording()), sections=sections, explained=explained))

    linked = '<td class="t">of <a href="#rule-DATA001">DATA001</a></td>'
    assert linked in cells("of DATA001", ELEMENT, explained=frozenset({"DATA001"}))
    other = cells("of DATA001", BOLD, explained=frozenset())
    assert '<td class="t">of DATA001</td>' in other
    assert '<td class="t">&lt;b&gt;x&lt;/b&gt;</td>' in other
