"""Elements of pages: what is kept of texts that repeat never takes the place of another text."""

from markupsafe import Markup

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
