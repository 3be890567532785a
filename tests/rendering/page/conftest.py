import pytest

from tests.once import Once
from tests.rendering.drawn import Draw, drawn_once


@pytest.fixture(scope="session")
def drawn(once: Once) -> Draw:
    """PDF documents by the functions that build their reports."""
    return drawn_once(once)
