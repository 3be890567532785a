"""Tables on a narrow screen."""

import pytest

from traceadvisor.rendering.document.table import Layout, Table, cells, titled
from traceadvisor.rendering.writers.html import MOST_NARROW, _Page


@pytest.mark.parametrize("more", [0, 1])
def test_rows_of_tables_with_many_columns_become_blocks_with_titles_on_a_narrow_screen(more: int) -> None:
    titles = [f"Title {number}" for number in range(MOST_NARROW + more)]
    table = Table("Figures", titled(*titles), (cells(*map(str, range(len(titles)))),), layout=Layout.NARROW)
    shown = str(_Page().table(table))
    assert ('class="table narrow stacked"' in shown) is bool(more)
    assert ('data-label="Title 1"' in shown) is bool(more)
